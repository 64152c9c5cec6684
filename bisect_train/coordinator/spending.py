"""What a bisection has used of its limits on time. Pure; what was used before is read from what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bisect_train.core.amounts import say_time
from bisect_train.core.question import Limits
from bisect_train.store.contract import PROBE_FINISHED, StoredEvent, StoredProbe

PROBE_LOST = "probe_lost"
PROBE_CANCELLED = "probe_cancelled"
"""Event {key, wall_s}: a probe was ended because the plan no longer wanted it."""


@dataclass(slots=True)
class Spending:
    """Time that the probes of one bisection took; results of other bisections cost nothing.

    Attributes:
        gpus: GPUs of one probe.
        limit_hours: GPU-hours that may be used, or None.
        limit_s: time that the bisection may take, seconds, or None.
        finished_s: time of the probes that came to their end, seconds.
        num_finished: how many these are.
        other_s: time of probes that were lost or no longer wanted, seconds.
    """

    gpus: float
    limit_hours: float | None = None
    limit_s: float | None = None
    finished_s: float = 0.0
    num_finished: int = 0
    other_s: float = 0.0

    def load(self, events: Sequence[StoredEvent], probes: Iterable[StoredProbe]) -> None:
        """Take over what earlier coordinators of the same bisection used."""
        own = {event.data["key"] for event in events if event.kind == PROBE_FINISHED}
        for probe in probes:
            if probe.key in own:
                self.add_finished(probe.result.wall_s)
        kinds = (PROBE_LOST, PROBE_CANCELLED)
        self.other_s += sum(float(event.data.get("wall_s") or 0.0) for event in events if event.kind in kinds)

    def add_finished(self, wall_s: float) -> None:
        """Count a probe that came to its end."""
        self.finished_s += wall_s
        self.num_finished += 1

    @property
    def hours(self) -> float:
        """GPU-hours used by the probes that have ended."""
        return self.gpus * (self.finished_s + self.other_s) / 3600

    def is_late(self, worked_s: float) -> bool:
        """Return whether the time is over, given how long the bisection has worked, seconds."""
        return self.limit_s is not None and worked_s >= self.limit_s

    def why_spent(self, num_running: int, *, worked_s: float = 0.0) -> str:
        """Return why no probe may be started, "" while one may.

        A running one counts as the mean of the finished ones; one that would not end in time is not started.
        """
        usual_s = self.finished_s / self.num_finished if self.num_finished else 0.0
        if self.limit_s is not None and worked_s + usual_s >= self.limit_s:
            used = f"{say_time(worked_s)} used, a probe takes {say_time(usual_s)}"
            return f"the budget of {say_time(self.limit_s)} is spent ({used})"
        if self.limit_hours is None or self.hours + self.gpus * num_running * usual_s / 3600 < self.limit_hours:
            return ""
        return f"the budget of {self.limit_hours:g} GPU-hours is spent ({self.hours:.3g} used)"


def say_spent(limits: Limits, left: Limits) -> str:
    """Return which of the limits leaves nothing, "" where each leaves something."""
    if left.max_probes == 0:
        return f"the budget of {limits.max_probes} probes is spent"
    if left.gpu_hours == 0.0:
        return f"the budget of {limits.gpu_hours:g} GPU-hours is spent"
    return f"the budget of {say_time(limits.wall_s or 0.0)} is spent" if left.wall_s == 0.0 else ""
