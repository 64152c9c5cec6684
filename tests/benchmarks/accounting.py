"""Runs a command and measures what it and everything that it started took: wall time, processor time, exit status.

The command runs under a small process of its own that takes over orphans (Linux), so that daemons (Ray's, a warm process) are
counted too once they have ended. This file is that process's program as well; it is started without site packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_LEFT_S = 20.0
"""Time that daemons get to end after the command, seconds; then they are killed."""


@dataclass(frozen=True)
class Spent:
    """What a command took.

    Attributes:
        status: exit status.
        output: stdout and stderr.
        wall_s: from its start to its own end, seconds.
        cpu_s: processor time of it and of all that it started, seconds.
        began_s: when it was started, seconds since the epoch.
    """

    status: int
    output: str
    wall_s: float
    cpu_s: float
    began_s: float

    @property
    def ended_s(self) -> float:
        """When it ended, seconds since the epoch."""
        return self.began_s + self.wall_s


def run_accounted(command: Sequence[str], *, folder: Path, env: Mapping[str, str], timeout_s: float = 7200.0) -> Spent:
    """Run a command in a folder with exactly this environment."""
    with tempfile.TemporaryDirectory() as name:
        told = Path(name) / "spent.json"
        outer = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(told), *command]
        done = subprocess.run(
            outer, cwd=folder, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s
        )
        assert told.exists(), done.stdout
        data = json.loads(told.read_text())
    return Spent(data["status"], done.stdout, data["wall_s"], data["cpu_s"], data["began_s"])


def describe_machine() -> str:
    """Return what figures depend on: cores, load average, and how long a start of `git version` takes now (median of 15)."""
    times = []
    for _ in range(15):
        started = time.perf_counter()
        subprocess.run(["git", "version"], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    cpus, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return f"{cpus} cores, load average {load:.1f}, `git version` takes {sorted(times)[7] * 1e3:.1f} ms"


def _main(told: str, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began_s, started = time.time(), time.monotonic()
    status = subprocess.call(command)
    wall_s = time.monotonic() - started
    _collect_orphans()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = {"status": status, "wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime, "began_s": began_s}
    with open(told, "w", encoding="utf-8") as file:
        json.dump(data, file)


def _collect_orphans() -> None:
    deadline = time.monotonic() + _LEFT_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                for child in _children():
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.05)


def _children() -> list[int]:
    """Return the pids whose parent is this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == os.getpid():
            found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
