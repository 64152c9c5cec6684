"""Keys of recipes that have another name now, or are gone: read under the old name for a while, then refused by name.

A key that is renamed or removed gets an entry in `RENAMED`, never a silent change: recipes lie in other people's repositories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from bisect_train.core.errors import RecipeError

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class RenamedKey:
    """A key that was renamed or removed.

    Attributes:
        old: dotted path under which recipes had it.
        new: dotted path of what took its place, "" where nothing did.
        since: first version that knows the new name, or does without the key.
        removed: first version that no longer reads the old name.
    """

    old: str
    new: str
    since: str
    removed: str


RENAMED: tuple[RenamedKey, ...] = ()
"""None so far: every key of version 0.1.0 still has its name."""


def follow_renames(
    path: Path, data: dict[str, Any], lines: dict[Place, int], *, version: str, table: Sequence[RenamedKey] = RENAMED
) -> tuple[str, ...]:
    """Move what stands under old names to the new ones, in `data` and `lines`; return one warning for each.

    Args:
        path: of the recipe, for messages.
        data: what it says.
        lines: of its keys.
        version: of the program.
    Raises:
        RecipeError: an old name that is no longer read, or that stands beside the new one.
    """
    return tuple(_follow(path, data, lines, key, version) for key in table if _is_in(data, key.old))


def _follow(path: Path, data: dict[str, Any], lines: dict[Place, int], key: RenamedKey, version: str) -> str:
    where = f"{path}, line {lines.get(_steps(key.old), 1)}"
    instead = f"write `{key.new}`" if key.new else "take it out: nothing has its place"
    if Version(version) >= Version(key.removed):
        raise RecipeError(f"{where}: the key {key.old} is not read any more since version {key.removed}", hint=instead)
    if key.new and _is_in(data, key.new):
        raise RecipeError(f"{where}: {key.old} is the old name of {key.new}, and both are there", hint=f"keep `{key.new}`")
    value = _take(data, key.old)
    if key.new:
        _put(data, key.new, value)
        _move_lines(lines, _steps(key.old), _steps(key.new))
    what = f"is called {key.new} since version {key.since}" if key.new else f"has no effect since version {key.since}"
    return f"{where}: the key {key.old} {what}; {instead}, from version {key.removed} on the old one is an error"


def _steps(dotted: str) -> Place:
    return tuple(dotted.split("."))


def _holder(data: dict[str, Any], dotted: str) -> dict[str, Any] | None:
    """Return the mapping that a key would stand in, None where there is none."""
    held: Any = data
    for step in dotted.split(".")[:-1]:
        held = held.get(step) if isinstance(held, dict) else None
    return held if isinstance(held, dict) else None


def _is_in(data: dict[str, Any], dotted: str) -> bool:
    holder = _holder(data, dotted)
    return holder is not None and dotted.rpartition(".")[2] in holder


def _take(data: dict[str, Any], dotted: str) -> Any:
    """Return a value and take its key out, with the mappings that are empty then."""
    holder = _holder(data, dotted)
    assert holder is not None
    value = holder.pop(dotted.rpartition(".")[2])
    above = dotted.rpartition(".")[0]
    if above and not holder:
        _take(data, above)
    return value


def _put(data: dict[str, Any], dotted: str, value: Any) -> None:
    *above, last = dotted.split(".")
    for step in above:
        held = data.get(step)
        data[step] = held if isinstance(held, dict) else {}
        data = data[step]
    data[last] = value


def _move_lines(lines: dict[Place, int], old: Place, new: Place) -> None:
    line = lines.get(old, 1)
    for num in range(1, len(new)):
        lines.setdefault(new[:num], line)
    for place in [place for place in lines if place[: len(old)] == old]:
        lines[(*new, *place[len(old) :])] = lines[place]
