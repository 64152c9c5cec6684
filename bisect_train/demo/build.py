"""Build the demo's git repository: a small language model with one bad commit among sixty.

`git fast-import` gets the whole history as one stream, with fixed authors, dates and messages, so the hashes are the
same on every machine and every git. The user's git settings are kept out (templates, hooks, signing, line ends).
This module must not know what the steps say; that is `history`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_train.demo.history import HISTORY, Merge, Role, Step, Tree

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # from Python 3.11

COMMAND = ("python", "train.py", "--config", "config.yaml")
PERSON = "Demo <demo@example.invalid>"
FIRST_COMMIT_S = 1_709_542_800  # 2024-03-04 09:00 UTC, a Monday
BETWEEN_COMMITS_S = 5 * 3600 + 1020  # 5 h 17 min, so that no two commits of a day look alike


@dataclass(frozen=True, slots=True)
class DemoRepo:
    """A built demo.

    Attributes:
        path: The repository; its branch `main` is checked out at `bad`.
        good, bad: First and last commit, 40 hex digits.
        culprit: The commit that makes training worse.
        decoys: Commits that change the numbers but not the quality, oldest first.
        untestable: Commits whose program does not start, oldest first.
        command: How to train, as a list of arguments.
        num_commits: Commits of the first-parent chain after `good`, up to and with `bad`.
    """

    path: Path
    good: str
    bad: str
    culprit: str
    decoys: tuple[str, ...]
    untestable: tuple[str, ...]
    command: tuple[str, ...]
    num_commits: int


def build(destination: Path) -> DemoRepo:
    """Create the demo's repository in a folder that is empty or does not exist.

    Raises:
        FileExistsError: The folder holds something.
        subprocess.CalledProcessError: git failed; its standard error is in the exception.
    """
    destination = destination.resolve()
    if destination.exists() and any(destination.iterdir()):
        raise FileExistsError(f"{destination} is not empty; name a new folder for the demo")
    destination.mkdir(parents=True, exist_ok=True)
    _git(destination, "init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha1")
    _git(destination, "config", "core.autocrlf", "false")
    stream, marks = _write_stream()
    _git(destination, "fast-import", "--quiet", "--export-marks=.git/demo-marks", stdin=stream)
    hashes = _read_marks(destination / ".git" / "demo-marks")
    _git(destination, "reset", "--quiet", "--hard", "main")
    return _describe(destination, [hashes[mark] for mark in marks])


def _describe(path: Path, main_line: list[str]) -> DemoRepo:
    by_role = {role: tuple(h for h, step in zip(main_line, HISTORY, strict=True) if step.role is role) for role in Role}
    (culprit,) = by_role[Role.CULPRIT]
    return DemoRepo(
        path=path,
        good=main_line[0],
        bad=main_line[-1],
        culprit=culprit,
        decoys=by_role[Role.DECOY],
        untestable=by_role[Role.BROKEN],
        command=COMMAND,
        num_commits=len(main_line) - 1,
    )


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(
        ["git", "-C", str(folder), *arguments],
        input=stdin,
        env=kept | isolated,
        check=True,
        capture_output=True,
    )


def _read_marks(path: Path) -> dict[int, str]:
    """Return mark -> hash from fast-import's file, and remove the file."""
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    hashes = {int(mark[1:]): value for mark, value in pairs}
    path.unlink()
    return hashes


# --- the stream -------------------------------------------------------------------------------------------------------


def _write_stream() -> tuple[bytes, list[int]]:
    """Return the input of `git fast-import`, and the marks of the main line's commits, oldest first."""
    writer = _StreamWriter()
    tree = dict(_read_base(files("bisect_train.demo").joinpath("base")))
    trees: list[Tree] = []
    marks: list[int] = []
    for step in HISTORY:
        parents = marks[-1:]
        if isinstance(step, Merge):
            parents = [marks[-1], _write_branch(writer, step, trees[-1 - step.fork], marks[-1 - step.fork])]
        step.apply(tree)
        marks.append(writer.commit(step, tree, parents))
        trees.append(dict(tree))
    return bytes(writer.stream), marks


def _write_branch(writer: _StreamWriter, merge: Merge, fork_tree: Tree, fork_mark: int) -> int:
    tree, mark = dict(fork_tree), fork_mark
    for step in merge.branch:
        step.apply(tree)
        mark = writer.commit(step, tree, [mark])
    return mark


def _read_base(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of the first commit's files; the resources carry `.txt` behind their name."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read_base(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".txt"):
            yield prefix + entry.name.removesuffix(".txt"), entry.read_text(encoding="utf-8")


class _StreamWriter:
    """Writes commits in the format of `git fast-import`; every commit lists its whole tree."""

    def __init__(self) -> None:
        self.stream = bytearray()
        self.num_commits = 0

    def commit(self, step: Step | Merge, tree: Tree, parents: list[int]) -> int:
        """Write a commit and return its mark."""
        self.num_commits += 1
        when = f"{FIRST_COMMIT_S + self.num_commits * BETWEEN_COMMITS_S} +0000"
        body = f"\n\n{step.body}" if isinstance(step, Step) and step.body else ""
        # The commits of side branches too: a later commit that names its parents moves the branch back.
        self._line("commit refs/heads/main")
        self._line(f"mark :{self.num_commits}")
        self._line(f"author {PERSON} {when}")
        self._line(f"committer {PERSON} {when}")
        self._data(f"{step.subject}{body}\n")
        for keyword, parent in zip(("from", "merge"), parents, strict=False):
            self._line(f"{keyword} :{parent}")
        self._line("deleteall")
        for path in sorted(tree):
            self._line(f"M 100644 inline {path}")
            self._data(tree[path])
        return self.num_commits

    def _line(self, text: str) -> None:
        self.stream += text.encode() + b"\n"

    def _data(self, text: str) -> None:
        content = text.encode()
        self.stream += b"data %d\n%b\n" % (len(content), content)
