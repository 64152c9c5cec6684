"""When processes began and ended, seen from outside by the kernel's clocks: what a probe took beside the user's own process.

A program says its pid through a named pipe at its first line; a thread here then waits for its end by a pidfd. Its beginning is
the kernel's (10 ms fine; the later bound is taken, so that what is left for us is never flattered). Linux only.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Life:
    """One process: when it began and ended, seconds since boot."""

    began_s: float
    ended_s: float

    @property
    def span_s(self) -> float:
        """How long it lived, seconds."""
        return self.ended_s - self.began_s


class Lifetimes:
    """Collects the lives of the programs that write their pid to `pipe`; see `say_pid`."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self._fd = os.open(pipe, os.O_RDWR)
        self.say_pid = f"import os\nwith open({str(pipe)!r}, 'w') as told:\n    told.write(f'{{os.getpid()}}\\n')\n"
        self.lives: list[Life] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        data = b""
        while True:
            data += os.read(self._fd, 4096)
            *pids, data = data.split(b"\n")
            for pid in pids:
                threading.Thread(target=self._follow, args=(int(pid),), daemon=True).start()

    def _follow(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            began_s = (int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) + 1) * _TICK_S
            pidfd = os.pidfd_open(pid)
            select.select([pidfd], [], [])
            self.lives.append(Life(began_s, now_s()))
            os.close(pidfd)

    def take(self, *, within_s: float = 5.0) -> Life:
        """Return the life of the one program that has run since the last call."""
        deadline = time.monotonic() + within_s
        while not self.lives and time.monotonic() < deadline:
            time.sleep(0.002)
        (life,) = self.lives
        self.lives.clear()
        return life


def now_s() -> float:
    """Return the time since boot, seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def timed() -> Iterator[list[float]]:
    """Yield a list that holds the seconds that the block took, afterwards."""
    taken: list[float] = []
    began_s = now_s()
    yield taken
    taken.append(now_s() - began_s)
