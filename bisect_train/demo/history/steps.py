"""The words in which the demo's history is written: steps of edits to a tree of text files.

A tree is a dict from path to text. Each edit changes a tree in place and fails loudly when it does not fit, so a slip
in the history is found when the repository is built, not when somebody bisects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import TypeAlias

Tree: TypeAlias = dict[str, str]


class Role(Enum):
    """What a commit means for somebody who looks for a regression."""

    ORDINARY = "ordinary"  # the numbers stay bitwise the same
    DECOY = "decoy"  # other numbers, same quality
    BROKEN = "broken"  # the program does not start
    CULPRIT = "culprit"  # trains clearly worse


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace a passage that occurs exactly once in the file."""

    file: str
    old: str
    new: str

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        count = tree[self.file].count(self.old)
        if count != 1:
            raise ValueError(f"{self.file}: expected the passage once, found it {count} times: {self.old!r}")
        tree[self.file] = tree[self.file].replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Append:
    """Put text at the end of the file."""

    file: str
    text: str

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        tree[self.file] += self.text


@dataclass(frozen=True, slots=True)
class Add:
    """Add a file; its text is a resource in the folder `added`."""

    file: str
    resource: str

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        if self.file in tree:
            raise ValueError(f"{self.file} exists already")
        tree[self.file] = files("bisect_train.demo").joinpath("added", self.resource).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Move:
    """Rename a file."""

    file: str
    to: str

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        tree[self.to] = tree.pop(self.file)


Edit: TypeAlias = Replace | Append | Add | Move


@dataclass(frozen=True, slots=True)
class Step:
    """One commit: its message and its edits."""

    subject: str
    edits: tuple[Edit, ...]
    body: str = ""
    role: Role = Role.ORDINARY

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        for edit in self.edits:
            edit.apply(tree)


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge commit on the main line.

    Args:
        branch: The commits of the branch, oldest first; their edits must fit the main line too.
        fork: How many commits of the main line the branch does not have, >= 0.
    """

    subject: str
    branch: tuple[Step, ...]
    fork: int = 2
    role: Role = Role.ORDINARY

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        for step in self.branch:
            step.apply(tree)
