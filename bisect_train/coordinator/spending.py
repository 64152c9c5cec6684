"""GPU time that a bisection has used, against its limit. Pure; what was used before is read from what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
        finished_s: time of the probes that came to their end, seconds.
        num_finished: how many these are.
        other_s: time of probes that were lost or no longer wanted, seconds.
    """

    gpus: float
    limit_hours: float | None = None
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

    def why_spent(self, num_running: int) -> str:
        """Return why no probe may be started, "" while one may; a running one counts as the mean of the finished ones."""
        if self.limit_hours is None:
            return ""
        expected_s = num_running * self.finished_s / self.num_finished if self.num_finished else 0.0
        if self.hours + self.gpus * expected_s / 3600 < self.limit_hours:
            return ""
        return f"the budget of {self.limit_hours:g} GPU-hours is spent ({self.hours:.3g} used)"
