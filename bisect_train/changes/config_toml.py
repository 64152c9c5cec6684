"""TOML read by tomllib, and written by tomlkit, which keeps comments where it can."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from bisect_train.changes.config_edits import Edit, apply_in_place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML file.

    Raises:
        ValueError: malformed; names the line.
    """
    return tomllib.loads(text)


def read_toml_value(text: str) -> Any:
    """Return a value as TOML reads it.

    Raises:
        ValueError: it is no TOML value.
    """
    table = tomllib.loads(f"value = {text}")
    if set(table) != {"value"}:
        raise ValueError(f"{text!r} is more than a value")
    return table["value"]


def edit_toml(text: str, edits: Sequence[Edit], wanted: Any = None) -> str | None:
    """Return the text with some keys changed and comments kept, or None."""
    try:
        document = tomlkit.parse(text)
        apply_in_place(document, edits)
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, LookupError, AttributeError):  # tomlkit does not know every table form
        return None


def dump_toml(values: Any) -> str | None:
    """Return values as TOML, or None if it cannot hold them."""
    try:
        return tomlkit.dumps(values)
    except (TOMLKitError, ValueError, TypeError, AttributeError):
        return None
