"""One small process per program: starts it, keeps its log within bounds, ends it and everything it started.

It is run as a file (`python -I supervisor.py`) with its orders as JSON on stdin, and writes its outcome to a file.
It is a child subreaper, so that ranks in sessions of their own and daemons come to it and not to init. It ends
everything when its parent or the coordinator is gone, at the time limit, at SIGTERM, and when the program has ended.
Only the standard library, psutil and four files beside this one are imported: it must start fast and never fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

if __name__ == "__main__":  # -I and -S leave out of the path our own folder, and psutil's, which is the first argument
    sys.path[:] = [str(Path(__file__).resolve().parent.parent), *sys.path, *sys.argv[1:]]

from bisect_train_workers import processes
from bisect_train_workers.bounded_log import BoundedLog
from bisect_train_workers.cpu_meter import CpuMeter
from bisect_train_workers.late import LateModule

if TYPE_CHECKING:
    import psutil
else:
    psutil = LateModule("psutil")

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_PULSE_S = 0.05
_STACKS_S = 2.0


class Child(Protocol):
    """The program's first process: what a supervisor needs of `subprocess.Popen`."""

    pid: int
    stdout: IO[bytes] | None
    returncode: Any

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        ...


class Supervisor:
    """Runs one program to its end. See `run`."""

    def __init__(self, orders: dict[str, Any], parent_pid: int, child: Child | None = None) -> None:
        """Follow the orders; `parent_pid` is that of the worker or the warm server, `child` a program that runs already."""
        self._orders = orders
        self._parent_pid = parent_pid
        self._given = child
        self._marker = processes.make_marker(orders["probe_id"], os.getpid())
        self._is_told_to_stop = False
        self._next_reap = 0.0
        self._child_pid = 0

    def run(self) -> dict[str, Any]:
        """Run the program; returns the outcome (see `program.Outcome`)."""
        signal.signal(signal.SIGTERM, self._stop)
        # Handlers, since the program would inherit SIG_IGN. SIGHUP is the parent's death: it only wakes the loop.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        tie_to_parent(signal.SIGHUP)
        started = time.monotonic()
        try:
            child = self._start()
        except OSError as error:
            return {"start_error": f"{error.strerror}: {error.filename or self._orders['argv'][0]}"}
        assert child.stdout is not None
        left: list[int] = []
        cores: dict[int, float] = {}
        timeout_s = self._orders["timeout_s"]
        meter = CpuMeter(processes.find_descendants, timeout_s=timeout_s, deadline=started + timeout_s)
        with BoundedLog(Path(self._orders["log"])) as log, child.stdout as pipe:
            try:
                why = self._watch(child, pipe, log, started + timeout_s, meter)
                run_s, status = time.monotonic() - started, child.returncode
                if why == "timeout":
                    cores = meter.cores()
                    self._dump_stacks()
            finally:  # also when the log cannot be written
                left = self._end_everything(child)
            _drain(pipe, log)
            dropped = log.dropped_bytes
        ended = {"ended_by": why, "status": status, "run_s": run_s, "left_pids": left, "dropped_bytes": dropped}
        return {**ended, "cores": cores}

    def _start(self) -> Child:
        orders, own_pid = self._orders, os.getpid()
        if self._given is not None:
            self._child_pid = self._given.pid
            return self._given
        child = subprocess.Popen(
            orders["argv"],
            cwd=orders["cwd"],
            env={**orders["env"], processes.MARKER: self._marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: tie_to_parent(signal.SIGKILL, parent_pid=own_pid),
        )
        self._child_pid = child.pid
        return child

    def _watch(self, child: Child, pipe: IO[bytes], log: BoundedLog, deadline: float, meter: CpuMeter) -> str:
        """Feed the log until the program ends or has to be ended; returns why."""
        os.set_blocking(pipe.fileno(), False)
        with selectors.DefaultSelector() as selector, _notice_end(child.pid, selector) as is_noticed:
            selector.register(pipe, selectors.EVENT_READ)
            is_open = True
            while True:
                ready = selector.select(_PULSE_S if is_open or is_noticed else _PULSE_S / 5)
                if is_open and any(key.fileobj is pipe for key, _ in ready):
                    is_open = _copy(pipe, log)
                    if not is_open:
                        selector.unregister(pipe)
                if child.poll() is not None:
                    return "itself"
                self._reap_now_and_then()
                meter.look()
                if self._is_told_to_stop or self.is_orphan():
                    return "orders"
                if time.monotonic() > deadline:
                    return "timeout"

    def is_orphan(self) -> bool:
        """Return whether the worker or the coordinator is gone."""
        if self._given is None and os.getppid() != self._parent_pid:
            return True
        watched = (self._orders.get("coordinator"), self._orders.get("worker"))
        return any(process is not None and not processes.is_same_process(*process) for process in watched)

    def _reap_now_and_then(self) -> None:
        if time.monotonic() >= self._next_reap:
            self._next_reap = time.monotonic() + 1.0
            processes.reap_children(self._child_pid)

    def _stop(self, *_: object) -> None:
        self._is_told_to_stop = True

    def _dump_stacks(self) -> None:
        """Ask the processes that have a stacks file to write their stacks, and wait until they have."""
        files = []
        for process in processes.find_descendants():
            for file in Path(self._orders["records"]).glob(f"stacks-rank*-pid{process.pid}.txt"):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGUSR1)
                    files.append(file)
        deadline, sizes = time.monotonic() + _STACKS_S, [-1]
        while files and time.monotonic() < deadline:
            time.sleep(0.1)
            before, sizes = sizes, [file.stat().st_size for file in files]
            if sizes == before and all(sizes):
                return

    def _end_everything(self, child: Child) -> list[int]:
        def reap() -> None:
            processes.reap_children(child.pid)

        left = processes.end_all(processes.find_descendants, reap=reap)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)
        return left + processes.end_all(lambda: processes.find_marked(self._marker.__eq__), reap=reap)


@contextlib.contextmanager
def _notice_end(pid: int, selector: selectors.BaseSelector) -> Iterator[bool]:
    """Have a selector wake at a child's end; yields whether it will (Linux only)."""
    if not hasattr(os, "pidfd_open"):
        yield False
        return
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # an old kernel, or none left
        yield False
        return
    try:
        selector.register(pidfd, selectors.EVENT_READ)
        yield True
    finally:
        os.close(pidfd)


def _copy(pipe: IO[bytes], log: BoundedLog) -> bool:
    """Move what the pipe holds, 1 MiB at most, to the log; returns whether the pipe is still open."""
    try:
        data = os.read(pipe.fileno(), 2**20)
    except BlockingIOError:
        return True
    log.write(data)
    return bool(data)


def _drain(pipe: IO[bytes], log: BoundedLog) -> None:
    """Move the rest to the log: at most what a pipe can hold, since nobody may write to it any more."""
    for _ in range(16):
        try:
            data = os.read(pipe.fileno(), 2**20)
        except BlockingIOError:
            return
        if not data:
            return
        log.write(data)


def tie_to_parent(signal_number: int, *, parent_pid: int = 0) -> None:
    """Have the kernel send a signal when the parent ends (Linux only).

    Args:
        signal_number: what is sent.
        parent_pid: the parent as it should be; if it is gone already, this process ends at once. 0: not checked.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if parent_pid and os.getppid() != parent_pid:
        os._exit(1)


def become_subreaper() -> None:
    """Have orphaned descendants handed to this process and not to init (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Read the orders, run the program, write the outcome beside and rename it; without a worker nobody reads one."""
    parent_pid = os.getppid()
    become_subreaper()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    orders = json.loads(sys.stdin.buffer.read())
    _supervise(Supervisor(orders, parent_pid), orders)


def supervise_fork(orders: dict[str, Any], child: Child) -> None:
    """Supervise a program that was forked from a warm process, in a subreaper of its own."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _supervise(Supervisor(orders, os.getppid(), child), orders)


def _supervise(supervisor: Supervisor, orders: dict[str, Any]) -> None:
    outcome = supervisor.run()
    if supervisor.is_orphan():
        return
    path = Path(orders["outcome"])
    path.with_suffix(".tmp").write_text(json.dumps(outcome), encoding="utf-8")
    path.with_suffix(".tmp").rename(path)


if __name__ == "__main__":
    main()
