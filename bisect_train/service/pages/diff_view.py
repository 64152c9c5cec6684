"""A commit's diff, line by line, for a page: what is added and removed is told by sign and by colour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.plumbing import decode
from bisect_train.changes.repository import Repository
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.secrets import mask_line

MAX_LINES = 600
MAX_BYTES = 400_000
MAX_WIDTH = 400


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line; `kind` is added, removed, place (of a hunk), file or same."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A diff; `num_left_out` lines are not shown."""

    title: str
    lines: tuple[DiffLine, ...]
    num_left_out: int = 0


def diff_of_commit(repo: str, commit: str, *, home: Path, title: str) -> Diff | None:
    """Return what a commit changed against its first parent; None where that cannot be read or nothing was changed."""
    try:
        git = Repository.open(Path(repo), home=home).git
    except BisectTrainError:
        return None
    shown = git.attempt(
        *("show", "--first-parent", "-m", "--format=", "--no-color", "--no-ext-diff", "--no-textconv", "--patch"),
        *("--end-of-options", commit, "--"),
    )
    return read_diff(decode(shown.stdout[:MAX_BYTES]), title=title) if shown.returncode == 0 and shown.stdout else None


def read_diff(text: str, *, title: str) -> Diff:
    """Return a patch, line by line; secrets are hidden."""
    lines = text.rstrip("\n").split("\n")
    shown = tuple(DiffLine(_kind_of(line), line[:1] + mask_line(line[1:MAX_WIDTH])) for line in lines[:MAX_LINES])
    return Diff(title, shown, max(0, len(lines) - MAX_LINES))


def _kind_of(line: str) -> str:
    if line.startswith(
        ("diff --git", "index ", "--- ", "+++ ", "new file", "deleted file", "similarity", "rename ", "old mode")
    ):
        return "file"
    if line.startswith("@@"):
        return "place"
    return "added" if line.startswith("+") else "removed" if line.startswith("-") else "same"
