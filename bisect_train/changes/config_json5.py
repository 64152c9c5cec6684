"""JSON with comments, trailing commas and the other freedoms of JSON5; what is written is plain JSON."""

from __future__ import annotations

import json
from typing import Any

import json5

MAX_CHARS = 250_000
"""The library is a parser in Python that reads some 200,000 characters a second; plain JSON has no limit."""


def load_json5(text: str) -> Any:
    """Return the values of a JSON5 text; of two equal keys the last counts.

    Raises:
        ValueError: malformed (names the line and the column), or too long for this reader.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"with comments or trailing commas at most {MAX_CHARS:,} characters are read, it has {len(text):,}")
    try:
        return json5.loads(text.removeprefix("\ufeff"))
    except ValueError as error:
        place, _, problem = str(error).partition(" ")
        line = place.rpartition(":")[2]
        raise ValueError(f"line {line}: {problem}" if line.isdecimal() else str(error)) from None


def dump_json(values: Any) -> str:
    """Return values as indented JSON."""
    return json.dumps(values, indent=2) + "\n"
