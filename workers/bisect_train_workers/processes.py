"""Find and end processes that belong to a probe. Standard library and psutil only: the supervisor imports this file.

A probe's processes carry `BISECT_TRAIN_PROBE=<marker>` in their environment; the marker names the supervisor that
started them (pid and start time), so that leftovers of a dead one are told from the processes of a living one.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_train_workers.late import LateModule

if TYPE_CHECKING:
    import psutil
else:
    psutil = LateModule("psutil")

MARKER = "BISECT_TRAIN_PROBE"
SESSION_MARKER = "BISECT_TRAIN_RAY_SESSION"
"""Carried by the processes of a local Ray, not by supervisors and programs; see `ray_guard`."""

_PROC = Path("/proc/self")
_GIVE_UP_S = 10.0
"""A process in uninterruptible sleep cannot be killed; after this long it is reported and left."""


def make_marker(probe_id: str, supervisor_pid: int) -> str:
    """Return the marker of the processes that this supervisor starts for a probe."""
    return f"{probe_id}:{_pid_namespace()}:{supervisor_pid}:{start_mark(supervisor_pid)}"


def start_mark(pid: int) -> int:
    """Return a number that tells a process from an earlier one with its pid; 0 without one, or if it is a zombie.

    On Linux the kernel's clock ticks since boot, which no correction of the wall clock moves; elsewhere milliseconds.
    """
    stat = Path(f"/proc/{pid}/stat")
    try:
        if _PROC.is_dir():
            # fields after the name, which may hold anything: state, ppid, ... and as the 20th the start
            state, *fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            return 0 if state in ("Z", "X") else int(fields[18])
        return round(psutil.Process(pid).create_time() * 1000)
    except (OSError, psutil.Error, IndexError, ValueError):
        return 0


def is_same_process(pid: int, started: int) -> bool:
    """Return whether the process whose `start_mark` this was is still alive."""
    return started != 0 and start_mark(pid) == started


def _pid_namespace() -> str:
    """Return which numbering pids belong to: another container's processes may be visible here, under other pids."""
    try:
        return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return "0"


def find_marked(accept: Callable[[str], bool], *, variable: str = MARKER) -> list[psutil.Process]:
    """Return the living processes, of this user, whose marker is accepted; never the calling process."""
    found = []
    for pid in psutil.pids():
        marker = _read_variable(pid, variable)
        if marker and accept(marker) and pid != os.getpid():
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(pid))
    return _living(found)


def find_users_of(folder: Path) -> list[psutil.Process]:
    """Return the living processes, of this user, that hold a file below a folder open; never the calling process."""
    inside = f"{folder}{os.sep}"
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            descriptors = [entry.path for entry in os.scandir(f"/proc/{pid}/fd")]
            if pid != os.getpid() and any(_target_of(path).startswith(inside) for path in descriptors):
                found.append(psutil.Process(pid))
    return _living(found)


def _target_of(link: str) -> str:
    try:
        return str(Path(link).readlink())
    except OSError:  # closed meanwhile
        return ""


def find_descendants() -> list[psutil.Process]:
    """Return the living descendants of the calling process."""
    return _living(psutil.Process().children(recursive=True))


def is_orphan(marker: str) -> bool:
    """Return whether the supervisor that a marker names is gone."""
    try:
        _, namespace, pid, started = marker.rsplit(":", 3)
        return namespace == _pid_namespace() and not is_same_process(int(pid), int(started))
    except ValueError:
        return False


def end_all(find: Callable[[], Iterable[psutil.Process]], *, reap: Callable[[], None] | None = None) -> list[int]:
    """Kill what `find` returns until it returns nothing.

    Args:
        find: called again and again, since processes start others while they are being killed.
        reap: collects dead children meanwhile, or None where others wait for them.
    Returns:
        Pids that could not be ended.
    """
    deadline = time.monotonic() + _GIVE_UP_S
    pause_s = 0.002
    while True:
        if reap is not None:
            reap()
        alive = list(find())
        if not alive or time.monotonic() > deadline:
            return [process.pid for process in alive]
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)


def reap_children(spare_pid: int) -> None:
    """Collect this subreaper's dead children, but for the one that someone else waits for."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if child.pid != spare_pid and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def sweep_orphans() -> list[int]:
    """End what dead supervisors of this user left behind on this node; returns pids that could not be ended."""
    return end_all(lambda: find_marked(is_orphan))


def _living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    living = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                living.append(process)
    return living


def _read_variable(pid: int, name: str) -> str:
    """Return a variable of a process's environment, "" without it or where it may not be read."""
    try:
        if _PROC.is_dir():
            start = name.encode() + b"="
            found = [item for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if item.startswith(start)]
            return found[0][len(start) :].decode(errors="replace") if found else ""
        return psutil.Process(pid).environ().get(name, "")
    except (OSError, psutil.Error):
        return ""
