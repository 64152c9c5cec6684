"""Processor time of a program's processes in the last seconds before its time limit. Standard library and psutil only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bisect_train_workers.late import LateModule

if TYPE_CHECKING:
    import psutil
else:
    psutil = LateModule("psutil")

_WINDOW_S = 5.0
_WINDOW_SHARE = 0.25  # of a time limit that is shorter than that


class CpuMeter:
    """Measures twice: once when the time limit comes near, and at the limit.

    Args:
        find: returns the program's processes.
        timeout_s: the time limit, seconds.
        deadline: when it is reached, on the monotonic clock.
    """

    def __init__(self, find: Callable[[], Iterable[psutil.Process]], *, timeout_s: float, deadline: float) -> None:
        self._find = find
        self._begins = deadline - min(_WINDOW_S, _WINDOW_SHARE * timeout_s)
        self._begun = 0.0
        self._before: dict[int, float] = {}

    def look(self) -> None:
        """Take the first measurement once it is time; costs nothing before and after."""
        if not self._begun and time.monotonic() >= self._begins:
            self._begun = time.monotonic()
            self._before = self._used()

    def cores(self) -> dict[int, float]:
        """Return the processor time per second of each living process by pid; 0 of all where no time has passed."""
        span_s = time.monotonic() - self._begun if self._begun else 0.0
        used = self._used()
        return {pid: (spent - self._before.get(pid, 0.0)) / span_s if span_s > 0 else 0.0 for pid, spent in used.items()}

    def _used(self) -> dict[int, float]:
        used = {}
        for process in self._find():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used[process.pid] = times.user + times.system
        return used
