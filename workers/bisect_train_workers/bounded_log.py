"""A log file that keeps its head and its tail: a program that writes gigabytes must not fill the disk."""

from __future__ import annotations

import types
from collections import deque
from pathlib import Path

HEAD_BYTES = 32 * 2**20
TAIL_BYTES = 8 * 2**20


class BoundedLog:
    """Writes to `path` up to `head_bytes`, keeps the last `tail_bytes` in memory, and appends them at the end."""

    def __init__(self, path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._file = path.open("wb", buffering=0)
        self._room = head_bytes
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_bytes = tail_bytes
        self.dropped_bytes = 0

    def write(self, data: bytes) -> None:
        """Take some of the program's output."""
        if self._room > 0:
            head, data = data[: self._room], data[self._room :]
            self._file.write(head)
            self._room -= len(head)
        if data:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_bytes:
            first = self._tail.popleft()
            self._tail_size -= len(first)
            self.dropped_bytes += len(first)

    def __enter__(self) -> BoundedLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        with self._file:
            if error is not None:
                return
            if self.dropped_bytes:
                self._file.write(b"\n[bisect-train: %d bytes of output left out]\n" % self.dropped_bytes)
            for part in self._tail:
                self._file.write(part)
