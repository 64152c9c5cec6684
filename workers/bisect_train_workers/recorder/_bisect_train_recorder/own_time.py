"""The time that the recorder itself takes inside the training loop."""

from __future__ import annotations

from time import perf_counter


class OwnTime:
    """A clock that runs only inside the recorder's hooks; see `Session.guarded_hook`, which drives it."""

    __slots__ = ("hook_started", "total_s")

    def __init__(self) -> None:
        """Start at zero, outside every hook."""
        self.total_s = 0.0  # of the hooks that have ended
        self.hook_started = 0.0  # `perf_counter` when the latest hook began

    def now_s(self) -> float:
        """Return the time so far in seconds; for use inside a hook, whose own part counts."""
        return self.total_s + (perf_counter() - self.hook_started)
