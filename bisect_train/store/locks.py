"""One coordinator per bisection: file locks beside the database; the kernel frees them when their process dies."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bisect_train.core.errors import MachineError
from bisect_train.store.contract import lock_held, no_bisection

_PATIENCE_S = 1.0  # `is_running` takes a lock for an instant; a coordinator that starts just then waits for it
_LOOK_S = 0.02  # another process that asks has the lock for an instant, too
_LOOK_POLL_S = 0.002
_LOOKS = threading.Lock()  # one look at a time, so that threads that ask do not see each other


class LockFolder:
    """The locks of one database, `ID.lock`, with the holder's process id in `ID.pid`.

    The id stands in a file of its own since opening a lock may empty it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, bisection_id: str) -> Iterator[None]:
        """Hold a bisection's lock. Raises InputError if it is held, MachineError if the folder cannot be written."""
        path, pid_path = self._paths(bisection_id)
        lock = FileLock(path, timeout=_PATIENCE_S)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise lock_held(bisection_id, _read_pid(pid_path)) from None
        except OSError as error:
            raise MachineError(
                f"{path}: cannot lock this bisection: {error.strerror or error}",
                hint="free some space or give a folder that can be written: BISECT_TRAIN_HOME=DIR",
            ) from None
        try:
            _write_pid(pid_path)
            yield
        finally:
            pid_path.unlink(missing_ok=True)
            lock.release()

    def is_held(self, bisection_id: str) -> bool:
        """Return whether any process holds a bisection's lock."""
        path, _ = self._paths(bisection_id)
        if not path.exists():
            return False
        lock = FileLock(path, timeout=_LOOK_S)
        with _LOOKS:
            try:
                lock.acquire(poll_interval=_LOOK_POLL_S)
            except (Timeout, PermissionError):
                return True
            except OSError:
                return False
            lock.release()
        return False

    def is_held_now(self, _connection: object, bisection_id: str) -> bool:
        """Return the same; a lock of a file needs no connection (as `leases.LeaseBook` does)."""
        return self.is_held(bisection_id)

    def check(self, _connection: object, _bisection_id: str) -> None:
        """Do nothing: the lock of a file is not lost while its process lives."""

    def check_known(self, _bisection_id: str) -> None:
        """Do nothing, see `check`."""

    def _paths(self, bisection_id: str) -> tuple[Path, Path]:
        if not re.fullmatch(r"[0-9a-f]+", bisection_id):
            raise no_bisection(bisection_id)
        return self._folder / f"{bisection_id}.lock", self._folder / f"{bisection_id}.pid"


def _read_pid(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _write_pid(path: Path) -> None:
    """Write our process id beside the lock; it is only for a message, so a full disk does not stop anything."""
    try:
        path.write_text(str(os.getpid()), encoding="ascii")
    except OSError:
        return
