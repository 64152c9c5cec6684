"""The contract between the coordinator and whatever runs probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult, RunSettings


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """A running probe's state: checkout, packages, data, setup, run or judge; `step` counts the finished steps of rank 0."""

    job_id: str
    phase: str
    step: int = 0
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class ProbeFinished:
    """A probe came to its end; how it ended is data in the fingerprint."""

    result: ProbeResult


@dataclass(frozen=True, slots=True)
class ProbeLost:
    """A probe never finished (dead worker or node, port in use): it has no verdict and is run again.

    Attributes:
        job_id: of the job.
        reason: for a person.
        node: where it ran, "" where that is unknown.
    """

    job_id: str
    reason: str
    node: str = ""


ExecutorEvent = ProbeProgress | ProbeFinished | ProbeLost


class Executor(Protocol):
    """Runs probes. Not thread-safe: one coordinator thread calls it.

    Ownership: after `submit` the executor owns the job until it reports ProbeFinished or ProbeLost, or until `cancel`.
    """

    def facts(self) -> MachineFacts:
        """Return what the probes' numbers depend on, and how many run at the same time."""

    def adopt(self, settings: RunSettings) -> None:
        """Take the resources of one probe from other settings from now on: `facts` counts the slots anew."""

    def submit(self, job: ProbeJob) -> None:
        """Start a probe. Raises ValueError if a job with this id is running."""

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Return the events that have come, waiting at most `timeout_s` seconds for the first; [] after that."""

    def cancel(self, job_id: str) -> None:
        """Stop a probe and all its processes; no event of it is reported afterwards. Unknown ids are ignored."""

    def close(self) -> None:
        """Cancel everything and give back what was started; can be called twice."""
