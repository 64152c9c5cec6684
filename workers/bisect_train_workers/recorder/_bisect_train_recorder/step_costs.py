"""What a step costs besides wall time: CPU time of the process and its workers, and time on the CUDA device's clock."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any, Optional

from .first_batch import is_capturing

_CPUCLOCK_SCHED = 2  # Linux: clock id of a process is (~pid << 3) | 2, see clock_getcpuclockid(3)


def children_cpu_s() -> float:
    """Return CPU seconds of child processes: of those that have been waited for, and of Python's own that live."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = used.ru_utime + used.ru_stime
    for child in list(getattr(sys.modules.get("multiprocessing.process"), "_children", ())):
        pid = getattr(getattr(child, "_popen", None), "pid", None)
        try:
            total_s += time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
        except (OSError, TypeError, ValueError):  # gone, or not on Linux
            pass
    return total_s


class DeviceClock:
    """Marks the ends of steps in the device's stream, and reads the time between two of them once it is known."""

    def __init__(self, torch: Any) -> None:
        """Ask for no device before the program uses one."""
        self._torch = torch
        cuda = getattr(torch, "cuda", None)
        self._cuda = cuda if hasattr(torch._C, "_cuda_getDeviceCount") else None  # torch built without it: never asks

    def mark(self) -> Any:
        """Return an event that the device passes when it has done all that was asked of it so far; None without CUDA."""
        if self._cuda is None or not self._cuda.is_initialized() or is_capturing(self._torch):
            return None
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_s(self, earlier: Any, later: Any) -> Optional[float]:
        """Return the device's time between two marks in seconds; None where it has not come to the later one yet."""
        if earlier is None or later is None or not later.query():
            return None
        elapsed_ms: float = earlier.elapsed_time(later)
        return elapsed_ms / 1000.0
