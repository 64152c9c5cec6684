"""The time that the recorder itself takes inside the training loop."""

from __future__ import annotations

from time import perf_counter, process_time


class OwnTime:
    """A clock that runs only inside the recorder's hooks; see `Session.guarded_hook`, which drives it."""

    __slots__ = ("cpu_s", "hook_cpu_started", "hook_started", "total_s")

    def __init__(self) -> None:
        """Start at zero, outside every hook."""
        self.total_s = 0.0  # of the hooks that have ended
        self.hook_started = 0.0  # `perf_counter` when the latest hook began
        self.cpu_s = 0.0  # CPU time of the hooks that have ended
        self.hook_cpu_started = process_time()  # when the latest hook began

    def now_s(self) -> float:
        """Return the time so far in seconds; for use inside a hook, whose own part counts."""
        return self.total_s + (perf_counter() - self.hook_started)

    def program_cpu_s(self) -> float:
        """Return the CPU time of this process without that of the hooks, in seconds; for use inside a hook."""
        return self.hook_cpu_started - self.cpu_s
