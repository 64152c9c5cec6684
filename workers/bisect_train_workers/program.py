"""The worker's side of a supervised program: give the orders, wait, read the outcome."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from bisect_train_workers.node import NodeError
from bisect_train_workers.processes import SESSION_MARKER, sweep_orphans

_SUPERVISOR = Path(__file__).resolve().parent / "supervisor.py"
_PSUTIL = str(Path(psutil.__file__).resolve().parents[1])
"""The supervisor starts without site packages, which takes half the time, and needs this one."""
_END_S = 15.0
"""Time that a supervisor gets to end everything; it gives up on its own after 10 s."""


class SupervisorLostError(Exception):
    """The supervisor died: nothing is known about the program, the probe is lost."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The process that asked, when it is on this machine: its end is the probe's end.

    Attributes:
        pid: of the process.
        started: its `processes.start_mark`.
    """

    pid: int
    started: int


class SupervisorProcess(Protocol):
    """A supervisor's process: what a worker needs of `subprocess.Popen`."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    returncode: Any

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None:
        """Ask it to end everything."""

    def kill(self) -> None:
        """End it by force."""


class WarmStarter(Protocol):
    """Starts supervisors whose programs are forked; see `warm.client`."""

    def launch(self, orders: Mapping[str, Any], fds: Sequence[int]) -> SupervisorProcess | None:
        """Return the supervisor's process, None where a fresh one must be started; `fds` are locks that it holds."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run.

    Attributes:
        probe_id: for the marker of its processes.
        argv, cwd, env: of the program.
        log: file for its output.
        records: folder of the recorder's files.
        timeout_s: time limit, seconds.
        coordinator: whose end ends the program, or None.
        lock_fds: locks that the supervisor holds as long as it lives.
        warm: forks it from a process that has imported torch already; None starts a fresh process.
    """

    probe_id: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    log: Path
    records: Path
    timeout_s: float
    coordinator: Coordinator | None = None
    lock_fds: tuple[int, ...] = ()
    warm: WarmStarter | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended.

    Attributes:
        start_error: why it could not be started, else "".
        ended_by: itself, timeout or orders.
        status: exit status, negative for a signal; None if it was killed by us.
        run_s: time it ran, seconds.
        left_pids: processes that could not be ended.
        dropped_bytes: output that was not kept.
        cores: processor time per second that each process took in the last seconds before the time limit, by pid.
        is_warm: whether it was forked from a process that had imported torch.
    """

    start_error: str = ""
    ended_by: str = "itself"
    status: int | None = None
    run_s: float = 0.0
    left_pids: tuple[int, ...] = ()
    dropped_bytes: int = 0
    cores: Mapping[int, float] = field(default_factory=dict)
    is_warm: bool = False


class Running(Protocol):
    """A program that runs, on this node alone or on several."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end, at most `timeout_s` seconds; return whether it has come."""
        ...

    def outcome(self) -> Outcome:
        """Return how it ended. Raises SupervisorLostError, NodeError."""
        ...

    def logs(self) -> Sequence[str]:
        """Return what was printed on further nodes."""
        ...

    @property
    def oom_kills(self) -> int:
        """Processes that the kernels of further nodes killed for memory."""
        ...

    def end(self) -> None:
        """Have everything ended, and wait for it."""


class RunningProgram:
    """A program under its supervisor; use it through `supervise`."""

    def __init__(self, program: Program) -> None:
        self._outcome_path = program.log.with_suffix(".outcome")
        self._said = b""
        orders = self._orders_of(program)
        forked = program.warm.launch(orders, program.lock_fds) if program.warm is not None else None
        self._is_warm = forked is not None
        self._process: SupervisorProcess = forked or _start_fresh(orders, program.lock_fds)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end, at most `timeout_s` seconds; return whether it has come."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return False
        data = self._process.stdout.read1(65536)  # type: ignore[attr-defined]
        self._said += data
        if data:
            return False
        self._process.wait()
        return True

    def outcome(self) -> Outcome:
        """Return how it ended. Raises SupervisorLostError, NodeError."""
        if not self._outcome_path.exists():
            sweep_orphans()
            said = self._said.decode(errors="replace").strip()
            if "No space left on device" in said or "Read-only file system" in said:
                raise NodeError(f"cannot write {self._outcome_path.parent}: {said.splitlines()[-1]}")
            last = said.splitlines()[-1] if said else "killed"
            raise SupervisorLostError(f"the supervisor ended with {self._process.returncode}: {last}")
        data = json.loads(self._outcome_path.read_text(encoding="utf-8"))
        cores = {int(pid): value for pid, value in data.get("cores", {}).items()}
        return Outcome(**{**data, "left_pids": tuple(data.get("left_pids", ())), "cores": cores, "is_warm": self._is_warm})

    def logs(self) -> Sequence[str]:
        """Return what was printed on further nodes: there are none."""
        return ()

    @property
    def oom_kills(self) -> int:
        """Processes that the kernels of further nodes killed for memory."""
        return 0

    def end(self) -> None:
        """Have everything ended, and wait for it."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _orders_of(self, program: Program) -> dict[str, Any]:
        coordinator = program.coordinator
        return {
            "probe_id": program.probe_id,
            "argv": list(program.argv),
            "cwd": str(program.cwd),
            "env": dict(program.env),
            "log": str(program.log),
            "records": str(program.records),
            "outcome": str(self._outcome_path),
            "timeout_s": program.timeout_s,
            "coordinator": [coordinator.pid, coordinator.started] if coordinator else None,
        }


def _start_fresh(orders: Mapping[str, Any], lock_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_SUPERVISOR), _PSUTIL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name != SESSION_MARKER},
        pass_fds=lock_fds,
        start_new_session=True,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: `outcome` says so
        process.stdin.write(json.dumps(orders).encode())
        process.stdin.close()
    return process


@contextlib.contextmanager
def supervise(program: Program) -> Iterator[RunningProgram]:
    """Run a program; whatever happens in the block, all its processes are gone afterwards."""
    running = RunningProgram(program)
    try:
        yield running
    finally:
        running.end()


def run_to_end(program: Program) -> Outcome:
    """Run a program, always as a fresh process, and wait for it."""
    with supervise(replace(program, warm=None)) as running:
        while not running.wait(10.0):
            pass
        return running.outcome()
