"""Which files of a run a glob names: in its checkout and its output folder, never outside, only those that it wrote.

Links are followed where they stay inside; those that lead out are refused, and told. What had been there before the program
started and is unchanged (a `metrics.csv` that git tracks, say) is no result of it.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

OUT = "{out}"
MAX_NAMES = 4  # of one folder, by links to it: folders full of links to each other would never end
MAX_FILES = 200_000
"""Files of a folder that are looked at."""

_SKIPPED = (".git", "__pycache__")
_MAX_DEPTH = 24
_State = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a glob names: where it lies, and how it is told (`runs/a.csv`, `{out}/a.csv`)."""

    path: Path
    shown: str


@dataclass(frozen=True, slots=True)
class Found:
    """What globs name.

    Attributes:
        files: written by the run, by name.
        unchanged: that were there before it, as they are told.
        outside: links that lead out, as they are told.
    """

    files: tuple[FoundFile, ...] = ()
    unchanged: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


def find_files(folders: Sequence[tuple[Path, str]], globs: Sequence[str], before: dict[str, _State]) -> Found:
    """Return the files that any of the globs names.

    Args:
        folders: (folder, how it is told: "" for the checkout, `{out}`); a glob that begins with `{out}/` is looked for there
            alone.
        globs: relative; `**` stands for any folders.
        before: what `states_of` gave before the program started.
    """
    files: dict[str, FoundFile] = {}
    unchanged, outside = [], []
    for folder, named in folders:
        wanted = [glob.removeprefix(f"{OUT}/").split("/") for glob in globs if named == OUT or not glob.startswith(f"{OUT}/")]
        for parts, path, is_out in _walk(folder) if wanted else ():
            shown = "/".join((named, *parts) if named else parts)
            if is_out:
                outside += [shown] if any(is_match(parts[:1], glob[:1]) for glob in wanted if glob[0] != "**") else []
            elif any(is_match(parts, glob) for glob in wanted):
                state = _state_of(path)
                if state is None or before.get(str(path)) == state:
                    unchanged += [shown] if state else []
                elif str(path) not in files or path.parts[-len(parts) :] == parts:  # its own name rather than a link's
                    files[str(path)] = FoundFile(path, shown)
    return Found(tuple(sorted(files.values(), key=lambda item: item.shown)), tuple(sorted(unchanged)), tuple(sorted(outside)))


def states_of(folders: Sequence[tuple[Path, str]]) -> dict[str, _State]:
    """Return size and time of change of every file in these folders."""
    found = {}
    for folder, _ in folders:
        for _parts, path, is_out in _walk(folder):
            state = None if is_out else _state_of(path)
            if state is not None:
                found[str(path)] = state
    return found


def is_match(parts: Sequence[str], glob: Sequence[str]) -> bool:
    """Return whether the parts of a path match those of a glob; `**` matches any number of folders."""
    if not glob:
        return not parts
    if glob[0] == "**":
        return any(is_match(parts[idx:], glob[1:]) for idx in range(len(parts) + (len(glob) == 1)))
    return bool(parts) and fnmatchcase(parts[0], glob[0]) and is_match(parts[1:], glob[1:])


def _walk(folder: Path) -> Iterator[tuple[tuple[str, ...], Path, bool]]:
    """Yield (parts below the folder, real path, whether it is a link that leads out); of links out only the link itself."""
    real_root = Path(os.path.realpath(folder))
    waiting: list[tuple[tuple[str, ...], Path]] = [((), real_root)]
    linked: list[tuple[tuple[str, ...], Path]] = []  # after the folders themselves, so that these have their own names
    num_files, num_visits = 0, Counter[Path]()
    while (waiting or linked) and num_files < MAX_FILES:
        parts, path = waiting.pop() if waiting else linked.pop(0)
        num_visits[path] += 1
        if num_visits[path] > MAX_NAMES:
            continue
        for entry in _entries(path):
            at = (*parts, entry.name)
            real = Path(entry.path)
            if entry.is_symlink():
                real = Path(os.path.realpath(entry.path))
                if not real.is_relative_to(real_root):
                    yield at, real, True
                    continue
                if path.is_relative_to(real):  # a loop
                    continue
            if _is_folder(real):
                if entry.name not in _SKIPPED and len(at) < _MAX_DEPTH:
                    (linked if entry.is_symlink() else waiting).append((at, real))
            else:
                num_files += 1
                yield at, real, False


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:  # removed meanwhile
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
    except OSError:  # removed meanwhile, or not readable
        return []


def _state_of(path: Path) -> _State | None:
    """Return what tells whether a regular file was written; None for what is none (a pipe would never end)."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None
