"""Reads a recipe file; every error names the file, the line where it can be told, the key, and what to do."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bisect_train.core.changes import DataLink
from bisect_train.core.errors import RecipeError
from bisect_train.recipe.values import (
    ConfigRecipe,
    DataRecipe,
    EnvironmentRecipe,
    MetricRecipe,
    Recipe,
    ResourcesRecipe,
    RestartRecipe,
    SetupRecipe,
    ShrinkRecipe,
)
from bisect_train.recipe.wire import LATER_KEYS, RecipeWire, known_keys

PLACEHOLDERS = ("config", "overrides", "seed", "steps", "ranks", "port", "out")

Place = tuple[str | int, ...]

_MAX_PLACES = 100_000
_HINT = "`bisect-train init` writes a commented recipe"


def load_recipe(path: Path) -> Recipe:
    """Return the recipe in a YAML file.

    Raises:
        RecipeError: missing, not YAML (line and column), an unknown key (with the nearest known one), a wrong type, or
            keys that contradict each other.
    """
    text = _read(path)
    root = _compose(path, text)
    lines: dict[Place, int] = {(): 1}
    for place, line in _lines(path, root, ()):
        lines[place] = line
        if len(lines) > _MAX_PLACES:  # aliases of aliases: a few lines can stand for billions of places
            raise RecipeError(f"{path}: this recipe stands for more than {_MAX_PLACES:,} keys", hint=_HINT)
    data = _construct(path, text)
    if not isinstance(data, dict):
        raise RecipeError(f"{path}: a recipe holds keys and values, this file is {_type_name(data)}", hint=_HINT)
    try:
        wire = RecipeWire.model_validate(data)
    except ValidationError as error:
        raise _error_of(path, lines, error.errors()) from None
    _check_whole(path, lines, wire)
    return _recipe_of(path, wire)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{path}: there is no such recipe", hint=_HINT) from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: a recipe is UTF-8 text (byte {error.start} is not)", hint=_HINT) from None
    except OSError as error:
        raise RecipeError(
            f"{path}: cannot read this recipe: {os.strerror(error.errno or 0)}", hint=f"look at `ls -ld {path}`"
        ) from None


def _compose(path: Path, text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _malformed(path, error) from None
    except RecursionError:
        raise RecipeError(f"{path}: this recipe is nested too deeply", hint=_HINT) from None


def _construct(path: Path, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2024-13-45
        raise _malformed(path, error) from None


def _malformed(path: Path, error: Exception) -> RecipeError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return RecipeError(f"{path}{where}: this is not valid YAML: {problem}", hint="correct this line, then run again")


def _lines(path: Path, node: yaml.Node | None, place: Place, depth: int = 0) -> Iterator[tuple[Place, int]]:
    """Yield the line of every key and list item; raise on a key that is given twice."""
    if depth > 20:  # no recipe is that deep; an alias that holds itself would be endless
        raise RecipeError(f"{path}: this recipe is nested too deeply", hint=_HINT)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if name in seen:
                raise RecipeError(
                    f"{path}, line {line}: the key {_place_text((*place, name))} is already on line {seen[name]}",
                    hint="keep one of the two",
                )
            seen[name] = line
            yield (*place, name), line
            yield from _lines(path, value, (*place, name), depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for idx, item in enumerate(node.value):
            yield (*place, idx), item.start_mark.line + 1
            yield from _lines(path, item, (*place, idx), depth + 1)


def _place_text(place: Place) -> str:
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else ("." if text else "") + str(step)
    return text


def _type_name(value: Any) -> str:
    names = {"NoneType": "empty", "str": "text", "list": "a list", "dict": "a mapping", "int": "a whole number"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")


def _error_of(path: Path, lines: dict[Place, int], errors: list[ErrorDetails]) -> RecipeError:
    """Return the error to show: the first in the file's order, an unknown key before anything else."""
    located = [(_place_of(item["loc"], lines), item) for item in errors]
    located.sort(key=lambda pair: (pair[1]["type"] != "extra_forbidden", lines.get(pair[0], 0)))
    place, item = located[0]
    if item["type"] == "extra_forbidden":
        return _unknown_key(path, lines, (*place[:-1], str(item["loc"][-1])))
    where = f"{path}, line {lines.get(place, 1)}"
    if item["type"] == "missing":
        return RecipeError(f"{where}: {_place_text(place)} lacks the key `{item['loc'][-1]}`", hint=_HINT)
    name = _place_text(place) or "the recipe"
    message = item["msg"].removeprefix("Value error, ")
    value = _short(item["input"])
    return RecipeError(f"{where}: {name}: {message[:1].lower()}{message[1:]} (got {value})", hint=_hint_for(item))


def _place_of(loc: Place, lines: dict[Place, int]) -> Place:
    """Return the longest part of pydantic's location that is a place in the file (it adds names of types)."""
    place: Place = ()
    for step in loc:
        if (*place, step) in lines:
            place = (*place, step)
    return place


def _unknown_key(path: Path, lines: dict[Place, int], place: Place) -> RecipeError:
    where = f"{path}, line {lines.get(place, 1)}"
    name = _place_text(place)
    if len(place) == 1 and place[0] in LATER_KEYS:
        return RecipeError(
            f"{where}: the key {name} is not supported by this version", hint="take it out of the recipe for now"
        )
    known = known_keys(place[:-1])
    near = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return RecipeError(f"{where}: unknown key {name}", hint=f"{hint}known keys here: {', '.join(known)}")


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def _hint_for(item: ErrorDetails) -> str:
    if item["type"] == "string_type" and isinstance(item["input"], (bool, int, float)):
        return f'put quotation marks around it: "{item["input"]}"'
    if item["type"] == "string_type":
        return "give one text here; a list of arguments looks like [python, train.py]"
    if item["type"] in ("greater_than", "greater_than_equal"):
        return "correct this number, then run again"
    return _HINT


def _check_whole(path: Path, lines: dict[Place, int], wire: RecipeWire) -> None:
    """Check the rules that concern more than one key."""
    if wire.shrink.set and wire.config.override is None:
        raise RecipeError(
            f"{path}, line {lines[('shrink', 'set')]}: shrink.set needs config.override to reach the program",
            hint='add, for example, `config: {override: "--{key}={value}"}`',
        )
    command = wire.command or []
    for idx, item in enumerate(command):
        _check_placeholders(f"{path}, line {lines.get(('command', idx), 1)}", item)
    for idx, item in enumerate(wire.restart.command if wire.restart else []):
        _check_placeholders(f"{path}, line {lines.get(('restart', 'command', idx), 1)}: restart", item, ("command",))
    if not command:
        return
    has_place = any("{overrides}" in item for item in command)
    if has_place and wire.config.override is None and wire.config.hydra is None:
        raise RecipeError(
            f"{path}, line {lines[('command',)]}: the command holds {{overrides}}, but there is no config.override",
            hint='add, for example, `config: {override: "--{key}={value}"}`',
        )
    if wire.config.override is not None and not has_place:
        raise RecipeError(
            f"{path}, line {lines[('config', 'override')]}: config.override is never used",
            hint='put "{overrides}" into the command where the overrides belong',
        )


def _check_placeholders(where: str, argument: str, more: tuple[str, ...] = ()) -> None:
    """Raise if an argument holds a misspelt placeholder; other braces (JSON, a program's own) are left alone."""
    for name in re.findall(r"\{(\w+)\}", argument):
        names = (*PLACEHOLDERS, *more)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
        if name not in names and near:
            known = " ".join(f"{{{item}}}" for item in names)
            raise RecipeError(
                f"{where}: command: unknown placeholder {{{name}}}, did you mean {{{near[0]}}}?",
                hint=f"placeholders: {known}",
            )


def _recipe_of(path: Path, wire: RecipeWire) -> Recipe:
    shrink, data, resources, environment = wire.shrink, wire.data, wire.resources, wire.environment
    steps = tuple(None if item == "end" else item for item in shrink.steps or [])
    return Recipe(
        path=str(path),
        command=tuple(wire.command or ()),
        config=ConfigRecipe(wire.config.file or "", wire.config.override or "", wire.config.hydra or ""),
        shrink=ShrinkRecipe(
            steps, tuple(shrink.ranks or ()), tuple((key, _value_text(value)) for key, value in shrink.set.items())
        ),
        data=DataRecipe(tuple(DataLink(item.source, item.target) for item in data.link), tuple(sorted(data.env.items()))),
        setup=SetupRecipe(tuple(tuple(item) for item in wire.setup.run), tuple(wire.setup.inputs)),
        metrics=tuple(
            MetricRecipe(name, item.pattern, item.better, item.reduce, item.unit) for name, item in wire.metrics.items()
        ),
        resources=ResourcesRecipe(resources.cpus, resources.gpus, resources.timeout_s, resources.threads),
        environment=EnvironmentRecipe(
            environment.mode or "",
            tuple(environment.files),
            tuple(environment.find_links),
            environment.index,
            tuple(environment.package_repos.items()),
        ),
        private=tuple(wire.private),
        exempt_seeds=tuple(wire.seeds.exempt),
        judge=tuple(wire.judge or ()),
        launcher=tuple(wire.launcher),
        restart=_restart_of(wire),
    )


def _restart_of(wire: RecipeWire) -> RestartRecipe | None:
    restart = wire.restart
    if restart is None:
        return None
    return RestartRecipe(restart.save_at, tuple(restart.command), restart.ranks, restart.kill)


def _value_text(value: Any) -> str:
    """Return the text of a value of `shrink.set`, written like that of a config change."""
    if value is None:
        return "null"
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, list) else repr(value)
