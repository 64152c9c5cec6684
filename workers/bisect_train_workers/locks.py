"""Locks between the processes of one node, as `flock` on a file.

`filelock` does the same but hides its descriptor; ours is handed to child processes (git, the supervisor), so that a
slot stays taken until the last of them is gone, however the worker died.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train_workers.node import disk_errors


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that this process holds until `release` or its end."""

    fd: int

    def release(self) -> None:
        """Give the lock back, also for children that inherited it."""
        with contextlib.suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)


def try_lock(path: Path) -> HeldLock | None:
    """Return the lock of `path`, or None if someone holds it. Raises NodeError if the file cannot be made."""
    return _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[int]:
    """Wait for the lock of `path` and hold it; yields its descriptor."""
    held = _lock(path, fcntl.LOCK_EX)
    assert held is not None
    try:
        yield held.fd
    finally:
        held.release()


def _lock(path: Path, flags: int) -> HeldLock | None:
    with disk_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, flags)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return HeldLock(fd)
