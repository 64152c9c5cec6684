"""Text files of metrics as lines, in whatever encoding a program writes. Pure functions on bytes."""

from __future__ import annotations

import codecs

MAX_LINE = 1 << 24
"""Characters of a line that is looked at; a longer one is no row of a table."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes) -> str:
    """Return a text: by its byte order mark, else as UTF-8 and, in lines that are none, as latin-1; NULs are left out.

    UTF-16 without a mark, or in the middle of another text, reads as the ASCII characters that it has.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "".join(_decode_line(line) for line in data.splitlines(keepends=True))
    return text.replace("\0", "")


def _decode_line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def lines_of(data: bytes, *, is_whole: bool) -> list[str]:
    """Return the lines that are ended; the last one without its end too where `is_whole`: else it may be cut off."""
    lines = decode(data).split("\n")
    last = lines.pop()
    if is_whole and last:
        lines.append(last)
    return [line.rstrip("\r") for line in lines if len(line) <= MAX_LINE]
