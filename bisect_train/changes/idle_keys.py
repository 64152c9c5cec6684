"""Config keys that a commit may have stopped reading: which ones, and files in which one of them has another value.

A key whose name stands in a line that the commit removed is a suspect. Whether it is still read is found out by running: where
another value changed the run before the commit and changes nothing since, nothing reads it any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.changes.config_edits import Edit, apply_edits
from bisect_train.changes.config_formats import config_kind_of, edited_text, parse_config
from bisect_train.changes.config_paths import get_at, leaves_of, path_text
from bisect_train.changes.plumbing import Git, decode
from bisect_train.changes.tree_files import read_file
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import ConfigEnd

MAX_SUSPECTS = 3


@dataclass(frozen=True, slots=True)
class Suspect:
    """A key that a commit may have stopped reading.

    Attributes:
        path: of the config file in the tree.
        key: its text.
        before, after: the files of the parent and of the commit, with another value of this key.
    """

    path: str
    key: str
    before: ConfigEnd
    after: ConfigEnd


def config_path_of(git: Git, commit: str, command: Sequence[str], named: str) -> str:
    """Return the config file in the tree that a command reads: the one named, else one that stands in it; "" without one.

    The first Python file of a command is the program, no config.
    """
    if named:
        return named
    program = next((part for part in command if part.endswith(".py")), "")
    for part in command:
        if part == program:
            continue
        path = part.partition("=")[2] if part.startswith("-") and "=" in part else part
        if config_kind_of(path) and read_file(git, commit, path) is not None:
            return path
    return ""


def suspects_of(git: Git, *, parent: str, commit: str, path: str) -> tuple[Suspect, ...]:
    """Return the keys of a config file whose names stand in lines that a commit removed from other files."""
    ends = [_end_of(git, revision, path) for revision in (parent, commit)]
    if None in ends:
        return ()
    before, after = (end for end in ends if end is not None)
    words = _removed_words(git, parent, commit, without=path)
    found = []
    for key, place in _scalars_of(after):
        if re.split(r"[.\[\]]", key.rstrip("]"))[-1].strip('"') in words:
            try:
                files = [_with_other_value(end, place) for end in (before, after)]
            except (RecipeError, LookupError):
                continue
            found.append(Suspect(path, key, files[0], files[1]))
    return tuple(found[:MAX_SUSPECTS])


def _end_of(git: Git, revision: str, path: str) -> ConfigEnd | None:
    text = read_file(git, revision, path)
    return None if text is None else ConfigEnd(path, FilePatch(path.rsplit("/", 1)[-1], text))


def _removed_words(git: Git, parent: str, commit: str, *, without: str) -> frozenset[str]:
    text = decode(
        git.run("diff", "-U0", "--no-color", "--no-ext-diff", parent, commit, "--", ".", f":(exclude,literal){without}")
    )
    lines = [line for line in text.splitlines() if line.startswith("-") and not line.startswith("---")]
    return frozenset(word for line in lines for word in re.findall(r"\w+", line))


def _scalars_of(end: ConfigEnd) -> Iterator[tuple[str, tuple[Any, ...]]]:
    try:
        values = parse_config(end).values
    except RecipeError:
        return
    for place in leaves_of(values, ()):
        if isinstance(get_at(values, place), (bool, int, float, str)):
            yield path_text(place, values), place


def _with_other_value(end: ConfigEnd, place: tuple[Any, ...]) -> ConfigEnd:
    parsed = parse_config(end)
    edit = Edit(place, _other(get_at(parsed.values, place)))
    apply_edits(parsed.values, [edit])  # raises where the key is not there
    return ConfigEnd(end.path, FilePatch(end.patch.name, edited_text(end, parsed, [edit])))


def _other(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 1.5 * value + 0.1 if isinstance(value, float) else f"{value}_other"
