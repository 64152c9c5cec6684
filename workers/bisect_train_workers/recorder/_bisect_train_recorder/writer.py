"""Appends JSON lines to the record file of this process.

One unbuffered `write` call per line: a process that is killed loses at most the line it had not
yet begun to write, and lines of threads never mix.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict


def _plain(value: Any) -> str:
    """Return a text for a value that JSON does not know; a record is never lost over one."""
    return str(value)


def _make_encoder() -> Callable[[Dict[str, Any]], str]:
    """Return a function from record to JSON text.

    `JSONEncoder.encode` builds its C encoder anew at each call; one that is kept halves the time.
    """
    encoder = json.JSONEncoder(default=_plain, check_circular=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    quote = json.encoder.encode_basestring_ascii  # type: ignore[attr-defined]
    chunks_of = make(None, _plain, quote, None, ": ", ", ", False, False, True)
    return lambda record: "".join(chunks_of(record, 0))


class RecordWriter:
    """The open record file of one process."""

    def __init__(self, path: str) -> None:
        """Create the file at once: its existence is the handshake."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        self._encode = _make_encoder()

    def write(self, record: Dict[str, Any]) -> None:
        """Append one record."""
        self.write_line(self._encode(record))

    def write_line(self, line: str) -> None:
        """Append one line that is JSON already."""
        os.write(self._fd, (line + "\n").encode("utf-8", "backslashreplace"))
