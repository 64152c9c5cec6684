"""One coordinator runs one bisection: it plans, hands probes to the executor, records what comes back, and plans again.

Everything observed is stored before it is used, one transaction per event, so that a coordinator that is killed at any moment
can be resumed: the plan is a pure function of what is in the store. A lost probe (dead worker, port in use, killed from
outside) has no verdict and is run again, at most `MAX_TRIES` times. The coordinator opens no path of a worker.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.events import (
    CoordinatorEvent,
    PlanMade,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
)
from bisect_train.coordinator.observing import (
    REUSE_DISTRUSTED,
    active_s,
    load_state,
    observe,
    observe_lost,
    request_of,
    rules_for,
    spec_of_request,
)
from bisect_train.coordinator.person import (
    GIVEN_UP,
    RESULT_SHARED,
    TakenBack,
    events_that_count,
    is_foreign,
    request_of_spec,
    taken_back,
)
from bisect_train.coordinator.spending import PROBE_CANCELLED, PROBE_LOST, Spending
from bisect_train.coordinator.trust import has_foreign_judge, is_contradicted, is_reusable, refuse_missing_judge, why_lost
from bisect_train.core.changes import Point, Variant
from bisect_train.core.errors import BisectTrainError, InterruptedByUser, UnbuildableError
from bisect_train.core.executor import Executor, ProbeFinished, ProbeLost
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult, ProbeSpec, probe_key
from bisect_train.core.question import Question
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Answer, Known, Plan, Request, answer_budget
from bisect_train.store.contract import PROBE_FINISHED, PROBE_REUSED, Store
from bisect_train.verdict.outcome import Observation

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


@dataclass(slots=True)
class _State:
    """All that the loop remembers; observations are stored before they get here."""

    observations: list[Observation] = field(default_factory=list)
    unbuildable: dict[Point, str] = field(default_factory=dict)
    jobs: dict[str, _Job] = field(default_factory=dict)
    num_tries: dict[str, int] = field(default_factory=dict)
    own_results: dict[str, ProbeResult] = field(default_factory=dict)
    reused: set[Request] = field(default_factory=set)
    marks: dict[int, VerdictKind] = field(default_factory=dict)
    taken_back: TakenBack = field(default_factory=TakenBack)
    trusts_reuse: bool = True
    num_probes: int = 0
    num_reused: int = 0


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
        self._state = _State()
        self._facts = MachineFacts("", "", 1)
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
        state = self._state
        wall_s = self._earlier_s + self._clock() - started
        return Ended(plan, answer, state.num_probes, state.num_reused, wall_s, self._spending.hours)

    def _stop(self, kind: str, *, reason: str = "") -> None:
        """Note why it stopped; where that cannot be stored (a full disk), the error that is under way says more."""
        with contextlib.suppress(BisectTrainError):
            self._store.append(self._id, kind, {"reason": reason} if reason else {})
        self._cancel_all()

    def _cancel_all(self) -> None:
        for key in list(self._state.jobs):
            self._executor.cancel(key)
        self._state.jobs.clear()

    def _load_stored(self) -> None:
        """Take over what an earlier coordinator of this bisection observed."""
        stored = load_state(self._store, self._id, self._question, facts=self._facts)
        self._state.unbuildable.update(stored.unbuildable)
        self._state.observations.extend(stored.observations)
        self._state.own_results.update((probe.key, probe.result) for probe in stored.probes)
        self._state.marks.update(stored.marks)
        events = self._store.events(self._id)
        self._earlier_s = active_s(events)
        self._spending.load(events, self._store.results(self._id))
        kinds = Counter(event.kind for event in events)
        self._state.num_probes, self._state.num_reused = kinds[PROBE_FINISHED], kinds[PROBE_REUSED]
        self._state.trusts_reuse = not kinds[REUSE_DISTRUSTED]
        self._state.taken_back = taken_back(events)
        reused = (request_of_spec(event.data["spec"]) for event in events_that_count(events) if is_foreign(event))
        self._state.reused.update(reused if self._state.trusts_reuse else ())

    def _loop(self) -> tuple[Plan, Answer]:
        slots = min(self._facts.slots, self._question.limits.parallel or self._facts.slots)
        while True:
            plan = self._plan(max(1, slots))
            if plan.answer is not None:
                return plan, plan.answer
            self._cancel_obsolete(plan)
            if self._start(plan, slots):
                continue
            if not self._state.jobs:
                reason = self._why_spent()
                if not reason:
                    raise RuntimeError(f"the plan wants nothing and has no answer (phase {plan.phase.value})")
                self._store.append(self._id, "budget_spent", {"reason": reason})
                return plan, answer_budget(plan, reason)
            self._wait_for_result()

    def _plan(self, slots: int) -> Plan:
        state = self._state
        in_flight = [request for job in state.jobs.values() for request in job.requests]
        plan = make_plan(self._rules, Known(state.observations, state.unbuildable, in_flight, slots, state.marks))
        self._tell(PlanMade(plan, state.num_probes, state.num_reused, slots))
        return plan

    def _cancel_obsolete(self, plan: Plan) -> None:
        wanted = set(plan.wanted)
        for key, job in list(self._state.jobs.items()):
            if not wanted.intersection(job.requests):
                self._executor.cancel(key)
                del self._state.jobs[key]
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
        running = {request for job in self._state.jobs.values() for request in job.requests}
        for request in plan.wanted:
            if request in running:
                continue
            try:
                variant = self._space.variant(request.point)
            except UnbuildableError as error:
                self._note_unbuildable(request, str(error))
                return True
            spec = ProbeSpec(variant, self._question.rung, request.seed_idx, request.repeat)
            key = self._key_of(request, spec)
            if key in self._state.jobs:
                self._state.jobs[key].requests.append(request)
            elif self._reuse(key, request, variant):
                return True
            elif len(self._state.jobs) < slots and not self._why_spent():
                try:
                    self._submit(key, request, spec)
                except UnbuildableError as error:
                    self._note_unbuildable(request, str(error))
                    return True
        return False

    def _key_of(self, request: Request, spec: ProbeSpec) -> str:
        """Return the probe's identity; repeats and proofs are fresh in each bisection, and so is what was taken back."""
        is_fresh = request.repeat > 0 or request.attempt > 0 or has_foreign_judge(self._question.settings)
        is_fresh |= not (self._state.trusts_reuse and self._question.limits.reuse)
        gone = self._state.taken_back
        for num in count(gone.num_times.get(request, 0)):
            scope = f"{self._id}/again-{num}" if num else self._id if is_fresh else ""
            key = probe_key(spec, settings=self._question.settings, facts=self._facts, scope=scope)
            if key not in gone.keys:
                break
        return key

    def _why_spent(self) -> str:
        """Return why no more probes may be started, "" while they may."""
        limit, num_running = self._question.limits.max_probes, len(self._state.jobs)
        if limit is not None and self._state.num_probes + num_running >= limit:
            return f"the budget of {limit} probes is spent"
        return self._spending.why_spent(num_running)

    def _note_unbuildable(self, request: Request, reason: str) -> None:
        self._store.append(self._id, "unbuildable", {"point": request.point.to_text(), "reason": reason})
        self._state.unbuildable[request.point] = reason
        self._tell(ProbeGone("", request, reason))

    def _reuse(self, key: str, request: Request, variant: Variant) -> bool:
        """Take a result that is known already: of this bisection for the same variant, or of another one."""
        own = self._state.own_results.get(key)
        if own is not None:
            self._note_shared(key, request, variant)
            self._observe(key, request, own, is_reused=True)
            return True
        result = self._store.find_result(key)
        if result is None or not is_reusable(result, self._question.settings):
            return False
        self._store.reuse_result(self._id, key, spec_of_request(request, variant, self._facts, self._question))
        self._state.num_reused += 1
        self._state.reused.add(request)
        self._observe(key, request, result, is_reused=True)
        return True

    def _note_shared(self, key: str, request: Request, variant: Variant) -> None:
        """Store that one result answers another request too: two points with the same files are one variant."""
        spec = spec_of_request(request, variant, self._facts, self._question)
        self._store.append(self._id, RESULT_SHARED, {"key": key, "spec": spec})

    def _submit(self, key: str, request: Request, spec: ProbeSpec) -> None:
        packs = self._space.packs(spec.variant)
        self._executor.submit(ProbeJob(key, spec, self._question.settings, self._space.repo_key, packs))
        self._state.jobs[key] = _Job([request], spec.variant, spec, self._clock())
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
        job = self._state.jobs.get(result.job_id)
        if job is None:
            return False
        num_tries = self._state.num_tries.get(result.job_id, 0) + 1
        if num_tries < MAX_TRIES and (reason := why_lost(result)):
            return self._lose(result.job_id, reason)
        del self._state.jobs[result.job_id]
        refuse_missing_judge(result, self._question.settings)
        spec = spec_of_request(job.requests[0], job.variant, self._facts, self._question)
        self._store.save_result(self._id, result.job_id, result, spec=spec)
        self._state.num_probes += 1
        self._spending.add_finished(result.wall_s)
        for idx, request in enumerate(job.requests):
            if idx > 0:
                self._note_shared(result.job_id, request, job.variant)
            self._observe(result.job_id, request, result, is_reused=idx > 0)
        return True

    def _lose(self, key: str, reason: str) -> bool:
        """Note a lost probe; it is run again, or given up as untestable after `MAX_TRIES`."""
        job = self._state.jobs.pop(key, None)
        if job is None:
            return False
        tries = self._state.num_tries[key] = self._state.num_tries.get(key, 0) + 1
        lost = {"key": key, "reason": reason, "tries": tries, "wall_s": self._note_time(job)}
        self._store.append(self._id, PROBE_LOST, lost)
        for request in job.requests:
            self._tell(ProbeGone(key, request, reason))
            if tries >= MAX_TRIES:
                said = f"lost {tries} times: {reason}"
                spec = spec_of_request(request, job.variant, self._facts, self._question)
                self._store.append(self._id, GIVEN_UP, {**spec, "reason": said})
                self._state.observations.append(observe_lost(request, said))
        return True

    def _observe(self, key: str, request: Request, result: ProbeResult, *, is_reused: bool) -> None:
        self._state.own_results[key] = result
        observation = observe(request, result.fingerprint, self._question)
        self._state.observations.append(observation)
        self._tell(ProbeDone(key, observation, result, is_reused))
        if self._state.reused and is_contradicted(observation, self._state.observations, self._state.reused):
            self._distrust_reused()

    def _distrust_reused(self) -> None:
        """Drop what earlier bisections observed: a fresh repeat gave other bits, so something outside git has changed."""
        state = self._state
        self._store.append(self._id, REUSE_DISTRUSTED, {})
        state.trusts_reuse = False
        state.observations = [run for run in state.observations if request_of(run) not in state.reused]
        state.reused.clear()
