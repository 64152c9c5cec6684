"""History, config and origin of an offline run of Weights & Biases, from its `run-ID.wandb` file.

The file is a LevelDB log: 7 bytes of header (`:W&B`, magic, version), then blocks of 32 KiB of chunks; a chunk has a crc32
over type and data, a length, a type (whole record, or first, middle, last part of one) and data. A record is a `Record`
message of wandb_internal.proto. Reading ends at the first chunk that is cut off or whose checksum is wrong.

Our own reader, since the package's Python one is gone (0.31 reads in its compiled core alone), and old commits bring old
packages. Source: wandb/proto/wandb_internal.proto; wandb/sdk/internal/datastore.py of wandb 0.16.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from bisect_train_workers.sources.json_files import read_json
from bisect_train_workers.sources.points import Points, keys_of, load_json, look_up, number_of, step_of, text_of_number
from bisect_train_workers.sources.protobuf import integer_of, parts_of, text_of

_IDENT = b":W&B"
_FILE_HEADER = 7
_MAX_PARTS = 1 << 13  # of one record, 256 MiB
_BLOCK = 1 << 15
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SHORT = 1 << 12  # longer values are tables and images
HISTORY = 2
"""Number of the history in a record."""


def records_of(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file, as far as they are whole."""
    if data[:4] != _IDENT:
        return
    at, begun = _FILE_HEADER, list[bytes]()
    while True:
        left = _BLOCK - at % _BLOCK
        if left < _CHUNK.size:
            at += left
        if at + _CHUNK.size > len(data):
            return
        crc, size, kind = _CHUNK.unpack_from(data, at)
        part = data[at + _CHUNK.size : at + _CHUNK.size + size]
        if len(part) < size or zlib.crc32(part, zlib.crc32(bytes([kind]))) != crc:
            return
        at += _CHUNK.size + size
        if kind in (_WHOLE, _FIRST):
            begun = []
        begun.append(part)
        if len(begun) > _MAX_PARTS:
            return
        if kind in (_WHOLE, _LAST):
            yield b"".join(begun)


def read_history(data: bytes, key: str, step_key: str = "") -> Points:
    """Return the values of a key (`val/loss`; parts of nested ones with dots), and beside them the steps."""
    points = Points()
    for record in records_of(data):
        try:
            for history in parts_of(record, HISTORY):
                _take_history(history, key, step_key, points)
        except ValueError:  # a record of a version that writes something else
            continue
    return points


def _take_history(history: bytes, key: str, step_key: str, points: Points) -> None:
    items = {item_name(item): text_of(item, 16) for item in parts_of(history, 1)}
    known = keys_of({name: load_json(text) for name, text in items.items() if len(text) <= _SHORT})
    points.known |= dict.fromkeys(name for name in known if not name.startswith("_"))
    text = text_of_number(_value_at(items, key))
    if text is None:
        return
    step = step_of(text_of_number(_value_at(items, step_key or "_step")))
    if step is None and not step_key:
        counted = parts_of(history, 2)
        step = integer_of(counted[-1], 1) if counted else None
    points.add_text(text, step)


def read_rows(data: bytes) -> Iterator[dict[str, float]]:
    """Yield the numbers of each call that logged some, by key (parts of nested ones with dots), and its count as `_step`."""
    for record in records_of(data):
        try:
            for history in parts_of(record, HISTORY):
                row: dict[str, float] = {}
                for item in parts_of(history, 1):
                    text = text_of(item, 16)
                    if len(text) <= _SHORT:
                        _take_numbers(row, item_name(item), load_json(text))
                counted = parts_of(history, 2)
                if "_step" not in row and counted:
                    row["_step"] = float(integer_of(counted[-1], 1) or 0)
                yield row
        except ValueError:  # a record of a version that writes something else
            continue


def _take_numbers(row: dict[str, float], name: str, value: Any, depth: int = 4) -> None:
    if isinstance(value, dict) and depth:
        for key, part in value.items():
            _take_numbers(row, f"{name}.{key}", part, depth - 1)
    elif (text := text_of_number(value)) is not None and (number := number_of(text)) is not None:
        row[name] = number


def _value_at(items: dict[str, str], key: str) -> Any:
    """Return what stands at a dotted key: parts of nested ones are keys of their own, or (wandb 0.16) JSON objects."""
    near = {name: load_json(text) for name, text in items.items() if key == name or key.startswith((f"{name}.", f"{name}/"))}
    return look_up(near, key)


def item_name(item: bytes) -> str:
    """Return the key of an item, parts of a nested one joined by dots. Raises ValueError."""
    return text_of(item, 1) or ".".join(part.decode("utf-8", "replace") for part in parts_of(item, 2))


def read_summary(text: str, key: str) -> Points:
    """Return the last value of a key, from `wandb-summary.json`; nothing where that is cut off."""
    points = read_json(text, key, "_step")
    points.note = "from wandb-summary.json: the last value only" if points.values else ""
    return points
