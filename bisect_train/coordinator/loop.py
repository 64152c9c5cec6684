"""One coordinator runs one bisection: it plans, hands probes to the executor, records what comes back, and plans again.

Everything observed is stored before it is used, one transaction per event, so that a coordinator that is killed at any moment
can be resumed: the plan is a pure function of what is in the store. A lost probe (dead worker, port in use, killed from
outside) has no verdict and is run again, at most `MAX_TRIES` times. The coordinator opens no path of a worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.costs import Costs
from bisect_train.coordinator.events import (
    CoordinatorEvent,
    PlanMade,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
)
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.coordinator.observing import (
    active_s,
    rules_for,
)
from bisect_train.coordinator.spending import PROBE_CANCELLED, PROBE_LOST, Spending
from bisect_train.coordinator.trust import refuse_missing_judge, why_lost
from bisect_train.coordinator.warmth import Warmth
from bisect_train.core.changes import Variant
from bisect_train.core.errors import BisectTrainError, InterruptedByUser, UnbuildableError
from bisect_train.core.executor import Executor, ProbeFinished, ProbeLost
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult, ProbeSpec
from bisect_train.core.question import Question
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Answer, Phase, Plan, Request, answer_budget
from bisect_train.store.contract import Store

MAX_TRIES = 3
WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    """How a bisection ended: the last plan with its answer, and what it cost.

    Attributes:
        plan: `plan.answer` is set.
        answer: the answer.
        num_probes: probes that were run, by this coordinator or an earlier one of the same bisection.
        num_reused: results that came from other bisections.
        wall_s: time of all coordinators of this bisection, seconds.
        gpu_hours: GPU-hours that its own probes used, lost and cancelled ones too.
    """

    plan: Plan
    answer: Answer
    num_probes: int
    num_reused: int
    wall_s: float
    gpu_hours: float = 0.0

    @property
    def plan_with_answer(self) -> Plan:
        """The last plan, its answer set also where the budget ended it."""
        return replace(self.plan, answer=self.answer)


@dataclass(slots=True)
class _Job:
    """A running probe: the requests that its result answers, what it runs, and when it was started (clock, seconds)."""

    requests: list[Request]
    variant: Variant
    spec: ProbeSpec
    started_s: float


class Coordinator:
    """Runs one bisection to its answer.

    Args:
        question: what was asked.
        bisection_id: where observations are stored.
        space: the question's changes.
        store: events and results; the caller holds the bisection's lock.
        executor: runs the probes; the caller closes it.
        listener: told what happens; must not raise.
        clock: seconds, for the cost only.
    """

    def __init__(
        self,
        question: Question,
        *,
        bisection_id: str,
        space: ChangeSpace,
        store: Store,
        executor: Executor,
        listener: Callable[[CoordinatorEvent], None] = lambda event: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._question = question
        self._id = bisection_id
        self._space = space
        self._store = store
        self._executor = executor
        self._tell = listener
        self._clock = clock
        self._rules = rules_for(question, space)
        self._facts = MachineFacts("", "", 1)
        self._jobs: dict[str, _Job] = {}
        self._num_tries: dict[str, int] = {}
        self._knowledge = self._make_knowledge()
        self._costs = self._make_costs()
        self._warmth = self._make_warmth()
        self._earlier_s = 0.0
        self._spending = Spending(question.settings.gpus, question.limits.gpu_hours)
        # who cancels or resumes a part means the whole
        self._whole = (bisection_id, question.part_of) if question.part_of else (bisection_id,)
        self._resume_hint = f"`bisect-train resume {self._whole[-1]}` goes on"

    def run(self) -> Ended:
        """Run until there is an answer.

        Raises:
            InterruptedByUser: Ctrl-C, or somebody asked to cancel; everything observed is stored.
            JudgeError: the judging command could not be started.
            MachineError: this machine cannot do it.
        """
        started = self._clock()
        self._store.append(self._id, "started", {})
        try:
            self._facts = self._executor.facts()
            self._load_stored()
            plan, answer = self._loop()
        except KeyboardInterrupt:
            self._stop("interrupted")
            raise InterruptedByUser("interrupted", hint=self._resume_hint) from None
        except InterruptedByUser:
            self._stop("cancelled")
            raise
        except BaseException as error:
            self._stop("interrupted", reason=str(error))
            raise
        self._cancel_all()
        wall_s = self._earlier_s + self._clock() - started
        knows = self._knowledge
        return Ended(plan, answer, knows.num_probes, knows.num_reused, wall_s, self._spending.hours)

    def _stop(self, kind: str, *, reason: str = "") -> None:
        """Note why it stopped; where that cannot be stored (a full disk), the error that is under way says more."""
        with contextlib.suppress(BisectTrainError):
            self._store.append(self._id, kind, {"reason": reason} if reason else {})
        self._cancel_all()

    def _cancel_all(self) -> None:
        for key in list(self._jobs):
            self._executor.cancel(key)
        self._jobs.clear()

    def _make_knowledge(self) -> Knowledge:
        return Knowledge(self._question, bisection_id=self._id, store=self._store, facts=self._facts, listener=self._tell)

    def _make_costs(self) -> Costs:
        return Costs(self._question, bisection_id=self._id, space=self._space, store=self._store, knowledge=self._knowledge)

    def _make_warmth(self) -> Warmth:
        return Warmth(self._question, bisection_id=self._id, store=self._store, facts=self._facts)

    def _load_stored(self) -> None:
        """Take over what an earlier coordinator of this bisection observed and spent."""
        self._knowledge = self._make_knowledge()
        self._knowledge.load()
        self._costs = self._make_costs()
        self._warmth = self._make_warmth()
        events = self._store.events(self._id)
        self._earlier_s = active_s(events)
        self._spending.load(events, self._store.results(self._id))

    def _loop(self) -> tuple[Plan, Answer]:
        slots = min(self._facts.slots, self._question.limits.parallel or self._facts.slots)
        while True:
            plan = self._plan(max(1, slots))
            if plan.answer is not None:
                return plan, plan.answer
            self._cancel_obsolete(plan)
            if self._start(plan, slots):
                continue
            if not self._jobs:
                reason = self._why_spent()
                if not reason:
                    raise RuntimeError(f"the plan wants nothing and has no answer (phase {plan.phase.value})")
                self._store.append(self._id, "budget_spent", {"reason": reason})
                return plan, answer_budget(plan, reason)
            self._wait_for_result()

    def _plan(self, slots: int) -> Plan:
        knows = self._knowledge
        in_flight = [request for job in self._jobs.values() for request in job.requests]
        known = knows.known(in_flight, slots)
        plan = make_plan(self._rules, known)
        if plan.phase is Phase.SEARCH and len(self._jobs) < slots and (costs := self._costs.of(plan, known)):
            plan = make_plan(self._rules, replace(known, costs=costs))
        self._tell(PlanMade(plan, knows.num_probes, knows.num_reused, slots))
        knows.tell_contradicted(plan.ends)
        return plan

    def _cancel_obsolete(self, plan: Plan) -> None:
        wanted = set(plan.wanted)
        for key, job in list(self._jobs.items()):
            if not wanted.intersection(job.requests):
                self._executor.cancel(key)
                del self._jobs[key]
                self._store.append(self._id, PROBE_CANCELLED, {"key": key, "wall_s": self._note_time(job)})
                self._tell(ProbeGone(key, job.requests[0], "obsolete"))

    def _note_time(self, job: _Job) -> float:
        """Count the time of a probe that ends without a result; return it, seconds."""
        wall_s = self._clock() - job.started_s
        self._spending.other_s += wall_s
        return wall_s

    # ---- start ----------------------------------------------------------------------------------------------------

    def _start(self, plan: Plan, slots: int) -> bool:
        """Start what is wanted while slots are free; return whether something was learnt, so that a new plan is due."""
        running = {request for job in self._jobs.values() for request in job.requests}
        for request in plan.wanted:
            if request in running:
                continue
            try:
                variant = self._space.variant(request.point)
            except UnbuildableError as error:
                self._knowledge.note_unbuildable(request, str(error))
                return True
            spec = ProbeSpec(variant, self._question.rung, request.seed_idx, request.repeat)
            key = self._knowledge.key_of(request, spec)
            if key in self._jobs:
                self._jobs[key].requests.append(request)
            elif self._knowledge.take_known(key, request, variant):
                return True
            elif len(self._jobs) < slots and not self._why_spent():
                try:
                    self._submit(key, request, spec)
                except UnbuildableError as error:
                    self._knowledge.note_unbuildable(request, str(error))
                    return True
        return False

    def _why_spent(self) -> str:
        """Return why no more probes may be started, "" while they may."""
        limit, num_running = self._question.limits.max_probes, len(self._jobs)
        if limit is not None and self._knowledge.num_probes + num_running >= limit:
            return f"the budget of {limit} probes is spent"
        return self._spending.why_spent(num_running)

    def _submit(self, key: str, request: Request, spec: ProbeSpec) -> None:
        packs = self._space.packs(spec.variant)
        is_fresh = self._warmth.must_be_fresh(spec)
        self._executor.submit(ProbeJob(key, spec, self._question.settings, self._space.repo_key, packs, is_fresh))
        self._jobs[key] = _Job([request], spec.variant, spec, self._clock())
        self._store.append(self._id, "probe_started", {"key": key, "point": request.point.to_text()})
        self._tell(ProbeStarted(key, request))

    # ---- finish ---------------------------------------------------------------------------------------------------

    def _wait_for_result(self) -> None:
        """Wait until a probe has ended; progress alone needs no new plan."""
        while True:
            is_plan_due = False
            for event in self._executor.wait(WAIT_S):
                if isinstance(event, ProbeFinished):
                    is_plan_due |= self._finish(event.result)
                elif isinstance(event, ProbeLost):
                    is_plan_due |= self._lose(event.job_id, event.reason)
                else:
                    self._tell(ProbeMoved(event))
            if any(self._store.cancel_requested(name) for name in self._whole):
                raise InterruptedByUser("cancelled", hint=self._resume_hint)
            if is_plan_due:
                return

    def _finish(self, result: ProbeResult) -> bool:
        job = self._jobs.get(result.job_id)
        if job is None:
            return False
        num_tries = self._num_tries.get(result.job_id, 0) + 1
        if num_tries < MAX_TRIES and (reason := why_lost(result)):
            return self._lose(result.job_id, reason)
        if reason := self._warmth.take(job.spec, result):
            return self._lose(result.job_id, reason)
        del self._jobs[result.job_id]
        refuse_missing_judge(result, self._question.settings)
        self._spending.add_finished(result.wall_s)
        self._knowledge.take_result(result, job.requests, job.variant)
        return True

    def _lose(self, key: str, reason: str) -> bool:
        """Note a lost probe; it is run again, or given up as untestable after `MAX_TRIES`."""
        job = self._jobs.pop(key, None)
        if job is None:
            return False
        tries = self._num_tries[key] = self._num_tries.get(key, 0) + 1
        lost = {"key": key, "reason": reason, "tries": tries, "wall_s": self._note_time(job)}
        self._store.append(self._id, PROBE_LOST, lost)
        for request in job.requests:
            self._tell(ProbeGone(key, request, reason))
            if tries >= MAX_TRIES:
                self._knowledge.give_up(request, job.variant, f"lost {tries} times: {reason}")
        return True
