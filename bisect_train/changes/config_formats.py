"""Config files as text: read as the usual loaders read them, written so that they read back to the same values.

YAML is read by PyYAML's SafeLoader (to which `1e-4` is text), JSON by Python's json (NaN is allowed, the last of two
equal keys counts), TOML by tomllib. Whatever is written here is read again through the same loader and compared
before it is handed out: a probe must never run on a config that merely looks right.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path as FilePath
from pathlib import PurePath
from typing import Any

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from bisect_train.changes.config_paths import ABSENT, Path, is_same, plain_copy, remove_at, set_at
from bisect_train.changes.config_yaml import dump_yaml, edit_yaml
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import ConfigEnd

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class ConfigKind(str, Enum):
    """A format of config files."""

    YAML = "YAML"
    JSON = "JSON"
    TOML = "TOML"


_KIND_OF_SUFFIX = {
    ".yaml": ConfigKind.YAML,
    ".yml": ConfigKind.YAML,
    ".json": ConfigKind.JSON,
    ".toml": ConfigKind.TOML,
}


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """A config file that was read: its format and its values (a mapping of plain data)."""

    kind: ConfigKind
    values: dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """One key's new value; ABSENT removes it.

    Attributes:
        path: of the key.
        value: the new value, or ABSENT.
        gone: for a removal, see `remove_at`.
    """

    path: Path
    value: Any
    gone: int = 0


def config_kind_of(path: str) -> ConfigKind | None:
    """Return the format that a file's suffix names, or None."""
    return _KIND_OF_SUFFIX.get(PurePath(path).suffix.lower())


def read_config(path: FilePath) -> ConfigEnd:
    """Return a config file as one end of a question.

    Raises:
        RecipeError: the file is missing, cannot be read, or is not UTF-8 text.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{path}: there is no such config file", hint="give the path of an existing file") from None
    except OSError as error:
        raise RecipeError(
            f"{path}: cannot read this config file: {os.strerror(error.errno or 0)}", hint=f"look at `ls -ld {path}`"
        ) from None
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{path}: this config file is not UTF-8 text (byte {error.start})", hint="give a YAML, JSON or TOML file"
        ) from None
    return ConfigEnd(str(path), FilePatch(path.name, text))


def parse_config(end: ConfigEnd) -> ParsedConfig:
    """Return the values of a config file, by its suffix, else by the first of JSON, TOML and YAML that reads it.

    Raises:
        RecipeError: malformed (names file and line), or not a mapping of keys to values.
    """
    kind = config_kind_of(end.patch.name) or config_kind_of(end.path)
    if kind is not None:
        return ParsedConfig(kind, _parse(kind, end))
    for kind in (ConfigKind.JSON, ConfigKind.TOML):
        try:
            return ParsedConfig(kind, _parse(kind, end))
        except RecipeError:
            continue
    return ParsedConfig(ConfigKind.YAML, _parse(ConfigKind.YAML, end))


def _parse(kind: ConfigKind, end: ConfigEnd) -> dict[Any, Any]:
    try:
        values = _LOADERS[kind](end.patch.text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _malformed(end, kind, where, error.problem or "unreadable") from None
    except json.JSONDecodeError as error:
        raise _malformed(end, kind, f", line {error.lineno}, column {error.colno}", error.msg) from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        place = re.search(r"line (\d+)", str(error))
        where = f", line {place.group(1)}" if place else ""
        raise _malformed(end, kind, where, " ".join(str(error).split())) from None
    if not isinstance(values, dict):
        raise RecipeError(
            f"{end.path}: a config file holds keys and values, this one is a {type(values).__name__}",
            hint="compare YAML, JSON or TOML files whose top level is a mapping",
        )
    return values


def _malformed(end: ConfigEnd, kind: ConfigKind, where: str, problem: str) -> RecipeError:
    return RecipeError(f"{end.path}{where}: this is not valid {kind.value}: {problem}", hint="correct the file, then run again")


def _load_yaml(text: str) -> Any:
    values = plain_copy(yaml.safe_load(text))
    return {} if values is None else values


_LOADERS: dict[ConfigKind, Callable[[str], Any]] = {
    ConfigKind.YAML: _load_yaml,
    ConfigKind.JSON: json.loads,
    ConfigKind.TOML: tomllib.loads,
}


def read_scalar(kind: ConfigKind, text: str) -> Any:
    """Return what a format reads a value's text as; JSON and TOML take text that they cannot read as a string.

    Raises:
        ValueError: YAML cannot read it.
    """
    try:
        if kind is ConfigKind.TOML:
            table = tomllib.loads(f"value = {text}")
            return table["value"] if set(table) == {"value"} else text
        return json.loads(text) if kind is ConfigKind.JSON else plain_copy(yaml.safe_load(text))
    except yaml.YAMLError:
        raise ValueError(f"YAML cannot read {text!r} as a value") from None
    except ValueError:
        return text


def edited_text(end: ConfigEnd, parsed: ParsedConfig, edits: Sequence[Edit]) -> str:
    """Return a config file's text with some keys changed; formatting is kept where the format allows.

    Raises:
        RecipeError: the format cannot hold a value (TOML has no null, JSON no dates).
    """
    wanted = apply_edits(parsed.values, edits)
    for write in (_edit_in_place, _write_afresh):
        text = write(parsed.kind, end.patch.text, edits, wanted)
        if text is not None and _reads_back(parsed.kind, text, wanted):
            return text
    keys = ", ".join(str(edit.path[-1]) for edit in edits[:5])
    raise RecipeError(
        f"{end.path}: {parsed.kind.value} cannot hold the new values of {keys}",
        hint="give both ends in the same format",
    )


def apply_edits(values: dict[Any, Any], edits: Sequence[Edit]) -> dict[Any, Any]:
    """Return a copy of config values with edits applied."""
    result = plain_copy(values)
    _apply_in_place(result, edits)
    assert isinstance(result, dict)
    return result


def _apply_in_place(values: Any, edits: Sequence[Edit]) -> None:
    for edit in edits:
        if edit.value is ABSENT:
            remove_at(values, edit.path, gone=edit.gone)
        else:
            set_at(values, edit.path, plain_copy(edit.value))


def _reads_back(kind: ConfigKind, text: str, wanted: dict[Any, Any]) -> bool:
    try:
        text.encode()
        return is_same(_LOADERS[kind](text), wanted)
    except (ValueError, yaml.YAMLError, RecursionError):
        return False


def _edit_in_place(kind: ConfigKind, text: str, edits: Sequence[Edit], wanted: dict[Any, Any]) -> str | None:
    """Return the edited text with comments kept, or None; the caller checks that it reads back."""
    if kind is ConfigKind.YAML:
        return edit_yaml(text, [(edit.path, edit.value) for edit in edits])
    if kind is ConfigKind.JSON:
        return None
    try:
        document = tomlkit.parse(text)
        _apply_in_place(document, edits)
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, LookupError, AttributeError):  # tomlkit does not know every table form
        return None


def _write_afresh(kind: ConfigKind, text: str, edits: Sequence[Edit], wanted: dict[Any, Any]) -> str | None:
    try:
        if kind is ConfigKind.YAML:
            return dump_yaml(wanted)
        if kind is ConfigKind.JSON:
            return json.dumps(wanted, indent=2) + "\n"
        return tomlkit.dumps(wanted)
    except (TOMLKitError, yaml.YAMLError, ValueError, TypeError, RecursionError):  # the format cannot hold a value
        return None
