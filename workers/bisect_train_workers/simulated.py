"""The executor for tests and replays: a virtual clock, scripted results and faults, no processes and no ray.

Time passes only in `wait`. Probes take the first free slot in the order they were submitted, and events come in the
order of the virtual clock (ties: order of submission), so the same script always gives the same events.

It can be a cluster: each node has slots of its own, and may be slow, lose probes, give other numbers than the program, or die.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bisect_train.core.early import EarlyRules, watch_ranks
from bisect_train.core.errors import MachineError
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


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One node of a simulated cluster.

    Attributes:
        name: as in `MachineFacts.nodes`.
        slots: probes at the same time.
        slowness: factor on the time of each probe, > 0.
        joins_at_s, dies_at_s: virtual times at which it comes and goes; what runs there then is lost.
        loses: whether a probe that starts here is lost.
        distorts: the record that comes back in place of what the program did; None for a node that tells the truth.
    """

    name: str
    slots: int = 1
    slowness: float = 1.0
    joins_at_s: float = 0.0
    dies_at_s: float = math.inf
    loses: Callable[[ProbeJob], bool] = lambda job: False
    distorts: Callable[[ProbeJob, Fingerprint], Fingerprint] | None = None

    def is_there(self, now_s: float) -> bool:
        """Return whether it is part of the cluster."""
        return self.joins_at_s <= now_s < self.dies_at_s

    def run(self, job: ProbeJob, run: SimulatedRun) -> SimulatedRun:
        """Return what happens to a probe here, given what happens to it anywhere."""
        run = replace(run, duration_s=run.duration_s * self.slowness)
        if run.fingerprint is None or self.loses(job):
            return replace(run, fingerprint=None)
        return run if self.distorts is None else replace(run, fingerprint=self.distorts(job, run.fingerprint))


@dataclass(frozen=True, slots=True)
class _Running:
    job: ProbeJob
    run: SimulatedRun
    started_s: float
    node: SimulatedNode


class SimulatedExecutor:
    """Runs probes by a script; see `bisect_train.core.executor.Executor`.

    Args:
        script: what happens to each job.
        slots: probes at the same time; `facts` says so too.
        facts: hardware class and interpreter to report, and notes.
        nodes: of a cluster, in the order in which they are filled; () is one machine with `slots`.

    Attributes:
        now_s: the virtual clock, seconds since the start.
        busy_s: virtual time of all probes together that ran or were cancelled, seconds.
        submitted: ids of all jobs in the order of submission.
    """

    def __init__(
        self,
        script: Script,
        *,
        slots: int = 1,
        facts: MachineFacts = SIMULATED_FACTS,
        nodes: Sequence[SimulatedNode] = (),
    ) -> None:
        if slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self._script = script
        self._is_cluster = bool(nodes)
        self._nodes = tuple(nodes) or (SimulatedNode("simulated", slots),)
        self._facts = replace(facts, slots=slots, nodes=())
        self._queue: list[ProbeJob] = []
        self._running: dict[str, _Running] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._events: list[ExecutorEvent] = []
        self._order: dict[str, int] = {}
        self.now_s = 0.0
        self.busy_s = 0.0
        self.submitted: list[str] = []

    def facts(self) -> MachineFacts:
        """Return the facts given, with this executor's slots and nodes of now.

        Raises:
            MachineError: every node of the cluster is gone.
        """
        if not self._is_cluster:
            return self._facts
        there = self._there()
        if not there:
            raise MachineError("no node of the cluster is left", hint="`bisect-train resume` goes on once there is one")
        names = tuple(node.name for node in there)
        return replace(self._facts, slots=sum(node.slots for node in there), nodes=names)

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
            self.busy_s += self.now_s - running.started_s
            self._ends = [item for item in self._ends if item[2] != job_id]
            heapq.heapify(self._ends)
        self._fill_slots()

    def close(self) -> None:
        """Cancel everything; can be called twice."""
        self._queue.clear()
        for job_id in list(self._order):
            self.cancel(job_id)

    def _fill_slots(self) -> None:
        for job in list(self._queue):
            node = self._place_for(job)
            if node is not None:
                self._queue.remove(job)
                run = _stop_early(node.run(job, self._script(job)), job.early)
                self._running[job.id] = _Running(job, run, self.now_s, node)
                heapq.heappush(self._ends, (self.now_s + run.duration_s, self._order[job.id], job.id))
                self._events.append(ProbeProgress(job.id, "run"))

    def _there(self) -> list[SimulatedNode]:
        return [node for node in self._nodes if node.is_there(self.now_s)]

    def _place_for(self, job: ProbeJob) -> SimulatedNode | None:
        """Return a node with a free slot: the first of those that are busy least; None where the job has to wait."""
        there = self._there()
        allowed = [node for node in there if node.name not in job.avoid] or there
        num_running = {node.name: sum(item.node is node for item in self._running.values()) for node in allowed}
        free = [node for node in allowed if num_running[node.name] < node.slots]
        return min(free, key=lambda node: num_running[node.name] / node.slots, default=None)

    def _advance(self, timeout_s: float) -> None:
        """Move the clock to the next end within the time, and take all that end then."""
        moves = [time_s for node in self._nodes for time_s in (node.joins_at_s, node.dies_at_s) if time_s > self.now_s]
        self.now_s = min([self.now_s + timeout_s, *moves, *(time_s for time_s, _, _ in self._ends[:1])])
        while self._ends and self._ends[0][0] <= self.now_s:
            self._end(heapq.heappop(self._ends)[2])
        for job_id, running in list(self._running.items()):
            if not running.node.is_there(self.now_s):
                self._ends = [item for item in self._ends if item[2] != job_id]
                heapq.heapify(self._ends)
                self._lose(job_id, f"the node {running.node.name} died")
        self._fill_slots()

    def _end(self, job_id: str) -> None:
        running = self._running[job_id]
        run = running.run
        if run.fingerprint is None:
            self._lose(job_id, run.reason)
            return
        self._leave(job_id)
        base = run.result or ProbeResult(job_id, run.fingerprint, node=running.node.name)
        result = replace(base, job_id=job_id, fingerprint=run.fingerprint, wall_s=run.duration_s)
        self._events.append(ProbeFinished(result))

    def _lose(self, job_id: str, reason: str) -> None:
        node = self._leave(job_id).node
        self._events.append(ProbeLost(job_id, reason, node.name if self._is_cluster else ""))

    def _leave(self, job_id: str) -> _Running:
        running = self._running.pop(job_id)
        del self._order[job_id]
        self.busy_s += self.now_s - running.started_s
        return running


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
