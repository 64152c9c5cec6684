"""What turns one config's values into another's: one edit per leaf key, and the change that stands for it.

deepdiff finds where two configs differ; what counts as one change is decided here (see `config`). Must not know file
formats.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deepdiff import DeepDiff

from bisect_train.changes.config_paths import (
    ABSENT,
    Opaque,
    Path,
    get_at,
    leaves_of,
    path_text,
    paths_of,
    plain_copy,
    remove_at,
    scalar_text,
    set_at,
)
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.secrets import HIDDEN, is_secret_key, mask_value

_MAX_TITLE = 60  # characters of one value in a title


@dataclass(frozen=True, slots=True)
class Edit:
    """One key's new value; ABSENT removes it.

    Attributes:
        path: of the key; () is the file as a whole.
        value: the new value, or ABSENT.
        gone: for a removal, see `remove_at`.
    """

    path: Path
    value: Any
    gone: int = 0


def apply_edits(values: Any, edits: Sequence[Edit]) -> Any:
    """Return a copy of config values with edits applied."""
    result = plain_copy(values)
    for edit in edits:
        if not edit.path:
            result = plain_copy(edit.value)
    apply_in_place(result, [edit for edit in edits if edit.path])
    return result


def apply_in_place(values: Any, edits: Sequence[Edit]) -> None:
    """Apply edits to a mapping or a document that behaves like one; none of them may be of the file as a whole."""
    for edit in edits:
        if edit.value is ABSENT:
            remove_at(values, edit.path, gone=edit.gone)
        else:
            set_at(values, edit.path, plain_copy(edit.value))


def find_edits(good: Any, bad: Any, *, whole_lists: bool = False) -> tuple[Edit, ...]:
    """Return the edits that turn one config's values into another's, in the good one's order, new keys last.

    Args:
        good, bad: mappings, or lists of them (several documents).
        whole_lists: never take a list apart.
    """
    return tuple(_edits(good, bad, whole_lists=whole_lists))


def _edits(good: Any, bad: Any, *, whole_lists: bool) -> Iterator[Edit]:
    places = {_cut(path, good, bad, whole_lists=whole_lists) for path in _differing(good, bad)}
    order: dict[Path, int] = {(): 0}
    for path in [*paths_of(good), *paths_of(bad)]:
        order.setdefault(path, len(order))
    for path in sorted(places, key=lambda place: order[place]):
        old, new = get_at(good, path), get_at(bad, path)
        if old is ABSENT:
            yield from (Edit(leaf, get_at(bad, leaf)) for leaf in leaves_of(new, path))
        elif new is ABSENT:
            yield from (Edit(leaf, ABSENT, gone=len(path)) for leaf in leaves_of(old, path))
        else:
            yield Edit(path, new)


def _differing(good: Any, bad: Any) -> Iterator[Path]:
    """Yield where deepdiff sees a difference; it may go deeper than a change does."""
    tree = DeepDiff(
        _with_marked_text(good),
        _with_marked_text(bad),
        view="tree",
        ignore_nan_inequality=True,
        ignore_private_variables=False,  # by default keys that start with `__` are passed over
        zip_ordered_iterables=True,  # by default [1, 2, 3] -> [2, 3, 4] is one removed and one added
        threshold_to_diff_deeper=0,  # by default mappings with few keys in common are reported as a whole
    )
    for levels in tree.values():
        for level in levels:
            yield tuple(level.path(output_format="list"))


def _with_marked_text(value: Any) -> Any:
    """Return values with dates and opaque ones as marked text: deepdiff takes a time without a zone for one in UTC."""
    if isinstance(value, dict):
        return {key: _with_marked_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_marked_text(item) for item in value]
    return f"\0{value!r}" if isinstance(value, (datetime.date, datetime.time, Opaque)) else value


def _cut(path: Path, good: Any, bad: Any, *, whole_lists: bool) -> Path:
    """Return the part of a path down to the key that counts as one change."""
    for depth, step in enumerate(path):
        left, right = get_at(good, path[:depth]), get_at(bad, path[:depth])
        both_maps = isinstance(left, dict) and isinstance(right, dict)
        both_lists = isinstance(left, list) and isinstance(right, list)
        if both_maps:
            if (step in left) != (step in right):
                return path[: depth + 1]
        elif not both_lists or whole_lists or len(left) != len(right):
            return path[:depth]
    return path


def change_of(edit: Edit, good: Any, bad: Any) -> Change:
    """Return the change that an edit stands for, with its title."""
    old = get_at(good, edit.path)
    text = path_text(edit.path, bad if old is ABSENT else good)
    is_retyped = ABSENT not in (old, edit.value) and type(old) is not type(edit.value)
    left, right = (_title_text(_masked(text, value), is_typed=is_retyped) for value in (old, edit.value))
    return Change(ChangeKind.CONFIG, text, f"{text}: {left} -> {right}")


def _masked(path: str, value: Any) -> Any:
    """Return a value for a reader: what keys named as secrets hold, and logins in addresses, are hidden."""
    if isinstance(value, dict):
        return {key: _masked(f"{path}.{key}", item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(path, item) for item in value]
    if isinstance(value, str):
        return mask_value(path, value)
    is_hidden = value is not ABSENT and value is not None and is_secret_key(path, scalar_text(value))
    return HIDDEN if is_hidden else value


def _title_text(value: Any, *, is_typed: bool) -> str:
    text = repr(value) if value is ABSENT else " ".join(scalar_text(value).split())
    if len(text) > _MAX_TITLE:
        text = text[: _MAX_TITLE - 3] + "..."
    names = {"str": "text", "dict": "mapping", "NoneType": "null", "Opaque": "source"}
    kind = names.get(type(value).__name__, type(value).__name__)
    return f"{text} ({kind})" if is_typed and value is not None else text
