"""Scalars of TensorBoard's event files, as torch, tensorboardX and TensorFlow write them.

A file is a row of records: length (8 bytes), masked crc32c of the length, data, masked crc32c of the data; the data is an
`Event` message. Reading ends at the first record that is cut off or whose checksum is wrong. A session that starts at a step
(`purge_step`) makes events of that step and later ones void, as TensorBoard has it.

Source: tensorboard/compat/proto/{event,summary,tensor}.proto and tensorboard/compat/tensorflow_stub/pywrap_tensorflow.py.
"""

from __future__ import annotations

import struct

from bisect_train_workers.sources.points import Points
from bisect_train_workers.sources.protobuf import BYTES, FIXED32, FIXED64, VARINT, fields_of

_HEADER = struct.Struct("<QI")
_SMALL = 1 << 16  # larger records (graphs, images) are only looked into where they hold the tag
_SESSION_START = 1
_CRC32C = 0x82F63B78
# dtype of a TensorProto: format, bits of the significand, field of its values
_FLOAT, _DOUBLE, _HALF, _BFLOAT16 = 1, 2, 19, 14
_FORMATS = {_FLOAT: ("<f", 24, 5), _DOUBLE: ("<d", 53, 6), _HALF: ("<e", 11, 13)}


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC32C if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _make_table()


def masked_crc32c(data: bytes) -> int:
    """Return the checksum that event files carry."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(data: bytes, tag: str) -> Points:
    """Return the scalars of a tag."""
    points, wanted, at = Points(), tag.encode(), 0
    while at + _HEADER.size <= len(data):
        size, crc = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size
        if masked_crc32c(data[at : at + 8]) != crc or begin + size + 4 > len(data):
            break
        at = begin + size + 4
        if size > _SMALL and data.find(wanted, begin, begin + size) < 0:
            continue
        event = data[begin : begin + size]
        if masked_crc32c(event) != struct.unpack_from("<I", data, begin + size)[0]:
            break
        try:
            _take_event(event, tag, points)
        except ValueError:  # a whole record that is no event: another kind of file
            break
    return points


def _take_event(event: bytes, tag: str, points: Points) -> None:
    wall_time, step, summaries, is_start = 0.0, 0, [], False
    for number, kind, integer, part in fields_of(event):
        if (number, kind) == (1, FIXED64):
            wall_time = struct.unpack("<d", part)[0]
        elif (number, kind) == (2, VARINT):
            step = (integer ^ 2**63) - 2**63
        elif (number, kind) == (5, BYTES):
            summaries.append(part)
        elif (number, kind) == (7, BYTES):
            is_start = any((field, what) == (1, _SESSION_START) for field, _, what, _ in fields_of(part))
    if is_start:
        points.purge(step)
    begun, last = points.span or (wall_time, wall_time)
    points.span = (min(begun, wall_time), max(last, wall_time))
    for summary in summaries:
        for number, kind, _, value in fields_of(summary):
            if (number, kind) == (1, BYTES):
                _take_value(value, step, tag, points)


def _take_value(value: bytes, step: int, tag: str, points: Points) -> None:
    name, shown = "", None
    for number, kind, _, part in fields_of(value):
        if (number, kind) == (1, BYTES):
            name = part.decode("utf-8", "replace")
        elif (number, kind) == (2, FIXED32):
            shown = (struct.unpack("<f", part)[0], 24)
        elif (number, kind) == (8, BYTES) and name == tag:
            shown = _scalar_of(part)
    points.known[name] = None
    if name == tag and shown is not None:
        points.add(shown[0], step)
        points.precision.take_bits(shown[1])


def _scalar_of(tensor: bytes) -> tuple[float, int] | None:
    """Return the only element of a floating-point TensorProto and the bits of its significand, None for others."""
    parts = list(fields_of(tensor))
    dtype = next((integer for number, kind, integer, _ in parts if (number, kind) == (1, VARINT)), 0)
    content = b"".join(part for number, kind, _, part in parts if (number, kind) == (4, BYTES))
    if dtype == _BFLOAT16:
        ints = [integer for number, kind, integer, _ in parts if (number, kind) == (13, VARINT)]
        content = content or b"".join(struct.pack("<H", item & 0xFFFF) for item in ints)
        return (struct.unpack("<f", b"\0\0" + content)[0], 8) if len(content) == 2 else None
    if dtype not in _FORMATS:
        return None
    form, bits, values = _FORMATS[dtype]
    if not content and dtype == _HALF:
        packed = b"".join(part for number, kind, _, part in parts if (number, kind) == (values, BYTES))
        ints = [integer for number, kind, integer, _ in parts if (number, kind) == (values, VARINT)]
        ints += list(packed) if len(packed) == 1 else []
        content = b"".join(struct.pack("<H", item & 0xFFFF) for item in ints)
    content = content or b"".join(part for number, kind, _, part in parts if number == values and kind != VARINT)
    return (struct.unpack(form, content)[0], bits) if len(content) == struct.calcsize(form) else None
