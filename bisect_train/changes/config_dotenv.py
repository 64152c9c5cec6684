"""dotenv files (`KEY=VALUE` lines) as python-dotenv reads them, without interpolation: all values are text.

`KEY` alone is a key without a value (null). The last of two equal keys counts.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from dotenv.parser import Binding, parse_stream

from bisect_train.changes.config_edits import Edit

_VALUE = re.compile(
    r"""(?P<head>\s*(?:export[^\S\r\n]+)?(?:'[^']+'|[^=\#\s]+))
        (?P<value>[^\S\r\n]*=[^\S\r\n]*(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\r\n]*?)|)
        (?P<tail>(?:[^\S\r\n]+\#[^\r\n]*)?[^\S\r\n]*(?:\r\n|\n|\r|$))""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_VALUE = re.compile(r"[\w.,:/@%+=-]*")
_PLAIN_KEY = re.compile(r"[^=#\s'][^=#\s]*")


def load_dotenv(text: str) -> dict[str, str | None]:
    """Return the keys and values of a dotenv file.

    Raises:
        ValueError: a line is no KEY=VALUE; names it.
    """
    values: dict[str, str | None] = {}
    for binding in _bindings(text):
        if binding.error:
            blank = len(binding.original.string) - len(binding.original.string.lstrip())
            line = binding.original.line + binding.original.string[:blank].count("\n")
            raise ValueError(f"line {line} is not KEY=VALUE")
        if binding.key is not None:
            values[binding.key] = binding.value
    return values


def edit_dotenv(text: str, edits: Sequence[Edit], wanted: Any) -> str | None:
    """Return the text with the lines of some keys replaced, added or removed, or None if it cannot hold the values."""
    if not isinstance(wanted, dict):
        return None
    keys = {edit.path[0] for edit in edits if edit.path}
    bindings = _bindings(text)
    last = {binding.key: idx for idx, binding in enumerate(bindings)}
    lines: list[str] = []
    for idx, binding in enumerate(bindings):
        string = binding.original.string
        if binding.key not in keys:
            lines.append(string)
        elif binding.key in wanted:
            lines.append(_replaced(string, wanted[binding.key]) if idx == last[binding.key] else string)
    for key in wanted:
        if key in keys and key not in last:
            lines.append("" if not lines or lines[-1].endswith(("\n", "\r")) else "\n")
            lines.append(_key_text(key) + _value_text(wanted[key]) + "\n")
    return "\ufeff" * text.startswith("\ufeff") + "".join(lines)


def dump_dotenv(values: Any) -> str | None:
    """Return values as a dotenv file, None for a list; what is not text is written as text, and so does not read back."""
    if not isinstance(values, dict):
        return None
    return "".join(f"{_key_text(key)}{_value_text(value)}\n" for key, value in values.items())


def _bindings(text: str) -> list[Binding]:
    return list(parse_stream(io.StringIO(text)))


def _replaced(line: str, value: Any) -> str:
    """Return a binding's text with another value; blank lines before it, `export` and a comment stay."""
    found = _VALUE.fullmatch(line)
    return f"{found['head']}{_value_text(value)}{found['tail']}" if found else line


def _key_text(key: Any) -> str:
    text = str(key)
    return text if _PLAIN_KEY.fullmatch(text) else f"'{text}'"


def _value_text(value: Any) -> str:
    """Return `=VALUE`, quoted where needed; "" for no value."""
    if value is None:
        return ""
    text = str(value)
    if _PLAIN_VALUE.fullmatch(text):
        return f"={text}"
    if "'" not in text and "\\" not in text:
        return f"='{text}'"
    return '="' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
