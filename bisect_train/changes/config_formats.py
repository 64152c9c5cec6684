"""Config files as text: read as the usual loaders read them, written so that they read back to the same values.

YAML is read by PyYAML's SafeLoader (to which `1e-4` is text), or by OmegaConf where interpolations are resolved; JSON by
Python's json (NaN is allowed, the last of two equal keys counts), with comments by json5; TOML by tomllib; Python files
without running them; dotenv files by python-dotenv. Whatever is written here is read again through the same loader and
compared before it is handed out: a probe must never run on a config that merely looks right.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path as FilePath
from pathlib import PurePath
from typing import Any

import yaml

from bisect_train.changes.config_dotenv import dump_dotenv, edit_dotenv, load_dotenv
from bisect_train.changes.config_edits import Edit, apply_edits
from bisect_train.changes.config_json5 import dump_json, load_json5
from bisect_train.changes.config_omegaconf import dump_omegaconf, has_interpolation, load_omegaconf, read_omegaconf_value
from bisect_train.changes.config_paths import is_same
from bisect_train.changes.config_python import edit_python, load_python
from bisect_train.changes.config_python_values import read_python_value
from bisect_train.changes.config_toml import dump_toml, edit_toml, load_toml, read_toml_value
from bisect_train.changes.config_yaml import dump_yaml, edit_yaml, has_documents, load_yaml, read_yaml_value
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import ConfigEnd


class ConfigKind(str, Enum):
    """A format of config files."""

    YAML = "YAML"
    OMEGACONF = "YAML with interpolations"
    JSON = "JSON"
    JSON5 = "JSON with comments"
    TOML = "TOML"
    PYTHON = "Python"
    DOTENV = "dotenv"


FORMATS = "YAML, JSON, TOML, Python or .env"

_KIND_OF_SUFFIX = {
    ".yaml": ConfigKind.YAML,
    ".yml": ConfigKind.YAML,
    ".json": ConfigKind.JSON,
    ".json5": ConfigKind.JSON5,
    ".jsonc": ConfigKind.JSON5,
    ".toml": ConfigKind.TOML,
    ".py": ConfigKind.PYTHON,
    ".env": ConfigKind.DOTENV,
}


@dataclass(frozen=True, slots=True)
class _Format:
    """How a format is read and written.

    Attributes:
        load: text -> values.
        edit: text, edits and the values wanted -> text with all else kept, or None; the caller checks that it reads back.
        dump: values -> text.
        read_value: text of one value -> value.
    """

    load: Callable[[str], Any]
    edit: Callable[[str, Sequence[Edit], Any], str | None]
    dump: Callable[[Any], str | None]
    read_value: Callable[[str], Any]


def _nothing(*_: Any) -> None:
    """Write nothing: the format has no such way."""


_FORMATS = {
    ConfigKind.YAML: _Format(load_yaml, edit_yaml, dump_yaml, read_yaml_value),
    ConfigKind.OMEGACONF: _Format(load_omegaconf, edit_yaml, dump_omegaconf, read_omegaconf_value),
    ConfigKind.JSON: _Format(json.loads, _nothing, dump_json, json.loads),
    ConfigKind.JSON5: _Format(load_json5, _nothing, dump_json, load_json5),
    ConfigKind.TOML: _Format(load_toml, edit_toml, dump_toml, read_toml_value),
    ConfigKind.PYTHON: _Format(load_python, edit_python, _nothing, read_python_value),
    ConfigKind.DOTENV: _Format(load_dotenv, edit_dotenv, dump_dotenv, str),
}


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """A config file that was read.

    Attributes:
        kind: its format.
        values: a mapping of plain data; a list of mappings for a YAML file of several documents.
    """

    kind: ConfigKind
    values: Any


def config_kind_of(path: str) -> ConfigKind | None:
    """Return the format that a file's name stands for, or None."""
    name = PurePath(path).name.lower()
    kind = _KIND_OF_SUFFIX.get(PurePath(name).suffix)
    return ConfigKind.DOTENV if kind is None and name.startswith(".env") else kind


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
            f"{path}: this config file is not UTF-8 text (byte {error.start})", hint=f"give a {FORMATS} file"
        ) from None
    return ConfigEnd(str(path), FilePatch(path.name, text))


def parse_config(end: ConfigEnd) -> ParsedConfig:
    """Return the values of a config file, by its name, else by the first of JSON, TOML, YAML and JSON5 that reads it.

    A `.json` file that only JSON5 can read (comments, trailing commas) is read as that.

    Raises:
        RecipeError: malformed (names file and line), or not a mapping of keys to values.
    """
    kind = config_kind_of(end.patch.name) or config_kind_of(end.path)
    if kind is None:
        return _first_of((ConfigKind.JSON, ConfigKind.TOML, ConfigKind.YAML, ConfigKind.JSON5), ConfigKind.YAML, end)
    if kind is ConfigKind.JSON:
        return _first_of((ConfigKind.JSON, ConfigKind.JSON5), ConfigKind.JSON, end)
    return ParsedConfig(kind, _parse(kind, end))


def parse_pair(good: ConfigEnd, bad: ConfigEnd) -> tuple[ParsedConfig, ParsedConfig]:
    """Return the values of two config files that are to be compared.

    Interpolations in YAML are resolved if omegaconf is there and resolves all of them in both files.

    Raises:
        RecipeError: as for `parse_config`.
    """
    ends = (good, bad)
    left, right = parsed = (parse_config(good), parse_config(bad))
    is_yaml = [item.kind is ConfigKind.YAML for item in parsed]
    if not any(flag and has_interpolation(end.patch.text) for flag, end in zip(is_yaml, ends, strict=True)):
        return parsed
    try:
        values = [
            _FORMATS[ConfigKind.OMEGACONF].load(end.patch.text) if flag else item.values
            for flag, end, item in zip(is_yaml, ends, parsed, strict=True)
        ]
    except ValueError:
        return parsed
    kinds = [ConfigKind.OMEGACONF if flag else item.kind for flag, item in zip(is_yaml, parsed, strict=True)]
    return replace(left, kind=kinds[0], values=values[0]), replace(right, kind=kinds[1], values=values[1])


def _first_of(kinds: Sequence[ConfigKind], blamed: ConfigKind, end: ConfigEnd) -> ParsedConfig:
    """Return what the first of some formats reads; the error, if none does, is that of `blamed`."""
    for kind in kinds:
        try:
            return ParsedConfig(kind, _parse(kind, end))
        except RecipeError:
            continue
    return ParsedConfig(blamed, _parse(blamed, end))


def _parse(kind: ConfigKind, end: ConfigEnd) -> Any:
    try:
        values = _FORMATS[kind].load(end.patch.text)
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
    if not _is_config(kind, values, end.patch.text):
        raise RecipeError(
            f"{end.path}: a config file holds keys and values, this one is a {type(values).__name__}",
            hint=f"compare {FORMATS} files whose top level is a mapping",
        )
    return values


def _is_config(kind: ConfigKind, values: Any, text: str) -> bool:
    """Return whether values are keys and values: a mapping, or several documents of mappings."""
    return isinstance(values, dict) or (kind is ConfigKind.YAML and isinstance(values, list) and has_documents(text))


def _malformed(end: ConfigEnd, kind: ConfigKind, where: str, problem: str) -> RecipeError:
    return RecipeError(f"{end.path}{where}: this is not valid {kind.value}: {problem}", hint="correct the file, then run again")


def read_scalar(kind: ConfigKind, text: str) -> Any:
    """Return what a format reads a value's text as; all but YAML take text that they cannot read as a string.

    Raises:
        ValueError: YAML cannot read it.
    """
    try:
        return _FORMATS[kind].read_value(text)
    except yaml.YAMLError:
        raise ValueError(f"YAML cannot read {text!r} as a value") from None
    except (ValueError, RecursionError):
        return text


def edited_text(end: ConfigEnd, parsed: ParsedConfig, edits: Sequence[Edit]) -> str:
    """Return a config file's text with some keys changed; formatting is kept where the format allows.

    Raises:
        RecipeError: the format cannot hold a value (TOML has no null, JSON no dates).
    """
    wanted = apply_edits(parsed.values, edits)
    way = _FORMATS[parsed.kind]
    for write in (lambda: way.edit(end.patch.text, edits, wanted), lambda: way.dump(wanted)):
        text = _attempt(write)
        if text is not None and _reads_back(parsed.kind, text, wanted):
            return text
    keys = ", ".join(str(edit.path[-1]) if edit.path else "all documents" for edit in edits[:5])
    raise RecipeError(
        f"{end.path}: {parsed.kind.value} cannot hold the new values of {keys}",
        hint="give both ends in the same format",
    )


def _attempt(write: Callable[[], str | None]) -> str | None:
    try:
        return write()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):  # the format cannot hold a value
        return None


def _reads_back(kind: ConfigKind, text: str, wanted: Any) -> bool:
    try:
        text.encode()
        values = _FORMATS[kind].load(text)
    except (ValueError, yaml.YAMLError, RecursionError):
        return False
    return is_same(values, wanted) and _is_config(kind, values, text)
