"""The executor for tests and replays: a virtual clock, scripted results and faults, no processes and no ray.

Time passes only in `wait`. Probes take the first free slot in the order they were submitted, and events come in the
order of the virtual clock (ties: order of submission), so the same script always gives the same events.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bisect_train.core.early import EarlyRules, watch_ranks
from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost, ProbeProgress
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult, RunSettings

SIMULATED_FACTS = MachineFacts("simulated", "simulated", 1)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What happens to one probe.

    Attributes:
        fingerprint: what it records, or None when it is lost.
        duration_s: virtual time from its start to its end, seconds, >= 0.
        reason: of a loss.
        result: the whole result, where more than the fingerprint matters; its job_id is replaced.
    """

    fingerprint: Fingerprint | None
    duration_s: float = 1.0
    reason: str = "the simulated worker died"
    result: ProbeResult | None = None


Script = Callable[[ProbeJob], SimulatedRun]
"""Decides what happens to a job; it is called when the probe starts."""


def script_of(fingerprints: Mapping[str, Fingerprint], *, duration_s: float = 1.0) -> Script:
    """Return a script that replays recorded fingerprints by job id; an unknown job is lost."""

    def run(job: ProbeJob) -> SimulatedRun:
        found = fingerprints.get(job.id)
        return SimulatedRun(found, duration_s, reason="no fingerprint was recorded for this probe")

    return run


class SimulatedExecutor:
    """Runs probes by a script; see `bisect_train.core.executor.Executor`.

    Args:
        script: what happens to each job.
        slots: probes at the same time; `facts` says so too.
        facts: hardware class and interpreter to report.

    Attributes:
        now_s: the virtual clock, seconds since the start.
        busy_s: virtual time of all probes together that ran or were cancelled, seconds.
        submitted: ids of all jobs in the order of submission.
    """

    def __init__(self, script: Script, *, slots: int = 1, facts: MachineFacts = SIMULATED_FACTS) -> None:
        if slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self._script = script
        self._slots = slots
        self._facts = MachineFacts(facts.hardware_class, facts.interpreter, slots)
        self._queue: list[ProbeJob] = []
        self._running: dict[str, tuple[ProbeJob, SimulatedRun, float]] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._events: list[ExecutorEvent] = []
        self._order: dict[str, int] = {}
        self.now_s = 0.0
        self.busy_s = 0.0
        self.submitted: list[str] = []

    def facts(self) -> MachineFacts:
        """Return the facts given, with this executor's slots."""
        return self._facts

    def adopt(self, settings: RunSettings) -> None:
        """Take note of other settings; here every probe takes one slot."""

    def submit(self, job: ProbeJob) -> None:
        """Start or queue a probe. Raises ValueError if a job with this id is running."""
        if job.id in self._order:
            raise ValueError(f"a probe with id {job.id} is running already")
        self._order[job.id] = len(self.submitted)
        self.submitted.append(job.id)
        self._queue.append(job)
        self._fill_slots()

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Return the events that have come; the clock moves on to the next one, or by `timeout_s` if there is none."""
        if not self._events and self._order:
            self._advance(timeout_s)
        events, self._events = self._events, []
        return events

    def cancel(self, job_id: str) -> None:
        """Stop a probe; no event of it is reported afterwards. Unknown ids are ignored."""
        self._order.pop(job_id, None)
        self._queue = [job for job in self._queue if job.id != job_id]
        self._events = [event for event in self._events if _id_of(event) != job_id]
        running = self._running.pop(job_id, None)
        if running is not None:
            self.busy_s += self.now_s - running[2]
            self._ends = [item for item in self._ends if item[2] != job_id]
            heapq.heapify(self._ends)
        self._fill_slots()

    def close(self) -> None:
        """Cancel everything; can be called twice."""
        self._queue.clear()
        for job_id in list(self._order):
            self.cancel(job_id)

    def _fill_slots(self) -> None:
        while self._queue and len(self._running) < self._slots:
            job = self._queue.pop(0)
            run = _stop_early(self._script(job), job.early)
            self._running[job.id] = (job, run, self.now_s)
            heapq.heappush(self._ends, (self.now_s + run.duration_s, self._order[job.id], job.id))
            self._events.append(ProbeProgress(job.id, "run"))

    def _advance(self, timeout_s: float) -> None:
        """Move the clock to the next end within the time, and take all that end then."""
        until_s = self.now_s + timeout_s
        if not self._ends or self._ends[0][0] > until_s:
            self.now_s = until_s
            return
        self.now_s = self._ends[0][0]
        while self._ends and self._ends[0][0] <= self.now_s:
            self._end(heapq.heappop(self._ends)[2])
        self._fill_slots()

    def _end(self, job_id: str) -> None:
        _, run, started_s = self._running.pop(job_id)
        del self._order[job_id]
        self.busy_s += self.now_s - started_s
        if run.fingerprint is None:
            self._events.append(ProbeLost(job_id, run.reason))
            return
        base = run.result or ProbeResult(job_id, run.fingerprint, node="simulated")
        result = replace(base, job_id=job_id, fingerprint=run.fingerprint, wall_s=run.duration_s)
        self._events.append(ProbeFinished(result))


def _stop_early(run: SimulatedRun, rules: EarlyRules | None) -> SimulatedRun:
    """Return the run as the rules would have stopped it: its steps through the deciding one, and their share of the time."""
    whole = run.fingerprint
    if rules is None or whole is None or not whole.ending.is_healthy or (stop := watch_ranks(rules, whole.ranks)) is None:
        return run
    ranks = tuple(
        replace(
            rank,
            steps=tuple(step for step in rank.steps if step.step <= stop.step),
            events=tuple(event for event in rank.events if event.step is None or event.step <= stop.step),
        )
        for rank in whole.ranks
    )
    last = max((step.step for rank in whole.ranks for step in rank.steps), default=stop.step)
    share = (stop.step + 1) / (last + 1)
    # what it would have read after that is not known
    return replace(run, fingerprint=replace(whole, ranks=ranks, early=stop, reads=None), duration_s=run.duration_s * share)


def _id_of(event: ExecutorEvent) -> str:
    return event.result.job_id if isinstance(event, ProbeFinished) else event.job_id
