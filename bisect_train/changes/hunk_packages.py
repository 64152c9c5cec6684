"""A hunk of a requirements file -> one hunk per package: lines beside each other are one hunk for git, not for a person.

Lines of the two versions are paired by the package that they name. Each pair, each new and each dropped line is a hunk of
its own, with its place in both files, so that a set of them is built as of any hunks. Where a line is no plain requirement
(an option, a hash, a continued line, a comment), or a package is named twice, the hunk stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bisect_train.changes.hunks import Hunk, splice
from bisect_train.core.changes import Change, ChangeKind


def is_requirements(path: str) -> bool:
    """Return whether a file's name says that it lists requirements, one a line."""
    place = PurePosixPath(path)
    if place.suffix not in (".txt", ".in"):
        return False
    return any(word in place.stem for word in ("requirements", "constraints")) or place.parent.name == "requirements"


def list_of_piece(change: Change) -> str:
    """Return the file whose line of one package a change inside a commit is, "" for any other change."""
    path, _, name = change.id.rpartition(":")
    is_line = change.kind is ChangeKind.HUNK and is_requirements(path) and "," not in name
    return path if is_line else ""


def split_by_package(hunks: Sequence[Hunk], old: list[bytes], new: list[bytes]) -> tuple[tuple[str, Hunk], ...]:
    """Return hunks with the package that each is about, "" for one that stays whole.

    Args:
        hunks: of a requirements file.
        old, new: lines of its two versions, of `split_lines`.
    """
    parts = [part for hunk in hunks for part in _split(hunk, old, new)]
    names = [name for name, _ in parts if name]
    if len(set(names)) < len(names) or splice(old, new, [hunk for _, hunk in parts]) != splice(old, new, hunks):
        return tuple(("", hunk) for hunk in hunks)
    return tuple(parts)


def _split(hunk: Hunk, old: list[bytes], new: list[bytes]) -> list[tuple[str, Hunk]]:
    left, right = _names_of(old[hunk.old_span]), _names_of(new[hunk.new_span])
    if left is None or right is None or len({*left, *right}) < 2 or len(set(left)) < len(left) or len(set(right)) < len(right):
        return [("", hunk)]
    return [part for part in _pairs(hunk, left, right) if old[part[1].old_span] != new[part[1].new_span]]


def _pairs(hunk: Hunk, left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, Hunk]]:
    """Yield each package's lines in both versions, as a hunk; a line that is new lies before those that it comes with."""
    old_first, new_first = hunk.old_span.start + 1, hunk.new_span.start + 1
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        olds, news = range(old_start, old_end), range(new_start, new_end)
        if tag == "equal":
            pairs = zip(olds, news, strict=True)
            yield from ((left[idx], Hunk(old_first + idx, 1, new_first + other, 1)) for idx, other in pairs)
            continue
        yield from ((right[idx], Hunk(old_first + old_start - 1, 0, new_first + idx, 1)) for idx in news)
        yield from ((left[idx], Hunk(old_first + idx, 1, new_first + new_start - 1, 0)) for idx in olds)


def _names_of(lines: Iterable[bytes]) -> list[str] | None:
    """Return the package of each line, None where one is no plain requirement."""
    names: list[str] = []
    for line in lines:
        try:
            text = line.decode().partition(" #")[0].strip()
            names.append(canonicalize_name(Requirement(text).name))
        except (UnicodeDecodeError, InvalidRequirement):
            return None
    return names
