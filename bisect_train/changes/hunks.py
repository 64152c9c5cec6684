"""Hunks of a file: where git sees two versions differ, and the bytes that any set of these places gives.

git compares without context lines, so hunks never share a line of the old file, and a set of them is built by replacing
ranges of lines: nothing is searched for, nothing can be fuzzy. Lines end at a newline alone (a carriage return is a part of
its line, bytes need not be text); the last one may lack it. unidiff, the library for this, reads text that must decode; what
is needed here is four numbers a hunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

DIFF_OPTIONS = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--full-index",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
    "--diff-algorithm=histogram",
    "--indent-heuristic",
    "--inter-hunk-context=0",
)
"""For `git diff-tree -p`: the same output whatever a configuration says."""

_INDEX = re.compile(rb"index ([0-9a-f]{40,})\.\.([0-9a-f]{40,})")
_HUNK = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@")


@dataclass(frozen=True, slots=True, order=True)
class Hunk:
    """Lines of the old file that other lines replace, in git's numbers.

    Attributes:
        old_start, new_start: first line, counted from 1; where the count is 0, the line before.
        old_count, new_count: number of lines.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int

    @property
    def old_span(self) -> slice:
        """The replaced lines as a slice of the old file's lines."""
        start = self.old_start - (self.old_count > 0)
        return slice(start, start + self.old_count)

    @property
    def new_span(self) -> slice:
        """The lines in their place as a slice of the new file's lines."""
        start = self.new_start - (self.new_count > 0)
        return slice(start, start + self.new_count)


def parse_hunks(patch: bytes) -> Mapping[tuple[str, str], tuple[Hunk, ...]]:
    """Return the hunks by the files' old and new object, given `git diff-tree -p -U0` with DIFF_OPTIONS."""
    found: dict[tuple[str, str], tuple[Hunk, ...]] = {}
    objects = ("", "")
    hunks: list[Hunk] = []
    lines = iter(patch.split(b"\n"))
    for line in lines:
        if head := _INDEX.match(line):
            objects, hunks = (head[1].decode(), head[2].decode()), []
        elif head := _HUNK.match(line):
            hunk = Hunk(*(1 if number is None else int(number) for number in head.groups()))
            hunks.append(hunk)
            found[objects] = tuple(hunks)
            _skip(lines, hunk.old_count + hunk.new_count)
    return found


def _skip(lines: Iterator[bytes], num_lines: int) -> None:
    """Pass over a hunk's lines: what they say must not be taken for a header."""
    while num_lines > 0:
        line = next(lines, None)
        if line is None:  # fewer than its header says
            return
        num_lines -= not line.startswith(b"\\")


def split_lines(data: bytes) -> list[bytes]:
    """Return lines with their newlines, as git counts them; they add up to the data."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def splice(old: list[bytes], new: list[bytes], hunks: Iterable[Hunk]) -> bytes:
    """Return the old file with some of the hunks that lead to the new one.

    Args:
        old, new: lines of `split_lines`.
        hunks: of the difference between the two, in any order.
    """
    result = list(old)
    for hunk in sorted(hunks, reverse=True):
        result[hunk.old_span] = new[hunk.new_span]
    return b"".join(result)
