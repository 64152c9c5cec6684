"""Paths into plain config values: how a key is written, compared, set and removed.

A config is plain data: mappings, lists and scalars. A path is a tuple of mapping keys and list indices; its text is
what reports, overrides and `--set` use:

    optimizer.lr          mapping keys, joined by dots
    optimizer.betas[1]    list index
    data."my.set"         a key with a dot or another special character is quoted like a JSON string
    labels.<3>            a key that is not text (YAML allows numbers, null, dates)
    [0].optimizer.lr      in a file of several YAML documents the first step is the document's number
    documents             the path of no steps: the file as a whole

Must not know file formats (`config_formats`) nor what is a change (`config`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Final

Path = tuple[Any, ...]


class _Absent:
    """The value of a key that is not there; not the same as null."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is known by its source text only, such as a call in a Python file.

    Attributes:
        source: what is compared.
        imports: the import statements that the source needs; compared too.
        whole: the text of the file that the source belongs to, if it is more than one value; not compared.
    """

    source: str
    imports: tuple[str, ...] = ()
    whole: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return self.source


_PLAIN_KEY = re.compile(r"[^\s.\[\]\"<>{}=]+")
_MAX_NODES = 1_000_000  # a YAML file of a few lines can stand for billions of nodes (aliases of aliases)


def plain_copy(values: Any) -> Any:
    """Return an unshared copy of loaded config values: dict, list and scalars (YAML aliases are written out).

    Raises:
        ValueError: the value holds itself, or stands for more than a million nodes.
    """
    budget = [_MAX_NODES]
    return _copy(values, inside=(), budget=budget)


def _copy(value: Any, *, inside: tuple[int, ...], budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError(f"its aliases stand for more than {_MAX_NODES:,} values")
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in inside:
        raise ValueError("an alias refers to itself")
    inside = (*inside, id(value))
    if isinstance(value, dict):
        return {key: _copy(item, inside=inside, budget=budget) for key, item in value.items()}
    return [_copy(item, inside=inside, budget=budget) for item in value]


def is_same(left: Any, right: Any) -> bool:
    """Return whether two config values are the same to a program: 1, 1.0 and True differ, NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, float) and left != left:
        return bool(right != right)
    return bool(left == right)


def leaves_of(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of the leaves below a value: scalars, lists and empty mappings."""
    if not isinstance(value, dict) or not value:
        yield path
        return
    for key, item in value.items():
        yield from leaves_of(item, (*path, key))


def paths_of(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield every path below a value: sections, leaves and list items."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, (*path, key))
    elif isinstance(value, list):
        for idx, item in enumerate(value):
            yield from paths_of(item, (*path, idx))


def get_at(values: Any, path: Path) -> Any:
    """Return the value at a path, or ABSENT."""
    for step in path:
        if isinstance(values, list):
            if not isinstance(step, int) or not 0 <= step < len(values):
                return ABSENT
        elif not isinstance(values, dict) or step not in values:
            return ABSENT
        values = values[step]
    return values


def set_at(values: Any, path: Path, value: Any) -> None:
    """Set the value at a path in place; mappings on the way are made where they are missing."""
    for step in path[:-1]:
        if isinstance(values, MutableMapping) and step not in values:
            values[step] = {}
        values = values[step]
    values[path[-1]] = value


def remove_at(values: Any, path: Path, *, gone: int) -> None:
    """Remove the key at a path in place, and the sections that this empties.

    Args:
        gone: number of steps of the shortest part of the path that the other config does not have either; sections
            shorter than that stay, empty or not.
    """
    parents = [values]
    for step in path[:-1]:
        parents.append(parents[-1][step])
    for depth in range(len(path), gone - 1, -1):
        parent = parents[depth - 1]
        del parent[path[depth - 1]]
        if isinstance(parent, MutableSequence) or len(parent):
            return


def path_text(path: Path, values: Any) -> str:
    """Return the text of a path; `values` tells a list index from a key that is a number."""
    text = "" if path else "documents"
    for step in path:
        if isinstance(values, list):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + _key_text(step)
        values = get_at(values, (step,))
    return text


def _key_text(key: Any) -> str:
    if not isinstance(key, str):
        return f"<{scalar_text(key)}>"
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def has_plain_path(path: Path) -> bool:
    """Return whether every step is a key that programs understand in a dotted override."""
    return bool(path) and all(isinstance(step, str) and _PLAIN_KEY.fullmatch(step) for step in path)


def scalar_text(value: Any) -> str:
    """Return a value as text: strings as they are, True, False, null, lists and mappings as JSON."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(_with_text_keys(value), default=scalar_text)
    if isinstance(value, set):
        return "{" + ", ".join(sorted(map(scalar_text, value))) + "}"
    return repr(value) if isinstance(value, (bool, int, float)) else str(value)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {scalar_text(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
