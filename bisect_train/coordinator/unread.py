"""Which changes the program does not read: from what runs have read, and from what each commit changes.

Version j was run and all that it read is known. While the next change touches nothing of it, the version with that change runs
the same, and the one after it; likewise downwards. The walk ends at the first change that is touched, or after `MAX_WALK`.
Commits of documentation only are not read either, where neither end reads any documentation.

This is no part of what is stored: read sets come with the results, and a plan that is rebuilt from them finds the same changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from bisect_train.changes.space import ChangeSpace
from bisect_train.changes.untouched import FileChange, Reader, is_documentation
from bisect_train.core.changes import Point
from bisect_train.core.question import Question
from bisect_train.core.reads import ReadSet, unite

MAX_WALK = 4096  # changes, to each side of a version that was run
MAX_WHOLE = 4096  # changes of a range that is looked through for documentation
BLOCK = 64  # changes whose files are read at once
LONG_BLOCKS = 8  # so many blocks at once where a walk goes on beyond one

Reads = tuple[Point, ReadSet | None]
"""What one run read, and the point that it ran; None where it has not told."""


class Unread:
    """Finds the changes of one bisection that its program does not read; remembers what it has looked up.

    Args:
        question: what was asked; without `limits.prune`, and with a judge or setup commands, nothing is found.
        space: its changes.
    """

    def __init__(self, question: Question, space: ChangeSpace) -> None:
        settings = question.settings
        is_asked = question.limits.prune and not (settings.setup or settings.judge or settings.restart)
        self._num = space.num_main_line if is_asked else 0
        self._space = space
        self._targets = [link.target for link in settings.links]
        for state in (question.good_state, question.bad_state):
            self._targets += [item.link.target for item in state.data]
        self._targets += [link.target for when in question.whens for link, _ in when.data]
        self._steps: dict[int, tuple[FileChange, ...] | None] = {}
        self._walked: dict[int, tuple[ReadSet, range]] = {}

    def changes(self, told: Iterable[Reads]) -> frozenset[int]:
        """Return the indices of the changes that the program does not read.

        Args:
            told: of all runs that count; a version counts once each of its runs has told all that it read.
        """
        if not self._num:
            return frozenset()
        reads = _by_version(told)
        found = {idx for version, item in reads.items() for idx in self._walk(version, item)}
        return frozenset(found.union(self._documentation(reads)))

    def _walk(self, version: int, reads: ReadSet) -> range:
        """Return the changes around a version that its program does not read."""
        if version > self._num or not reads.is_complete:
            return range(0)
        if version not in self._walked or self._walked[version][0] != reads:
            reader = Reader(reads, targets=self._targets)

            def is_unread(idx: int) -> bool:
                files = self._files_of(idx)
                return files is not None and reader.is_untouched(files)

            up = range(version, min(self._num, version + MAX_WALK))
            down = range(version - 1, max(-1, version - 1 - MAX_WALK), -1)
            num_up, num_down = (sum(1 for _ in takewhile(is_unread, way)) for way in (up, down))
            self._walked[version] = (reads, range(version - num_down, version + num_up))
        return self._walked[version][1]

    def _documentation(self, reads: Mapping[int, ReadSet]) -> list[int]:
        """Return the changes of documentation only, where both ends are known to read none."""
        ends = [reads.get(version) for version in (0, self._num)]
        if self._num > MAX_WHOLE or self._num != len(self._space.commits.commits):
            return []
        readers = [Reader(item, targets=self._targets) for item in ends if item is not None and item.is_complete]
        if len(readers) < len(ends) or any(reader.has_read_prose for reader in readers):
            return []
        self._load(0, self._num)
        return [idx for idx in range(self._num) if _is_documented(self._steps[idx], readers)]

    def _files_of(self, idx: int) -> tuple[FileChange, ...] | None:
        if idx not in self._steps:
            is_going_on = idx - 1 in self._steps or idx + 1 in self._steps
            size = BLOCK * LONG_BLOCKS if is_going_on else BLOCK
            first = idx - idx % size
            self._load(first, min(self._num, first + size))
        return self._steps[idx]

    def _load(self, first: int, last: int) -> None:
        missing = [idx for idx in range(first, last) if idx not in self._steps]
        if missing:
            self._steps |= zip(range(first, last), self._space.file_changes(first, last), strict=True)


def _is_documented(files: tuple[FileChange, ...] | None, readers: Sequence[Reader]) -> bool:
    return files is not None and all(map(is_documentation, files)) and all(reader.is_untouched(files) for reader in readers)


def _by_version(told: Iterable[Reads]) -> dict[int, ReadSet]:
    """Return what all runs of each version read together."""
    runs: dict[int, list[ReadSet | None]] = {}
    for point, reads in told:
        if point.is_prefix and point.prefix >= 0:
            runs.setdefault(point.prefix, []).append(reads)
    return {version: unite(items) for version, items in runs.items()}
