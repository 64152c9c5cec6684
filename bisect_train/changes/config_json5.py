"""JSON with comments, trailing commas and the other freedoms of JSON5; what is written is plain JSON."""

from __future__ import annotations

import json
from typing import Any

import json5


def load_json5(text: str) -> Any:
    """Return the values of a JSON5 text; of two equal keys the last counts.

    Raises:
        ValueError: malformed; names the line and the column.
    """
    try:
        return json5.loads(text.removeprefix("\ufeff"))
    except ValueError as error:
        place, _, problem = str(error).partition(" ")
        line = place.rpartition(":")[2]
        raise ValueError(f"line {line}: {problem}" if line.isdecimal() else str(error)) from None


def dump_json(values: Any) -> str:
    """Return values as indented JSON."""
    return json.dumps(values, indent=2) + "\n"
