"""What a recipe says for some commits only: the conditions of its `when:` blocks, and what the blocks that hold give.

A repository's command line, its data and the lines that it prints change over the years. Each block names the states that it is
for, by what their tree holds or by whether they have a commit. Of the blocks that hold, the first that says a thing counts: one
command, one value of a variable, one source of a link, one pattern of a metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bisect_train.core.changes import DataLink


@dataclass(frozen=True, slots=True)
class When:
    """One block; all conditions that it names must hold, "" names none.

    Attributes:
        where: file and line of the block, for messages.
        since: commit (40 hex digits) that a state must have.
        until: commit that a state must not have.
        exists: path that its tree must have.
        file: path of the file that `contains` and `lacks` are about; a tree without it does not hold.
        contains: regular expression that must be found in that file.
        lacks: regular expression that must not be found in it.
        command: training command, () for that of the recipe; `{overrides}` still stands in it.
        env: environment variables.
        data: links with the digest of their content.
        patterns: (name, pattern) of metrics that the recipe has.
    """

    where: str
    since: str = ""
    until: str = ""
    exists: str = ""
    file: str = ""
    contains: str = ""
    lacks: str = ""
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    data: tuple[tuple[DataLink, str], ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the tree that its conditions are about."""
        return tuple(path for path in (self.exists, self.file) if path)

    def holds(self, *, has: Callable[[str], bool], is_there: Callable[[str], bool], read: Callable[[str], str | None]) -> bool:
        """Return whether a state meets every condition.

        Args:
            has: whether the state has a commit.
            is_there: whether its tree has a path.
            read: text of a file of its tree, None where there is none.
        """
        if (self.since and not has(self.since)) or (self.until and has(self.until)):
            return False
        if self.exists and not is_there(self.exists):
            return False
        if not self.file:
            return True
        text = read(self.file)
        if text is None or (self.contains and not _find(self.contains, text)):
            return False
        return not (self.lacks and _find(self.lacks, text))

    @staticmethod
    def of_json(data: dict[str, Any]) -> When:
        """Return the block that `asdict` wrote."""
        kept = dict(data)
        kept["command"] = tuple(data["command"])
        kept["data"] = tuple((DataLink(**link), digest) for link, digest in data["data"])
        kept |= {name: tuple((pair[0], pair[1]) for pair in data[name]) for name in ("env", "patterns")}
        return When(**kept)


def _find(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.MULTILINE) is not None


@dataclass(frozen=True, slots=True)
class Choice:
    """What the blocks that hold say together; see `When`."""

    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    data: tuple[tuple[DataLink, str], ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()


def choose(blocks: Iterable[When]) -> Choice:
    """Return what blocks that hold give, in the order of the recipe: the first that says a thing counts."""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    data: dict[str, tuple[DataLink, str]] = {}
    patterns: dict[str, str] = {}
    for block in blocks:
        command = command or block.command
        env = {**dict(block.env), **env}
        data = {**{link.target: (link, digest) for link, digest in block.data}, **data}
        patterns = {**dict(block.patterns), **patterns}
    return Choice(
        command, tuple(sorted(env.items())), tuple(data[target] for target in sorted(data)), tuple(sorted(patterns.items()))
    )
