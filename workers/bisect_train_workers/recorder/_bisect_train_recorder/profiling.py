"""Runs torch's profiler over some steps: which operations take the time. For a run of its own, since it slows the steps."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Dict, List, Optional

FIRST_STEP = 3  # steps before it compile, allocate and fill caches
MAX_STEPS = 10
MAX_OPERATIONS = 80


class StepProfiler:
    """Profiles up to MAX_STEPS whole steps, and writes one event with each operation's own times."""

    def __init__(self, session: Any, torch: Any) -> None:
        """Wait for the first step to be profiled: earlier in a run of few steps."""
        self._session = session
        self._torch = torch
        num_steps = session.settings.num_steps
        self._first = FIRST_STEP if num_steps is None else min(FIRST_STEP, max(0, num_steps - 2))
        self._profiler: Any = None
        self._started_at = 0.0
        self._num_steps = 0
        self._is_done = False

    def step_ended(self, step_idx: int) -> None:
        """Begin after the step before the first one, and end after the last."""
        if self._is_done:
            return
        if self._profiler is None:
            if step_idx + 1 >= self._first:
                self._begin()
            return
        self._num_steps += 1
        if self._num_steps >= MAX_STEPS:
            self.finish()

    def finish(self) -> None:
        """Event profile: end the profile, if one is running, and write what it says."""
        if self._profiler is None or self._is_done:
            return
        self._is_done = True
        self._synchronize()
        wall_s = perf_counter() - self._started_at
        self._profiler.__exit__(None, None, None)
        if self._num_steps:
            rows = operations_of(self._profiler.key_averages())
            data = {"steps": self._num_steps, "wall_s": wall_s, "operations": rows[:MAX_OPERATIONS]}
            self._session.event("profile", **data, others=_total(rows[MAX_OPERATIONS:]))

    def _begin(self) -> None:
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._synchronize()
        self._profiler = profiler.profile(activities=activities, profile_memory=True)
        self._profiler.__enter__()
        self._started_at = perf_counter()

    def _synchronize(self) -> None:
        if self._torch.cuda.is_available() and self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()


def operations_of(averages: Any) -> List[List[Any]]:
    """Return [name, own CPU seconds, own device seconds, calls, bytes allocated and kept] of operations, the slowest first."""
    rows = []
    for item in averages:
        cpu_s = 1e-6 * float(_first_of(item, ("self_cpu_time_total",)) or 0.0)
        device_s = 1e-6 * float(_first_of(item, ("self_device_time_total", "self_cuda_time_total")) or 0.0)
        kept = [
            _first_of(item, ("self_cpu_memory_usage",)),
            _first_of(item, ("self_device_memory_usage", "self_cuda_memory_usage")),
        ]
        rows.append([str(item.key)[:120], cpu_s, device_s, int(item.count), sum(int(value or 0) for value in kept)])
    return sorted(rows, key=lambda row: (-(row[1] + row[2]), row[0]))


def _first_of(item: Any, names: Any) -> Optional[Any]:
    """Return the first attribute that there is: torch 2.4 renamed them."""
    return next((getattr(item, name) for name in names if hasattr(item, name)), None)


def _total(rows: List[List[Any]]) -> Dict[str, Any]:
    """Return what the operations that are not listed take together."""
    return {"num": len(rows), "cpu_s": sum(row[1] for row in rows), "device_s": sum(row[2] for row in rows)}
