"""Writes a history as a git repository by `git fast-import`: fixed authors and dates, so the hashes are always the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bisect_train.demo.history.steps import Merge, Step, Tree
from tests.support.git_repos import git

PERSON = "Scenario <scenario@example.invalid>"
FIRST_COMMIT_S = 1_700_000_000
BETWEEN_COMMITS_S = 7320  # 2 h 2 min

History = Sequence[Step | Merge]


def build_repository(
    path: Path, base: Mapping[str, str], history: History, *, first: str = "a small character model"
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Create the repository; `base` is the first commit, with the subject `first`; checked out is the last one.

    Returns:
        Hash by subject, of the commits of branches too; and the hashes of the main line, oldest first.
    """
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main", "--object-format=sha1")
    git(path, "config", "core.autocrlf", "false")
    writer = _Writer()
    main = writer.write_line([Step(first, ()), *history], dict(base))
    marks = path / ".git" / "scenario-marks"
    git(path, "fast-import", "--quiet", f"--export-marks={marks}", stdin=bytes(writer.stream))
    hashes = {int(mark[1:]): name for mark, name in (line.split() for line in marks.read_text().splitlines())}
    marks.unlink()
    git(path, "reset", "-q", "--hard", "main")
    return {subject: hashes[mark] for subject, mark in writer.marks.items()}, tuple(hashes[mark] for mark in main)


class _Writer:
    """The input of `git fast-import`; every commit lists its whole tree."""

    def __init__(self) -> None:
        self.stream = bytearray()
        self.marks: dict[str, int] = {}

    def write_line(self, history: History, tree: Tree) -> list[int]:
        """Write the main line, with the branches that it merges, and return its marks."""
        trees: list[Tree] = []
        marks: list[int] = []
        for step in history:
            parents = marks[-1:]
            if isinstance(step, Merge):
                parents = [marks[-1], self._write_branch(step, dict(trees[-1 - step.fork]), marks[-1 - step.fork])]
            step.apply(tree)
            marks.append(self._commit(step, tree, parents))
            trees.append(dict(tree))
        return marks

    def _write_branch(self, merge: Merge, tree: Tree, mark: int) -> int:
        for step in merge.branch:
            step.apply(tree)
            mark = self._commit(step, tree, [mark])
        return mark

    def _commit(self, step: Step | Merge, tree: Tree, parents: list[int]) -> int:
        if step.subject in self.marks:
            raise ValueError(f"two commits with the subject {step.subject!r}")
        mark = self.marks[step.subject] = len(self.marks) + 1
        when = f"{FIRST_COMMIT_S + mark * BETWEEN_COMMITS_S} +0000"
        # the commits of branches too: a later commit that names its parents moves `main` back
        self._line(f"commit refs/heads/main\nmark :{mark}\nauthor {PERSON} {when}\ncommitter {PERSON} {when}")
        self._data(f"{step.subject}\n")
        for keyword, parent in zip(("from", "merge"), parents, strict=False):
            self._line(f"{keyword} :{parent}")
        self._line("deleteall")
        for name in sorted(tree):
            self._line(f"M 100644 inline {name}")
            self._data(tree[name])
        return mark

    def _line(self, text: str) -> None:
        self.stream += text.encode() + b"\n"

    def _data(self, text: str) -> None:
        content = text.encode()
        self.stream += b"data %d\n%b\n" % (len(content), content)
