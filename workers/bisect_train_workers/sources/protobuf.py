"""The wire format of protocol buffers, as far as reading a few fields takes it. Pure functions on bytes.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_SIZES = {FIXED64: 8, FIXED32: 4}


def fields_of(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (field number, wire type, number of a varint, bytes of anything else).

    Raises:
        ValueError: this is no message, or it is cut off.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, kind, number, b""
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("cut off")
        yield tag >> 3, kind, 0, data[at : at + size]
        at += size


def parts_of(data: bytes, number: int) -> list[bytes]:
    """Return all embedded messages, texts or bytes of a field. Raises ValueError as `fields_of`."""
    return [part for found, kind, _, part in fields_of(data) if found == number and kind == BYTES]


def text_of(data: bytes, number: int) -> str:
    """Return the text of a field, the last one if it is repeated, "" if there is none. Raises ValueError as `fields_of`."""
    found = parts_of(data, number)
    return found[-1].decode("utf-8", "replace") if found else ""


def integer_of(data: bytes, number: int) -> int:
    """Return a signed integer of a field, 0 (the default, which is not written) without one. Raises ValueError."""
    found = [value for field, kind, value, _ in fields_of(data) if field == number and kind == VARINT]
    return (found[-1] ^ 2**63) - 2**63 if found else 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("cut off")
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number & (2**64 - 1), at
