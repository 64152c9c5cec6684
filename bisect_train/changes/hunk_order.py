"""Which parts of a commit need which, read off the names that they define, remove and use; and an order that respects it.

A part that begins to use a new name comes after the part that brings it; a part that takes a name away comes after the parts
that stop using it; where a definition moves, it is there twice before it is there once. So the first k parts are mostly a
state that runs: of 42 such states of larger commits of this project, 25 lacked a name or module that they use where the parts
came by path and line, and 5 do in this order. Parts that need each other in a ring (a function is renamed in one hunk, its
calls in others) form a group: they stay together, in the commit's order. What Python files say counts, and config keys and
files that come or go; other languages are not read. A method or keyword of the same name in another file is a guess: it is
dropped where it would close a ring.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from bisect_train.changes.config_paths import ABSENT, get_at
from bisect_train.changes.hunk_files import FileChange, Part
from bisect_train.changes.hunk_names import ModuleNames, Name, Places, module_name
from bisect_train.changes.hunks import Hunk

MAX_READ_BYTES = 8 * 2**20
"""Of all files of a commit, both versions: more (a reformatted project) would take half a minute to read for names."""

_SHARED = frozenset({"attribute", "keyword", "key", "module"})
"""Kinds of names that mean the same in all files: new only if no file of the commit had it before."""

Edges = set[tuple[int, int]]
"""Part, and a part that it needs."""


@dataclass(slots=True)
class Facts:
    """What a part does to names.

    Attributes:
        brings, removes: names that the file, or what is imported, has only after the commit, or only before it.
        uses, unuses: names on its new and on its old lines.
        gives, takes: names of the file whose only definition is moved to its lines, and away from them.
    """

    brings: set[Name] = field(default_factory=set)
    removes: set[Name] = field(default_factory=set)
    uses: set[Name] = field(default_factory=set)
    unuses: set[Name] = field(default_factory=set)
    gives: set[Name] = field(default_factory=set)
    takes: set[Name] = field(default_factory=set)


def needs_of(files: Sequence[FileChange], parts: Sequence[tuple[int, Part]]) -> list[set[int]]:
    """Return for each part the parts that it needs.

    Args:
        files: that a commit touches.
        parts: file index and part.
    """
    is_read = sum(len(file.old) + len(file.new) for file in files) <= MAX_READ_BYTES
    sides = [_FileNames(file, idx, is_read=is_read) for idx, file in enumerate(files)]
    had = {name for side in sides for name in side.old_defined if name[0] in _SHARED}
    has = {name for side in sides for name in side.new_defined if name[0] in _SHARED}
    facts = [_facts_of(sides[idx], part) for idx, part in parts]
    sure: Edges = {(idx, other) for idx in range(len(parts)) for other in _blockers(files, parts, idx)}
    givers = _by_name([fact.gives for fact in facts])
    sure |= {(idx, other) for idx, fact in enumerate(facts) for name in fact.takes for other in givers.get(name, ())}
    guessed: Edges = set()
    for idx, other, name in _ties(facts, [idx for idx, _ in parts], had=had, has=has):
        is_guess = parts[idx][0] != parts[other][0] and name[0] in _SHARED - {"module"}
        (guessed if is_guess else sure).add((idx, other))
    return _join(sure, guessed, len(parts))


def _ties(facts: Sequence[Facts], homes: Sequence[int], *, had: set[Name], has: set[Name]) -> Iterator[tuple[int, int, Name]]:
    """Yield a part, one that it needs, and the name: a use and what brings it, a removal and what stops using it."""
    bringers = _by_name([fact.brings - had for fact in facts])
    removers = _by_name([fact.removes - has for fact in facts])
    for idx, fact in enumerate(facts):
        for name in fact.uses:
            yield from ((idx, other, name) for other in _meant(name, bringers, homes, homes[idx]))
        for name in fact.unuses:
            yield from ((other, idx, name) for other in _meant(name, removers, homes, homes[idx]))


def _meant(name: Name, parts_of: Mapping[Name, list[int]], homes: Sequence[int], home: int) -> list[int]:
    """Return the parts whose name a use means; of a name that several files have its own file's, or none if it has none."""
    found = parts_of.get(name, [])
    if name[0] in _SHARED and len({homes[idx] for idx in found}) > 1:
        return [idx for idx in found if homes[idx] == home]
    return found


def _join(sure: Edges, guessed: Edges, num: int) -> list[set[int]]:
    """Return what each part needs: what is sure, and guesses that close no ring or are guessed both ways (a renamed method)."""
    needs: list[set[int]] = [set() for _ in range(num)]
    mutual = {(idx, other) for idx, other in guessed if (other, idx) in guessed}
    for idx, other in sure | mutual:
        if idx != other:
            needs[idx].add(other)
    for idx, other in sorted(guessed - mutual):
        if not _reaches(needs, other, idx):
            needs[idx].add(other)
    return needs


def _reaches(needs: Sequence[set[int]], start: int, goal: int) -> bool:
    """Return whether a part needs another one, directly or not."""
    seen, todo = {start}, [start]
    while todo:
        for need in needs[todo.pop()] - seen:
            if need == goal:
                return True
            seen.add(need)
            todo.append(need)
    return start == goal


def order_of(needs: Sequence[set[int]]) -> list[int]:
    """Return the parts in an order in which none comes before one that it needs, rings aside; else as they were."""
    groups = groups_of(needs)
    group_of = {idx: number for number, group in enumerate(groups) for idx in group}
    waits = [{group_of[need] for idx in group for need in needs[idx]} - {number} for number, group in enumerate(groups)]
    waiting: dict[int, list[int]] = {}
    for number, wait in enumerate(waits):
        for other in wait:
            waiting.setdefault(other, []).append(number)
    ready = [number for number, wait in enumerate(waits) if not wait]
    order: list[int] = []
    while ready:  # groups are numbered by their first part, and the heap keeps that
        done = heapq.heappop(ready)
        order += groups[done]
        for number in waiting.get(done, ()):
            waits[number].discard(done)
            if not waits[number]:
                heapq.heappush(ready, number)
    return order


def groups_of(needs: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """Return the parts in groups that need each other, each sorted, by their first part; most have one member."""
    reach = [1 << idx | sum(1 << need for need in direct) for idx, direct in enumerate(needs)]
    rows = [idx for idx, direct in enumerate(needs) if direct]
    for middle in rows:  # Warshall's closure: bit j of reach[i] says that i needs j, directly or not
        for idx in rows:
            if reach[idx] >> middle & 1:
                reach[idx] |= reach[middle]
    groups: dict[int, list[int]] = {}
    for idx, direct in enumerate(needs):
        mates = (other for other in rows if other < idx and reach[idx] >> other & 1 and reach[other] >> idx & 1)
        groups.setdefault(next(mates, idx) if direct else idx, []).append(idx)
    return [tuple(group) for group in groups.values()]


class _FileNames:
    """The names of both versions of a file, each with its lines; those of one file alone carry its index."""

    def __init__(self, file: FileChange, idx: int, *, is_read: bool) -> None:
        self.file = file
        old = _names_of(file.before.path, file.old) if file.before and is_read else None
        new = _names_of(file.after.path, file.new) if file.after and is_read else None
        # a version that cannot be read says nothing about the other one
        is_known = (old or not file.before) and (new or not file.after)
        self.old_defined = _tag(old.defined if old and is_known else {}, idx)
        self.new_defined = _tag(new.defined if new and is_known else {}, idx)
        self._defined_at = _by_line(self.old_defined), _by_line(self.new_defined)
        self._used_at = tuple(_by_line(_tag(side.used if side and is_known else {}, idx)) for side in (old, new))

    @cached_property
    def moved(self) -> set[Name]:
        """Names that both versions define, and no line that they share does."""
        gone = {line for part in self.file.parts if part.hunk for line in _lines_of(part.hunk.old_span)}
        both = (name for name in self.old_defined.keys() & self.new_defined.keys() if name[0] not in _SHARED)
        return {name for name in both if self.old_defined[name] <= gone}

    def facts_of(self, hunk: Hunk | None) -> Facts:
        """Return what the lines of a hunk do; of None, of a whole new or deleted file, all lines."""
        spans = (hunk.old_span, hunk.new_span) if hunk else (None, None)
        gone, defined = (_within(at, span) for at, span in zip(self._defined_at, spans, strict=True))
        unused, used = (_within(at, span) for at, span in zip(self._used_at, spans, strict=True))
        return Facts(
            brings=defined - self.old_defined.keys(),
            removes=gone - self.new_defined.keys(),
            uses=used,
            unuses=unused,
            gives=(defined - gone) & self.moved,
            takes=(gone - defined) & self.moved,
        )


def _tag(places: Places, idx: int) -> Places:
    return {(name if name[0] in _SHARED | {"export"} else (*name, f"file {idx}")): lines for name, lines in places.items()}


def _by_line(places: Places) -> dict[int, set[Name]]:
    found: dict[int, set[Name]] = {}
    for name, lines in places.items():
        for line in lines:
            found.setdefault(line, set()).add(name)
    return found


def _lines_of(span: slice) -> range:
    """Return the lines of a slice, counted from 1."""
    return range(span.start + 1, span.stop + 1)


def _within(names_at: dict[int, set[Name]], span: slice | None) -> set[Name]:
    lines = names_at if span is None else _lines_of(span)
    return {name for line in lines for name in names_at.get(line, ())}


def _names_of(path: str, source: bytes) -> ModuleNames | None:
    if not path.endswith(".py"):
        return None
    try:
        return ModuleNames(source, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _by_name(names: Sequence[set[Name]]) -> Mapping[Name, list[int]]:
    found: dict[Name, list[int]] = {}
    for idx, group in enumerate(names):
        for name in group:
            found.setdefault(name, []).append(idx)
    return found


def _facts_of(side: _FileNames, part: Part) -> Facts:
    if part.key:
        return _facts_of_key(side.file, part.key)
    # of a file that is taken apart, the name's own part has no lines
    facts = side.facts_of(part.hunk) if part.hunk or len(side.file.parts) == 1 else Facts()
    if part.hunk is None:
        before, after = side.file.before, side.file.after
        gone, come = (_file_names(entry.path) if entry else set() for entry in (before, after))
        facts.brings |= come - gone
        facts.removes |= gone - come
    return facts


def _facts_of_key(file: FileChange, key: str) -> Facts:
    """Return what a config key's change means: a new key is there for code that reads it, a removed one was."""
    facts = Facts()
    if file.config is None:
        return facts
    for change, edit in zip(file.config.changes, file.config.edits, strict=True):
        if change.id == key and edit.value is ABSENT:
            facts.removes.add(("key", str(edit.path[-1])))
        elif change.id == key and get_at(file.config.parsed.values, edit.path) is ABSENT:
            facts.brings.add(("key", str(edit.path[-1])))
    return facts


def _file_names(path: str) -> set[Name]:
    """Return the names by which code may mean a file."""
    names: set[Name] = {("key", PurePosixPath(path).name)}
    return names | {("module", module_name(path))} if path.endswith(".py") else names


def _blockers(files: Sequence[FileChange], parts: Sequence[tuple[int, Part]], idx: int) -> set[int]:
    """Return the parts that must go before a file or folder can be made where another file or folder is."""
    file, part = files[parts[idx][0]], parts[idx][1]
    if part != Part() or file.after is None:
        return set()
    found = set()
    for other, (number, other_part) in enumerate(parts):
        before = files[number].before
        is_gone = before is not None and (files[number].after is None or files[number].is_moved)
        if other_part == Part() and is_gone and before and _is_in_way(before.path, file.after.path):
            found.add(other)
    return found


def _is_in_way(left: str, right: str) -> bool:
    return left.startswith(f"{right}/") or right.startswith(f"{left}/")
