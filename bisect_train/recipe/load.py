"""Reads a recipe file; every error names the file, the line where it can be told, the key, and what to do."""

from __future__ import annotations

import dataclasses
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

from bisect_train import __version__
from bisect_train.core.changes import DataLink
from bisect_train.core.errors import RecipeError
from bisect_train.core.probe import MetricPattern
from bisect_train.core.yaml_text import load_yaml_text
from bisect_train.recipe.extending import find_base, merge_recipes
from bisect_train.recipe.renamed import follow_renames
from bisect_train.recipe.values import (
    ConfigRecipe,
    DataRecipe,
    EnvironmentRecipe,
    MetricRecipe,
    Recipe,
    RecogniseRecipe,
    ResourcesRecipe,
    RestartRecipe,
    SetupRecipe,
    ShrinkRecipe,
    WhenRecipe,
)
from bisect_train.recipe.wire import DataWire, MetricWire, RecipeWire, WhenWire, known_keys

PLACEHOLDERS = ("config", "overrides", "seed", "steps", "ranks", "port", "out")
NODE_PLACEHOLDERS = ("local_ranks", "nnodes", "node_rank", "master_addr")

Place = tuple[str | int, ...]

_MAX_PLACES = 100_000
_HINT = "`bisect-train init` writes a commented recipe"


def load_recipe(path: Path) -> Recipe:
    """Return the recipe in a YAML file.

    Raises:
        RecipeError: missing, not YAML (line and column), an unknown key (with the nearest known one), a wrong type, or
            keys that contradict each other.
    """
    notes: list[str] = []
    wire, lines, _ = _load(path, (), notes)
    return dataclasses.replace(_recipe_of(path, wire, lines), notes=tuple(notes))


def _load(path: Path, above: tuple[Path, ...], notes: list[str]) -> tuple[RecipeWire, dict[Place, int], dict[str, Any]]:
    """Return a recipe, the lines of its own keys, and its data with those of what it extends.

    Args:
        path: of the recipe.
        above: recipes that extend it.
        notes: takes what a person should know of them.
    """
    data, lines = _data_of(path)
    notes += follow_renames(path, data, lines, version=__version__)
    base = data.get("extends")
    if isinstance(base, str) and base:
        where = f"{path}, line {lines[('extends',)]}"
        below = find_base(base, path, where=where)
        if below.resolve() in [item.resolve() for item in (*above, path)]:
            raise RecipeError(f"{where}: extends: {base} leads back to this recipe", hint="take one of the two `extends` out")
        data = merge_recipes(_load(below, (*above, path), notes)[2], data)
    try:
        wire = RecipeWire.model_validate(data)
    except ValidationError as error:
        raise _error_of(path, lines, error.errors()) from None
    _check_whole(path, lines, wire)
    return wire, lines, data


def _data_of(path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """Return what a file says, and the line of each key and list item."""
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
    return data, lines


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
        return load_yaml_text(text)
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
    if (wire.shrink.set or wire.shrink.accumulation) and wire.config.override is None:
        raise RecipeError(
            f"{path}, line {lines.get(('shrink', 'set'), 1)}: shrink.set needs config.override to reach the program",
            hint='add, for example, `config: {override: "--{key}={value}"}`',
        )
    for idx, block in enumerate(wire.when):
        _check_block(f"{path}, line {lines.get(('when', idx), 1)}: when[{idx}]", block, wire)
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
            f"{path}, line {lines.get(('command',), 1)}: the command holds {{overrides}}, but there is no config.override",
            hint='add, for example, `config: {override: "--{key}={value}"}`',
        )
    if wire.config.override is not None and not has_place and ("config", "override") in lines:
        raise RecipeError(
            f"{path}, line {lines[('config', 'override')]}: config.override is never used",
            hint='put "{overrides}" into the command where the overrides belong',
        )


def _check_block(where: str, block: WhenWire, wire: RecipeWire) -> None:
    """Check a block of `when:` against the rest of the recipe."""
    for name in block.metrics:
        if name not in wire.metrics:
            known = ", ".join(wire.metrics) or "none"
            raise RecipeError(
                f"{where}: the recipe has no metric {name!r}", hint=f"`metrics:` of the recipe names it first; there: {known}"
            )
    for item in block.command or []:
        _check_placeholders(where, item)
    takes_overrides = any("{overrides}" in item for item in wire.command or [])
    if block.command and takes_overrides and "{overrides}" not in block.command:
        raise RecipeError(
            f"{where}: its command lacks {{overrides}}, which the recipe's has", hint='put "{overrides}" where they belong'
        )


def _check_placeholders(where: str, argument: str, more: tuple[str, ...] = ()) -> None:
    """Raise if an argument holds a misspelt placeholder; other braces (JSON, a program's own) are left alone."""
    for name in re.findall(r"\{(\w+)\}", argument):
        names = (*PLACEHOLDERS, *NODE_PLACEHOLDERS, *more)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
        if name not in names and near:
            known = " ".join(f"{{{item}}}" for item in names)
            raise RecipeError(
                f"{where}: command: unknown placeholder {{{name}}}, did you mean {{{near[0]}}}?",
                hint=f"placeholders: {known}",
            )


def _recipe_of(path: Path, wire: RecipeWire, lines: dict[Place, int]) -> Recipe:
    shrink, data, resources, environment = wire.shrink, wire.data, wire.resources, wire.environment
    steps = tuple(None if item == "end" else item for item in shrink.steps or [])
    return Recipe(
        path=str(path),
        command=tuple(wire.command or ()),
        config=ConfigRecipe(wire.config.file or "", wire.config.override or "", wire.config.hydra or ""),
        shrink=ShrinkRecipe(
            steps,
            tuple(shrink.ranks or ()),
            tuple((key, _value_text(value)) for key, value in shrink.set.items()),
            (shrink.accumulation.key, shrink.accumulation.value) if shrink.accumulation else None,
        ),
        data=_data_recipe(data),
        setup=SetupRecipe(tuple(tuple(item) for item in wire.setup.run), tuple(wire.setup.inputs)),
        metrics=tuple(
            MetricRecipe(_reader_of(name, item), item.better, item.reduce, item.unit, item.paired)
            for name, item in wire.metrics.items()
        ),
        resources=ResourcesRecipe(
            resources.cpus,
            resources.gpus,
            resources.timeout_s,
            resources.threads,
            resources.memory,
            tuple(resources.custom.items()),
            resources.accelerator or "",
            resources.ranks_per_node or 0,
        ),
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
        about=" ".join(wire.about.split()),
        cannot=tuple(wire.cannot),
        needs_modules=tuple(wire.requires.modules),
        needs_gpus=wire.requires.gpus,
        recognise=_recognise_of(wire),
        metric_name=wire.metric or "",
        stubs=tuple(wire.stubs),
        step_function=wire.step_function or "",
        shims=tuple(wire.shims),
        whens=tuple(_when_of(path, lines, idx, block) for idx, block in enumerate(wire.when)),
    )


def _when_of(path: Path, lines: dict[Place, int], idx: int, block: WhenWire) -> WhenRecipe:
    line = lines.get(("when", idx))  # None: it comes from what this recipe extends
    return WhenRecipe(
        where=f"{path}, line {line}: when[{idx}]" if line else f"{path}: when[{idx}]",
        since=block.since or "",
        until=block.until or "",
        exists=block.exists or "",
        file=block.file or "",
        contains=block.contains or "",
        lacks=block.lacks or "",
        command=tuple(block.command or ()),
        data=_data_recipe(block.data),
        patterns=tuple((name, item.pattern) for name, item in block.metrics.items()),
    )


def _data_recipe(data: DataWire) -> DataRecipe:
    return DataRecipe(tuple(DataLink(item.source, item.target) for item in data.link), tuple(sorted(data.env.items())))


def _recognise_of(wire: RecipeWire) -> RecogniseRecipe | None:
    signs = wire.recognise
    return RecogniseRecipe(signs.order, tuple(signs.files), signs.source or "", tuple(signs.link)) if signs else None


def _reader_of(name: str, wire: MetricWire) -> MetricPattern:
    """Return how a metric is read; a key that is not given is its name."""
    if wire.source == "log":
        return MetricPattern(name, wire.pattern[0], tuple(wire.pattern[1:]))
    key = wire.tag or wire.column or wire.key or name
    return MetricPattern(name, source=wire.source, key=key, step_key=wire.step or "", files=tuple(wire.file))


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
