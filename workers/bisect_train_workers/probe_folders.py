"""A private folder for each probe, removed at its end; of a killed worker by its guard, else by the next probe.

A folder belongs to whoever holds the lock in it: the worker and its supervisor.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bisect_train_workers.locks import hold_lock, try_lock
from bisect_train_workers.node import NodeError, NodeHome, disk_errors, remove_folder
from bisect_train_workers.processes import SESSION_MARKER

_SOCKET_ROOM = 60
"""Longest TMPDIR, in characters: python's multiprocessing adds about 35 and a socket's path ends at 107."""
_GUARD = Path(__file__).resolve().parent / "folder_guard.py"


@dataclass(frozen=True, slots=True)
class PrivateFolder:
    """A probe's own folder.

    Attributes:
        base: for everything of the probe but its checkout.
        tmp: for TMPDIR; lies in the system's temporary folder if `base` is too long for sockets.
        lock_fd: to be inherited by what uses the folder.
    """

    base: Path
    tmp: Path
    lock_fd: int


@contextlib.contextmanager
def take_private_folder(home: NodeHome, job_id: str) -> Iterator[PrivateFolder]:
    """Make a probe's folder, and remove it afterwards. Raises NodeError."""
    parent = home.probes
    with hold_lock(home.path / "probes.lock"):
        _remove_abandoned(parent)
        prefix = re.sub(r"[^A-Za-z0-9]", "", job_id)[:8] + "-"
        with disk_errors(parent):
            base = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = try_lock(base / "lock")
    assert lock is not None, base
    _guard.tell(base, is_made=True)
    try:
        tmp = _tmp_of(base)
        _make_own(tmp)
        if not tmp.is_relative_to(base):
            _guard.tell(base, tmp, is_made=True)
        yield PrivateFolder(base, tmp, lock.fd)
    finally:
        _remove(base)
        lock.release()
        _guard.tell(base, is_made=False)


class _Guard:
    """The guard of this process: started for its first folder, gone when the process is. See `folder_guard`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._of_pid = 0

    def tell(self, *folders: Path, is_made: bool) -> None:
        """Tell of the folders of a probe, the one with the lock first. Without a guard the next probe removes what is left."""
        with contextlib.suppress(OSError):
            if self._process is None or self._of_pid != os.getpid() or self._process.poll() is not None:
                if not is_made:
                    return
                self._process, self._of_pid = _start_guard(), os.getpid()
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([is_made, [str(path) for path in folders]]).encode() + b"\n")
            self._process.stdin.flush()


def _start_guard() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), str(Path(psutil.__file__).resolve().parents[1])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != SESSION_MARKER},
        cwd="/",
        start_new_session=True,
    )


_guard = _Guard()


def _make_own(folder: Path) -> None:
    """Make a folder, maybe in one that others write to: what is there already is not ours. Raises NodeError."""
    try:
        with disk_errors(folder):
            folder.mkdir(mode=0o700)
    except FileExistsError:
        raise NodeError(f"{folder} on {os.uname().nodename} is somebody else's, and this probe needs it") from None


def _tmp_of(base: Path) -> Path:
    inside = base / "tmp"
    return inside if len(str(inside)) <= _SOCKET_ROOM else Path(tempfile.gettempdir()) / f"bt-{base.name}"


def sweep_private_folders(home: NodeHome) -> None:
    """Remove the folders of probes that nobody runs any more; what cannot be removed stays."""
    with contextlib.suppress(NodeError, OSError):
        if (home.path / "probes").is_dir():
            with hold_lock(home.path / "probes.lock"):
                _remove_abandoned(home.probes)


def _remove_abandoned(parent: Path) -> None:
    for base in parent.iterdir():
        with contextlib.suppress(NodeError, OSError):
            lock = try_lock(base / "lock")
            if lock is not None:
                _remove(base)
                lock.release()


def _remove(base: Path) -> None:
    for path in (_tmp_of(base), base):
        with contextlib.suppress(OSError):
            if path.exists():
                remove_folder(path)
