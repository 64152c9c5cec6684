"""Start a local Ray or join a cluster, quietly, and give back what was started.

A local Ray gets its own short temporary folder (its sockets lie there, and a socket's path ends at 107 characters), no
dashboard, and no memory monitor: the monitor would kill our worker, and with it the probe, for what the user's program
uses, and a program out of memory is evidence.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import ray

from bisect_train.core.errors import InputError, MachineError
from bisect_train_workers.locks import HeldLock, try_lock
from bisect_train_workers.node import NodeError
from bisect_train_workers.node_facts import count_cpus
from bisect_train_workers.processes import SESSION_MARKER, start_mark
from bisect_train_workers.ray_node import CARRIED_FOLDER

_KILLS_CHILDREN = "RAY_kill_child_processes_on_worker_exit"
"""Where it is true, a worker that ends kills supervisors before they have cleaned up; a cluster's nodes may say so."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    _KILLS_CHILDREN: "false",
    "RAY_worker_niceness": "0",  # else 15: programs would yield to everything else on the machine
}
_PREFIX = "bt-ray-"
_TEMP_ROOM = 27
"""Longest parent of a session's folder, in characters: 16 for that folder's name, then Ray adds 62 to its sockets' paths."""
_GUARD_S = 15.0
_ANSWER_S = 10.0
"""Time in which a cluster's address must take a connection."""
_STORE_BYTES = 512 * 2**20
"""Ray's object store holds git packs and results only; what does not fit goes to disk."""
CARRIED = ("platformdirs", "fsspec")
"""Packages of python code only that our workers import, and that a node with nothing but Ray lacks; its own ones come first."""


class RaySession:
    """A connection to Ray; `close` ends what it started.

    Args:
        address: of a cluster; "" starts a local Ray.
        temp_folder: for a local Ray's files and our code; the system's if the path is too long for sockets.
        cpus: logical CPUs of a local Ray; None takes what this process may use.
    """

    def __init__(self, *, address: str = "", temp_folder: Path | None = None, cpus: int | None = None) -> None:
        self.is_local = not address
        _require_answer(address)
        self._temp, self._lock = _make_temp_folder(temp_folder)
        self._is_open = True
        atexit.register(self.close)
        settings: dict[str, Any] = self._local_settings(cpus) if self.is_local else {"address": address}
        code = copy_code(self._temp, carried=() if self.is_local else CARRIED)
        settings["runtime_env"] = {"working_dir": str(code), "env_vars": {_KILLS_CHILDREN: "false"}}
        self._guard = _start_guard(self._temp) if self.is_local else None
        try:
            with _own_sigterm(), _quiet_environment(self._temp if self.is_local else None), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                logging.getLogger("ray").setLevel(logging.ERROR)
                ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **settings)
            if self._guard is not None:
                _name_processes(self._guard, self._temp)
        except Exception as error:  # Ray raises half a dozen unrelated types here
            self.close()
            last = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise MachineError(
                f"Ray could not be {'started' if self.is_local else 'reached at ' + address}: {last}",
                hint="try `ray status`, or run without --address",
            ) from error

    def close(self) -> None:
        """Disconnect; a local Ray is shut down and its files removed."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.close)
        if self.is_local:
            _kill_monitor(self._temp)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.shutdown()
        if self._guard is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.communicate(timeout=_GUARD_S)  # closes its stdin: it mops up
        shutil.rmtree(self._temp, ignore_errors=True)
        self._lock.release()

    def _local_settings(self, cpus: int | None) -> dict[str, Any]:
        return {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": cpus or count_cpus(),
            "object_store_memory": _STORE_BYTES,
            "_temp_dir": str(self._temp),
        }


def _require_answer(address: str) -> None:
    """Raise MachineError where nobody listens at `host:port`, where Ray would try for minutes; InputError for a client's."""
    if address.startswith("ray://"):
        raise InputError(
            f"{address} is the address of a Ray client, through which no probe can be placed",
            hint="run bisect-train on a node of the cluster, with --address auto",
        )
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return  # `auto` and the like
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise MachineError(
            f"Ray could not be reached at {address}: {error}",
            hint="`ray status` on a node says whether the cluster runs; --address auto takes the one of this machine",
        ) from None


def copy_code(folder: Path, *, carried: Sequence[str] = ()) -> Path:
    """Copy the two packages that a worker needs, and others by name, to a folder that Ray carries to the nodes.

    As a working directory, and not as modules: otherwise Ray puts the caller's current folder, often the user's
    repository, first on the workers' path, where a `random.py` would break them.
    """
    import bisect_train
    import bisect_train_workers

    target = folder / "code"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "tests")
    core = Path(bisect_train.__file__ or "").parent
    for source in (core / "core", Path(bisect_train_workers.__file__ or "").parent):
        name = f"bisect_train/{source.name}" if source.name == "core" else source.name
        shutil.copytree(source, target / name, ignore=ignored)
    shutil.copy(core / "__init__.py", target / "bisect_train" / "__init__.py")
    for name in carried:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            shutil.copytree(Path(found.origin).parent, target / CARRIED_FOLDER / name, ignore=ignored)
    return target


def _make_temp_folder(wanted: Path | None) -> tuple[Path, HeldLock]:
    """Make a folder for one session and lock it; those that killed coordinators left behind are removed."""
    parent = choose_temp_parent(wanted)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(parent)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = try_lock(folder / "lock")
        assert lock is not None, folder
    except (OSError, NodeError) as error:
        raise MachineError(f"no folder for Ray's files: {error}", hint="free some space or set TMPDIR") from error
    return folder, lock


def choose_temp_parent(wanted: Path | None) -> Path:
    """Return the first of the wanted folder, the system's and /tmp whose path is short enough for Ray's sockets."""
    candidates = [path for path in (wanted, Path(tempfile.gettempdir()), Path("/tmp")) if path is not None]
    return next((path for path in candidates if len(str(path)) <= _TEMP_ROOM), candidates[-1])


def _remove_leftovers(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        if folder.is_symlink() or not (folder / "lock").is_file():
            continue
        with contextlib.suppress(NodeError, OSError):
            lock = try_lock(folder / "lock")
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def _start_guard(temp: Path) -> subprocess.Popen[bytes]:
    guard = Path(__file__).resolve().parent / "ray_guard.py"
    arguments = [sys.executable, "-I", str(guard), temp.name, str(temp)]
    return subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _name_processes(guard: subprocess.Popen[bytes], temp: Path) -> None:
    """Tell the guard which processes Ray has started, and what those started."""
    assert guard.stdin is not None
    for child, _ in _children_of_ray(temp):
        with contextlib.suppress(psutil.Error):
            for process in [child, *child.children(recursive=True)]:
                if process.pid != guard.pid:
                    guard.stdin.write(b"%d %d\n" % (process.pid, start_mark(process.pid)))
    guard.stdin.flush()


def _kill_monitor(temp: Path) -> None:
    """Kill the process that starts and ends nodes, of which there are none here: it is slow to hear that it is to end."""
    for child, command in _children_of_ray(temp):
        if any(argument.endswith("/monitor.py") for argument in command):
            with contextlib.suppress(psutil.Error):
                child.kill()


def _children_of_ray(temp: Path) -> Iterator[tuple[psutil.Process, list[str]]]:
    """Yield our children that were given a local Ray's folder, with their command lines."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            command = child.cmdline()
            if any(str(temp) in argument for argument in command):
                yield child, command


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's handling of SIGTERM: Ray puts one in its place that writes a stack and aborts."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _quiet_environment(own_temp: Path | None) -> Iterator[None]:
    """Set Ray's variables while it starts.

    A local Ray (`own_temp`) gets a token of its own, so none is written to the home folder, and the guard's marker.
    """
    own = {"RAY_AUTH_TOKEN": make_token(), SESSION_MARKER: own_temp.name} if own_temp else {}
    added = {**_QUIET, **own}
    added = {name: value for name, value in added.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@functools.cache
def make_token() -> str:
    """Return this process's token; Ray reads it once per process, so a second local Ray needs the same."""
    return secrets.token_hex(32)
