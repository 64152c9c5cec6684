"""The worker's side of a warm start: which probes may be forked, and the server that they are forked from.

A program is started as a fresh process wherever a fork might not be the same thing: another interpreter, a launcher or several
ranks, packages of its own, variables that torch or python read when they start, a GPU. A server is started beside the first
probe that must be fresh, or by the first that may be forked from it, which waits for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bisect_train_workers.locks import try_lock
from bisect_train_workers.node import NodeError, NodeHome, make_folder, remove_folder
from bisect_train_workers.processes import start_mark
from bisect_train_workers.program import Coordinator, Program, SupervisorLostError
from bisect_train_workers.warm import server as warm_server
from bisect_train_workers.warm.shadows import has_shadows

_SERVER = Path(warm_server.__file__).resolve()
_PACKAGES = str(_SERVER.parents[2])
_CONNECT_S = 5.0
_START_S = 30.0
"""A server that imports torch is waited for so long, seconds; one that ends meanwhile, no longer."""
MAX_SERVERS = 4
"""On one node: each holds about 300 MiB, and there is one for each seed index, since their hash seeds differ."""

_READ_AT_START = re.compile(
    r"(PYTHON|OMP_|MKL_|KMP_|GOMP_|TORCH|PYTORCH_|CUDA_|NCCL_|GLOO_|ATEN_|LD_|OPENBLAS_|NUMEXPR_|DNNL_|LC_|LANG)"
)
"""Variables that python, torch or their libraries read once, when they start."""
_OF_ONE_PROBE = frozenset({"MASTER_PORT", "PWD", "TMPDIR", "PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"})
"""Set anew for each program, and read only when they are used."""


@dataclass(frozen=True, slots=True)
class Target:
    """What an interpreter is told to run.

    Attributes:
        kind: script or module.
        name: its path or name.
        arguments: of the program.
    """

    kind: str
    name: str
    arguments: tuple[str, ...]


def split_command(argv: Sequence[str], python: str) -> Target | None:
    """Return what a plain `python [-u] script.py ...` or `python [-u] -m module ...` runs; None for anything else."""
    if not argv or os.path.abspath(argv[0]) != os.path.abspath(python):
        return None
    rest = list(argv[1:])
    while rest and rest[0] == "-u":
        rest.pop(0)
    if len(rest) >= 2 and rest[0] == "-m" and not rest[1].startswith("-"):
        return None if rest[1].startswith("torch.distributed") else Target("module", rest[1], tuple(rest[2:]))
    if not rest or rest[0].startswith("-"):
        return None
    return Target("script", rest[0], tuple(rest[1:]))


class ForkedSupervisor:
    """The process of a supervisor that is no child of this one."""

    def __init__(self, pid: int, reading: int) -> None:
        """Take the pid and the pipe that it writes to."""
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = os.fdopen(reading, "rb")
        self.returncode: Any = None
        self._pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd, self.returncode = -1, 0

    def poll(self) -> int | None:
        """Return 0 once it has ended (its status is its parent's), None while it runs."""
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("the supervisor", timeout or 0.0)
        return status

    def terminate(self) -> None:
        """Ask it to end everything."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it by force."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._pidfd], [], [], timeout)[0]:
            self.returncode = 0
            os.close(self._pidfd)
        return None if self.returncode is None else 0


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A program that may be forked.

    Attributes:
        target: see Target.
        folder: of the server that it is forked from.
        env: of that server.
        coordinator: whose end ends the server, or None.
        recorder: folder of the probe's recorder.
        is_fresh: whether it must be a fresh process: then a server is only begun, for those that come later.
        ahead: servers for programs that come soon, which are begun one after the other behind this one.
    """

    target: Target
    folder: Path
    env: Mapping[str, str]
    coordinator: Coordinator | None
    recorder: Path
    is_fresh: bool = False
    ahead: tuple[WarmStart, ...] = ()

    def launch(self, orders: Mapping[str, Any], fds: Sequence[int]) -> ForkedSupervisor | None:
        """Return the process of a supervisor that forks the program, from a server that is begun if need be; None without one.

        Raises:
            SupervisorLostError: the server ended meanwhile.
        """
        deadline = time.monotonic() + _START_S
        connection = None if self.is_fresh else self._connect_soon(deadline)
        if connection is None:
            self._begin_server()
            if self.is_fresh:
                self._begin_ahead()
            # a process that imports torch for all is waited for: a fresh program beside it would import the same once more
            connection = None if self.is_fresh else self._connect_soon(deadline)
        if connection is None:
            return None
        if self._is_shadowed(Path(orders["cwd"]), orders["env"]):
            connection.close()
            return None
        reading, writing = os.pipe()
        own = os.getpid()
        request = self._request({**orders, "worker": [own, start_mark(own)]})
        try:
            with connection:
                socket.send_fds(connection, [request[:4]], [writing, *fds])
                connection.sendall(request[4:])
                (pid,) = struct.unpack("!I", connection.recv(4))
                supervisor = ForkedSupervisor(pid, reading)
        except (OSError, struct.error) as error:  # it may have forked one already: no second one beside it
            os.close(reading)
            raise SupervisorLostError(f"the warm process ended while it was asked: {error}") from error
        finally:
            os.close(writing)
        self._begin_ahead()
        return supervisor

    def _begin_ahead(self) -> None:
        """Start the servers that come soon; each waits for the one before, so that the first is there soonest."""
        before = self.folder
        for start in self.ahead:
            start._begin_server(after=before)
            before = start.folder

    def _is_shadowed(self, cwd: Path, env: Mapping[str, str]) -> bool:
        """Return whether the checkout has modules that a fork would not see, or the server does not say what it has loaded."""
        loaded = _state_of(self.folder).get("loaded")
        first = (cwd / self.target.name).parent if self.target.kind == "script" else cwd
        given = [cwd / entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
        inside = [entry for entry in given if entry.is_relative_to(cwd)]  # others are on the server's path, too
        return not loaded or has_shadows(cwd, [first, *inside], loaded)

    def _connect_soon(self, deadline: float) -> socket.socket | None:
        """Return a connection; a server that has just been started is waited for, once: one that is too slow is left alone."""
        slow = self.folder / "slow"
        while (connection := self._connect()) is None and self._is_starting() and not slow.exists():
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    slow.touch()
                return None
            time.sleep(0.02)
        return connection

    def _is_starting(self) -> bool:
        if not self.folder.is_dir() or (self.folder / "socket").exists() or _has_failed(self.folder):
            return False
        lock = try_lock(self.folder / "lock")
        if lock is not None:
            lock.release()
        return lock is None

    def _connect(self) -> socket.socket | None:
        """Return a connection to the server, None where there is none that works."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_CONNECT_S)
        try:
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:  # a socket's path has room for 107 characters
                connection.connect(f"/proc/self/fd/{fd}/socket")
            finally:
                os.close(fd)
        except OSError:
            connection.close()
            return None
        return connection

    def _begin_server(self, *, after: Path | None = None) -> None:
        """Start the server in the background, unless it is there, is being started, or cannot be had.

        Args:
            after: folder of a server that it lets go first.
        """
        with contextlib.suppress(OSError, NodeError):
            make_folder(self.folder).chmod(0o700)
            lock = try_lock(self.folder / "lock")
            if lock is None:
                return
            try:
                if not _has_failed(self.folder):
                    _make_room(self.folder.parent, self.folder)
                    self._start(lock.fd, after)
            finally:
                os.close(lock.fd)  # without giving the lock back: the server has it now

    def _request(self, orders: Mapping[str, Any]) -> bytes:
        """Return the request that the server is sent, its length before it."""
        target = {"kind": self.target.kind, "name": self.target.name, "arguments": list(self.target.arguments)}
        data = json.dumps({"orders": orders, "target": target, "recorder": str(self.recorder)}).encode()
        return struct.pack("!I", len(data)) + data

    def _start(self, lock_fd: int, after: Path | None) -> None:
        for name in ("new", "socket", "state", "slow"):
            (self.folder / name).unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, str(_SERVER)],
            env=dict(self.env),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock_fd,),  # held as long as the server lives
        )
        orders = {
            "folder": str(self.folder),
            "after": str(after) if after else "",
            "coordinator": [self.coordinator.pid, self.coordinator.started] if self.coordinator else None,
            "preload": list(warm_server.PRELOADED),
            "package_folder": _PACKAGES,
            "lock_fd": lock_fd,
        }
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(orders).encode())


def find_warm_start(
    program: Program,
    *,
    python: str,
    gpus: float,
    recorder: Path,
    home: NodeHome,
    is_fresh: bool = False,
    ahead: Sequence[str] = (),
) -> WarmStart | None:
    """Return how a program is started from a warm process; None where it must be a fresh one.

    Args:
        program: with its complete argument list and environment.
        python: interpreter that `python` in the command stands for.
        gpus: that the probe has.
        recorder: folder of the probe's recorder, first on its path.
        home: of this node.
        is_fresh: whether this one must be a fresh process nevertheless.
        ahead: hash seeds of programs that come soon, alike but for those.
    """
    if gpus or not sys.platform.startswith("linux") or os.path.abspath(python) != os.path.abspath(sys.executable):
        return None
    target = split_command(program.argv, python)
    given = [entry for entry in program.env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if target is None or str(recorder) not in given[:1]:
        return None
    shared = {name: value for name, value in program.env.items() if name not in _OF_ONE_PROBE}
    own = [entry for entry in given[1:] if Path(entry).is_absolute() and not Path(entry).is_relative_to(program.cwd)]
    if own:
        shared["PYTHONPATH"] = os.pathsep.join(own)
    coordinator = program.coordinator

    def start(env: Mapping[str, str], *later: WarmStart) -> WarmStart:
        return WarmStart(target, home.path / "warm" / _digest(env, coordinator), env, coordinator, recorder, is_fresh, later)

    return start(shared, *(start({**shared, "PYTHONHASHSEED": seed}) for seed in ahead))


def _digest(env: Mapping[str, str], coordinator: Coordinator | None) -> str:
    """Return what tells servers apart, and the hash seed, which tells whom to keep."""
    read = sorted((name, value) for name, value in env.items() if _READ_AT_START.match(name))
    key = [sys.executable, read, [coordinator.pid, coordinator.started] if coordinator else None]
    return f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}-{env.get('PYTHONHASHSEED', '')}"


def _has_failed(folder: Path) -> bool:
    return bool(_state_of(folder).get("trouble"))


def _state_of(folder: Path) -> dict[str, Any]:
    try:
        state = json.loads((folder / "state").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _make_room(parent: Path, own: Path) -> None:
    """Have the server that was used least lately end where there are as many as may be; folders of dead ones are removed."""
    listening: list[tuple[bool, float, Path]] = []
    num_starting = 0
    for folder in parent.iterdir():
        if folder == own:
            continue
        lock = try_lock(folder / "lock")
        if lock is not None:
            try:
                remove_folder(folder)
            finally:
                lock.release()
        elif (folder / "socket").exists():
            with contextlib.suppress(OSError):
                is_of_search = folder.name.endswith("-0")  # a search runs seed index 0, so that one is the last to go
                listening.append((is_of_search, (folder / "state").stat().st_mtime, folder))
        elif not (folder / "state").exists():  # else it has been told to go
            num_starting += 1
    if listening and len(listening) + num_starting >= MAX_SERVERS:
        (min(listening)[2] / "socket").unlink(missing_ok=True)  # it ends once it sees that; programs that it forked go on
