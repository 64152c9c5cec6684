"""Changes of values such as JSON gives: a wrong type at any place, keys gone, doubled or foreign, numbers beyond any range."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

Random = random.Random
Path = tuple[Any, ...]


def _nested(depth: int) -> Any:
    value: Any = 1
    for idx in range(depth):
        value = [value] if idx % 2 else {"a": value}
    return value


STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 10**6, 2**31, 2**63, 2**64, -(2**70), 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324),
    *(math.nan, math.inf, -math.inf, "", " ", "a", "0", "-1", "nan", "1e5", "null", "\0", "\n", "\ud800", "\udcff", "\u202e"),
    *("x" * 300, "../../etc/passwd", "/", "--flag", "{config}", "${a}", "@", "=", "é", "\x1b[31m", "[]", "{}", "a.b.c", "%s"),
    *([], {}, [[]], [{}], {"": None}, {"a": {"b": {}}}, [None], [1, "a", None, [], {}], ["a"], [0], {"a": 1}, _nested(40)),
    *(["x"] * 40, {str(idx): idx for idx in range(40)}, "2024-13-45", "good", "bad", "end", "v1", "0" * 40, "f" * 40),
)


def change_value(rng: Random, value: Any, others: Sequence[Any] = ()) -> Any:
    """Return a copy of a value with one to four changes."""
    value = _copy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        value = _changed(rng, value, others)
    return value


def json_text(rng: Random, value: Any) -> str:
    """Return a value as JSON text: NaN and lone surrogates as Python writes them, at times a key twice."""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.7, default=str)
    if rng.random() < 0.05 and isinstance(value, dict) and value:
        key = rng.choice(list(value))
        text = text[:-1] + f", {json.dumps(str(key))}: {json.dumps(rng.choice(STRANGE))}}}"
    return text


def toml_text(value: Any) -> str:
    """Return a mapping as TOML, tables below the first level inline; what TOML has no word for is left out."""
    value = value if isinstance(value, dict) else {"package": value}
    return "".join(f"{json.dumps(str(key))} = {_toml(item)}\n" for key, item in value.items() if item is not None)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items() if item is not None) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value if item is not None) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, (list, tuple)) else value


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*path, key))


def _changed(rng: Random, value: Any, others: Sequence[Any]) -> Any:
    path = rng.choice(list(_places(value))[:2000])
    new = rng.choice(STRANGE)
    if others and rng.random() < 0.2:
        other = rng.choice(others)
        new = _copy(_at(other, rng.choice(list(_places(other))[:2000])))
    if not path:
        return value if rng.random() < 0.8 else _copy(new)
    parent, key = _at(value, path[:-1]), path[-1]
    match rng.randrange(8):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[rng.choice(("", "a", "type", "\ud800", "x" * 200, "é", str(key) + " ", str(key).upper()))] = parent.pop(key)
        case 1:
            parent.insert(key, _copy(new))
        case 2 if isinstance(parent, dict):
            parent[rng.choice(("", "a", "b", "extra", str(key) + "s"))] = _copy(new)
        case 2:
            parent.append(_copy(parent[key]))
        case 3:
            parent[key] = [parent[key]] if rng.random() < 0.5 else {"a": parent[key]}
        case 4 if isinstance(parent[key], str):
            parent[key] = parent[key][: rng.randrange(len(parent[key]) + 1)] + str(rng.choice(STRANGE))[:400]
        case 5 if isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
            parent[key] = rng.choice((-parent[key], str(parent[key]), parent[key] + 1, 0, 1e300, 10**400, math.nan))
        case _:
            parent[key] = _copy(new)
    return value


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value
