"""Hydra compositions -> one change per leaf key of the resolved values, given as an override on Hydra's command line.

A composition is a config directory, the name of its primary config and overrides. Values are compared with all
interpolations resolved. An override can drag other keys along (`${lr}`, a whole section that is an interpolation); then
more overrides pin those, and the list is composed and compared before it is handed out. A pin writes out what its
interpolation gave, that of an environment variable included. Hydra is an optional extra and is imported here only.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bisect_train.changes.config_edits import Edit, apply_edits, change_of, find_edits
from bisect_train.changes.config_paths import ABSENT, get_at, is_same, path_text, plain_copy
from bisect_train.core.changes import Change
from bisect_train.core.errors import RecipeError, UnbuildableError
from bisect_train.core.secrets import mask_command

_KEY_PART = re.compile(r"[A-Za-z_$][\w$-]*|0|[1-9]\d*", re.ASCII)
_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w/.-]*", re.ASCII)
_WORDS = frozenset({"null", "true", "false", "inf", "nan"})  # unquoted they are no text
_MAX_PINS = 3  # rounds of overrides that pin what other overrides drag along


@dataclass(frozen=True, slots=True)
class HydraEnd:
    """One end: what `hydra.main` would compose.

    Attributes:
        config_dir: folder of the primary config.
        config_name: of the primary config, with or without `.yaml`.
        overrides: as on the command line.
        shown: what messages call the folder, "" for its path.
    """

    config_dir: Path
    config_name: str
    overrides: tuple[str, ...] = ()
    shown: str = ""

    @property
    def place(self) -> str:
        """The folder as messages name it."""
        return self.shown or str(self.config_dir)

    def compose(self, more: Sequence[str] = ()) -> dict[Any, Any]:
        """Return the values with more overrides. Raises RecipeError as `compose_hydra` does."""
        return compose_hydra(self.config_dir, self.config_name, (*self.overrides, *more), shown=self.shown)


@dataclass(frozen=True, slots=True)
class HydraDiff:
    """How two compositions differ.

    Attributes:
        good: the composition that overrides are laid over.
        values: what it gives.
        changes: one per leaf key of the resolved values that differs, new keys first and keys that go last; lists are never
            taken apart.
        edits: what each change does, in the order of `changes`.
    """

    good: HydraEnd
    values: dict[Any, Any]
    changes: tuple[Change, ...]
    edits: tuple[Edit, ...]

    def overrides(self, chosen: Iterable[Change | str]) -> tuple[str, ...]:
        """Return the overrides that, beside the good end's own, give the good end's values with the chosen changes.

        Args:
            chosen: changes, or their ids, in any order.
        Raises:
            ValueError: one of them is no change of this diff.
            UnbuildableError: no overrides give these values.
        """
        ids = {item if isinstance(item, str) else item.id for item in chosen}
        unknown = ids - {change.id for change in self.changes}
        if unknown:
            raise ValueError(f"no such config change: {', '.join(sorted(unknown))}")
        edits = [edit for change, edit in zip(self.changes, self.edits, strict=True) if change.id in ids]
        try:
            return _overrides_for(self.good, self.values, apply_edits(self.values, edits))
        except RecipeError as error:
            raise UnbuildableError(error.message, hint=error.hint) from None


def has_hydra() -> bool:
    """Return whether Hydra is installed."""
    return importlib.util.find_spec("hydra") is not None and importlib.util.find_spec("omegaconf") is not None


def compose_hydra(config_dir: Path, config_name: str, overrides: Sequence[str] = (), *, shown: str = "") -> dict[Any, Any]:
    """Return the values of a composition, interpolations resolved.

    Args:
        config_dir, config_name, overrides: see `HydraEnd`.
        shown: what messages call the folder, "" for its path.
    Raises:
        RecipeError: Hydra is not installed, there is no such config, or Hydra refuses the composition.
    """
    if not has_hydra():
        raise RecipeError("Hydra configs need the hydra-core package", hint='pip install "bisect-train[hydra]"')
    place = shown or str(config_dir)
    if not config_dir.is_dir():
        raise RecipeError(f"{place}: there is no such Hydra config directory", hint="give the folder of the primary config")
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(config_dir.resolve()), job_name="bisect_train", version_base=None):
            composed = compose(config_name.removesuffix(".yaml"), list(overrides))
            values = plain_copy(OmegaConf.to_container(composed, resolve=True))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(_without_folder(str(error), config_dir.resolve(), shown).split())
        given = f" with {shlex.join(mask_command(overrides))}" if overrides else ""
        raise RecipeError(
            f"{place}: Hydra cannot compose {config_name!r}{given}: {problem}",
            hint="look at what your program composes: run it with `--cfg job --resolve`",
        ) from None
    finally:
        GlobalHydra.instance().clear()
    if not isinstance(values, dict):
        raise RecipeError(
            f"{place}: {config_name!r} is no mapping of keys to values", hint="compare configs of keys and values"
        )
    return values


def _without_folder(text: str, folder: Path, shown: str) -> str:
    """Return what Hydra says with the folder as a person knows it; a copy of ours says nothing to anybody."""
    if not shown:
        return text
    return text.replace(folder.as_uri(), shown).replace(str(folder), shown)


def diff_hydra(good: HydraEnd, bad: HydraEnd) -> HydraDiff:
    """Return the changes between two compositions, as overrides of the good one.

    Raises:
        RecipeError: Hydra refuses an end, or no overrides of the good end give the bad one's values.
    """
    left, right = good.compose(), bad.compose()
    edits = tuple(sorted(find_edits(left, right, whole_lists=True), key=lambda edit: _turn(edit, left)))
    diff = HydraDiff(good, left, tuple(change_of(edit, left, right) for edit in edits), edits)
    _overrides_for(good, left, right)  # says now, not in the middle of a search, what cannot be given
    return diff


def _turn(edit: Edit, values: dict[Any, Any]) -> int:
    """Return when a change comes: new keys first, keys that go last.

    Another choice of a group (`optimizer=adam`) brings keys, changes some and takes others away; a program that is told to use
    the new ones must find them, and the old ones are in nobody's way.
    """
    if edit.value is ABSENT:
        return 2
    return int(get_at(values, edit.path) is not ABSENT)


def override_of(path: tuple[Any, ...], value: Any, values: Any) -> str:
    """Return one override: `key=value`, `+key=value` for a key that `values` lack, `~key` for ABSENT.

    Raises:
        RecipeError: Hydra's grammar has no way to write the key or the value.
    """
    if not all(isinstance(step, (str, int)) and _KEY_PART.fullmatch(str(step)) for step in path):
        raise RecipeError(
            f"the key {path_text(path, values)} cannot be given to Hydra as an override",
            hint="give this key the same value in both",
        )
    key = ".".join(map(str, path))
    if value is ABSENT:
        return f"~{key}"
    return f"{'+' if get_at(values, path) is ABSENT else ''}{key}={override_value(value)}"


def override_value(value: Any) -> str:
    """Return a value in Hydra's override grammar.

    Raises:
        RecipeError: there is no way to write it.
    """
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        return str(value).lower()
    if isinstance(value, str):
        return value if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(map(override_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_dict_key(key)}:{override_value(item)}" for key, item in value.items()) + "}"
    raise RecipeError(
        f"Hydra's overrides cannot hold the {type(value).__name__} {value!r}", hint="use numbers, text, lists, mappings"
    )


def _quoted(text: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    escaped = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", text)  # `${` without it is an interpolation
    quoted: str = QuotedString(escaped, Quote.single).with_quotes()
    return quoted


def _dict_key(key: Any) -> str:
    if isinstance(key, str):
        return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", key)
    return override_value(key)


def _overrides_for(good: HydraEnd, values: dict[Any, Any], wanted: dict[Any, Any]) -> tuple[str, ...]:
    """Return overrides that, beside the good end's own, give the values wanted; composes them to be sure.

    Args:
        good: the composition.
        values: what it gives.
        wanted: what it shall give.
    Raises:
        RecipeError: none were found.
    """
    composer = _Composer(good)
    problem: RecipeError | None = None
    for is_whole in (False, True):
        overrides: tuple[str, ...] = ()
        now = values
        try:
            for _ in range(_MAX_PINS):
                if is_same(now, wanted):
                    return overrides
                overrides += _more_overrides(composer, overrides, now, wanted, is_whole=is_whole)
                now = composer.compose(overrides)
            if is_same(now, wanted):
                return overrides
        except RecipeError as error:
            problem = error
    keys = ", ".join(path_text(edit.path, wanted) for edit in find_edits(values, wanted, whole_lists=True)[:5])
    raise RecipeError(
        f"{good.place}: no Hydra overrides of {good.config_name!r} give the new values of {keys}"
        + (f": {problem.message}" if problem else ""),
        hint="give both ends as plain YAML files: `--cfg job --resolve` prints them",
    )


def _more_overrides(
    composer: _Composer, given: tuple[str, ...], now: dict[Any, Any], wanted: dict[Any, Any], *, is_whole: bool
) -> tuple[str, ...]:
    """Return overrides for what still differs: leaf by leaf, but whole top-level keys where Hydra refuses that."""
    keys = [key for key in {**now, **wanted} if not is_same(now.get(key, ABSENT), wanted.get(key, ABSENT))]
    if is_whole:
        return tuple(item for key in keys for item in _whole_overrides(key, now, wanted))
    leaves = {key: tuple(_leaf_overrides(key, now, wanted)) for key in keys}
    together = tuple(item for items in leaves.values() for item in items)
    if composer.accepts((*given, *together)):
        return together
    return tuple(
        item
        for key, items in leaves.items()
        for item in (items if composer.accepts((*given, *items)) else _whole_overrides(key, now, wanted))
    )


class _Composer:
    """Composes one end with more overrides, each list once."""

    def __init__(self, end: HydraEnd) -> None:
        self._end = end
        self._known: dict[tuple[str, ...], dict[Any, Any] | RecipeError] = {}

    def compose(self, overrides: tuple[str, ...]) -> dict[Any, Any]:
        """Return the values.

        Raises:
            RecipeError: Hydra refuses the overrides.
        """
        if overrides not in self._known:
            try:
                self._known[overrides] = self._end.compose(overrides)
            except RecipeError as error:
                self._known[overrides] = error
        known = self._known[overrides]
        if isinstance(known, RecipeError):
            raise known
        return known

    def accepts(self, overrides: tuple[str, ...]) -> bool:
        """Return whether Hydra takes the overrides."""
        try:
            self.compose(overrides)
        except RecipeError:
            return False
        return True


def _leaf_overrides(key: Any, now: dict[Any, Any], wanted: dict[Any, Any]) -> Iterator[str]:
    """Yield an override per leaf below a top-level key that differs, and one per section that this leaves empty."""
    for edit in find_edits(now, {**now, key: wanted[key]} if key in wanted else _without(now, key), whole_lists=True):
        before, now = now, apply_edits(now, [edit])
        if edit.value is not ABSENT:
            yield override_of(edit.path, edit.value, before)
        else:
            yield from _removal(edit.path, before)
            parts = [edit.path[:depth] for depth in range(len(edit.path) - 1, edit.gone - 1, -1)]
            yield from (override_of(part, ABSENT, now) for part in parts if get_at(now, part) is ABSENT)


def _removal(path: tuple[Any, ...], now: dict[Any, Any]) -> Iterator[str]:
    """Yield what removes a key. Hydra says that a key does not exist if it is null or missing, so it gets a value first."""
    if get_at(now, path) in (None, "???"):
        yield override_of(path, 0, now)
    yield override_of(path, ABSENT, now)


def _whole_overrides(key: Any, now: dict[Any, Any], wanted: dict[Any, Any]) -> Iterator[str]:
    """Yield overrides that replace a top-level key."""
    if key in now:
        yield from _removal((key,), now)
    if key in wanted:
        yield override_of((key,), wanted[key], _without(now, key))


def _without(values: dict[Any, Any], key: Any) -> dict[Any, Any]:
    return {other: value for other, value in values.items() if other != key}
