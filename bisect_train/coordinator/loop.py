"""One coordinator runs one bisection: it plans, hands probes to the executor, records what comes back, and plans again.

Everything observed is stored before it is used, one transaction per event, so that a coordinator that is killed at any moment
can be resumed: the plan is a pure function of what is in the store. A lost probe (dead worker, port in use, killed from
outside) has no verdict and is run again, at most `MAX_TRIES` times and on another node where there is one (`nodes`). The
coordinator opens no path of a worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.ahead import runs_ahead, seeds_ahead
from bisect_train.coordinator.beside import with_good_end
from bisect_train.coordinator.climb import Climb
from bisect_train.coordinator.costs import Costs
from bisect_train.coordinator.event_log import read_events, refuse_changes
from bisect_train.coordinator.events import (
    CoordinatorEvent,
    PlanMade,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
    RungTaken,
)
from bisect_train.coordinator.knowledge import Knowledge, Tally
from bisect_train.coordinator.nodes import NodeWatch
from bisect_train.coordinator.observing import UNSEEN, active_s, rules_for
from bisect_train.coordinator.running import Ended, RunningProbe
from bisect_train.coordinator.spending import PROBE_CANCELLED, PROBE_LOST, Spending
from bisect_train.coordinator.trust import refuse_missing_judge, why_lost
from bisect_train.coordinator.unread import Unread
from bisect_train.coordinator.warmth import Warmth
from bisect_train.core.early import EarlyRules
from bisect_train.core.errors import BisectTrainError, InputError, InterruptedByUser, UnbuildableError
from bisect_train.core.executor import Executor, ProbeFinished, ProbeLost
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult, ProbeSpec
from bisect_train.core.question import Question
from bisect_train.search.ahead import first_look_requests
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Answer, Phase, Plan, Request, answer_budget
from bisect_train.shrink.moves import Move
from bisect_train.store.contract import Store

MAX_TRIES = 3
WAIT_S = 0.5


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
        respace: gives the changes of the question on another rung; needed where it has a ladder.
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
        respace: Callable[[Question], ChangeSpace] | None = None,
    ) -> None:
        self._question = question
        self._id = bisection_id
        self._space = space
        self._store = store
        self._executor = executor
        self._tell = listener
        self._clock = clock
        self._respace = respace
        self._rules = rules_for(question, space)
        self._climb = Climb(question, store=store, bisection_id=bisection_id)
        self._facts = MachineFacts("", "", 1)
        self._tally = Tally()
        self._above: Knowledge | None = None
        self._jobs: dict[str, RunningProbe] = {}
        self._num_tries: dict[str, int] = {}
        self._first_s: float | None = None
        self._begin_rung()
        self._nodes = NodeWatch(question, bisection_id=bisection_id, store=store)
        self._earlier_s = 0.0
        self._spending = Spending(question.gpus_of_probe, question.limits.gpu_hours, question.limits.wall_s)
        self._started_s = 0.0
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
        self._started_s = self._clock()
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
        wall_s = self._worked_s()
        tally, hours = self._tally, self._spending.hours
        return Ended(plan, answer, tally.num_probes, tally.num_reused, wall_s, self._question, self._space, hours)

    def _worked_s(self) -> float:
        return self._earlier_s + self._clock() - self._started_s

    def _stop(self, kind: str, *, reason: str = "") -> None:
        """Note why it stopped; where that cannot be stored (a full disk), the error that is under way says more."""
        with contextlib.suppress(BisectTrainError):
            self._store.append(self._id, kind, {"reason": reason} if reason else {})
        self._cancel_all()

    def _cancel_all(self) -> None:
        for key in list(self._jobs):
            self._executor.cancel(key)
        self._jobs.clear()

    def _make_knowledge(self, question: Question | None = None) -> Knowledge:
        tell = partial(self._tell_of, question.rung.name if question else "")
        asked, store, tally = question or self._question, self._store, self._tally
        return Knowledge(asked, bisection_id=self._id, store=store, facts=self._facts, listener=tell, tally=tally)

    def _tell_of(self, rung: str, event: CoordinatorEvent) -> None:
        """Tell what happens on a rung; "" is the one that is worked on."""
        self._tell(replace(event, rung=rung) if isinstance(event, ProbeDone) else event)

    def _begin_rung(self) -> None:
        """Begin with nothing that is known on this rung."""
        asked, name, store = self._question, self._id, self._store
        self._knowledge = self._make_knowledge()
        self._costs = Costs(asked, bisection_id=name, space=self._space, store=store, knowledge=self._knowledge)
        self._unread = Unread(asked, self._space)
        self._warmth = Warmth(asked, bisection_id=name, store=store, facts=self._facts)

    def _load_stored(self) -> None:
        """Take over what an earlier coordinator of this bisection observed and spent."""
        events = read_events(self._store, self._id)
        refuse_changes(events, self._id, len(self._space.changes))
        self._begin_rung()
        self._knowledge.load()
        self._nodes.load()
        self._earlier_s = active_s(events)
        self._spending.load(events, self._store.results(self._id))

    def _loop(self) -> tuple[Plan, Answer]:
        while True:
            slots = self._num_slots()
            plan = self._plan(max(1, slots))
            if self._nodes.has_taken_back:
                self._knowledge.reload()
                continue
            is_settled = not (self._nodes.is_holding or self._nodes.disagreement)
            if is_settled and (move := self._climb.next_move(plan)) is not None and self._take_rung(move, plan):
                continue
            if plan.answer is not None:
                return plan, plan.answer
            self._cancel_obsolete(plan)
            if self._spending.is_late(self._worked_s()):
                self._cancel(list(self._jobs), "no time is left")
            if self._start(plan, slots):
                continue
            if not self._jobs:
                reason = self._why_spent()
                if not reason:
                    raise RuntimeError(f"the plan wants nothing and has no answer (phase {plan.phase.value})")
                is_unseen = self._nodes.is_holding  # what was proved has the word of one node only: it is not proved
                self._store.append(self._id, "budget_spent", {"reason": reason} | ({UNSEEN: True} if is_unseen else {}))
                return plan, answer_budget(replace(plan, own=None) if is_unseen else plan, reason)
            self._wait_for_result(slots)

    def _num_slots(self) -> int:
        facts = self._executor.facts()  # a shared one gives more or fewer slots as other bisections end and begin
        self._nodes.meet(facts)
        return min(facts.slots, self._question.limits.parallel or facts.slots)

    def _take_rung(self, move: Move, plan: Plan) -> bool:
        """Go on with another rung, runs of its ends that were begun ahead, too; False where no node has what it takes."""
        try:
            self._executor.adopt(self._question.at_rung(move.idx).settings)
        except InputError:
            self._climb.stay()
            return False
        self._question = self._climb.take(move, plan)
        if self._respace is not None:
            self._space = self._respace(self._question)
        self._rules = rules_for(self._question, self._space)
        self._climb = Climb(self._question, store=self._store, bisection_id=self._id)
        self._facts = self._executor.facts()
        self._begin_rung()
        self._knowledge.load()
        self._above = None
        for job in self._jobs.values():
            if job.spec.rung == self._question.rung:
                job.knowledge = self._knowledge
        self._tell(RungTaken(self._question, self._space, move.reason))
        return True

    def _plan(self, slots: int) -> Plan:
        knows = self._knowledge
        in_flight = [request for job in self._jobs.values() if job.knowledge is knows for request in job.requests]
        known = replace(knows.known(in_flight, slots), inert=self._unread.changes(knows.reads()))
        plan = make_plan(self._rules, known)
        if plan.phase is Phase.SEARCH and len(self._jobs) < slots and (costs := self._costs.of(plan, known)):
            plan = make_plan(self._rules, replace(known, costs=costs))
        plan = self._nodes.look(plan, knows, self._rules, self._space.variant)
        self._tell(PlanMade(plan, self._tally.num_probes, self._tally.num_reused, slots))
        knows.tell_contradicted(plan.ends)
        return plan

    def _cancel_obsolete(self, plan: Plan) -> None:
        wanted, is_about_ends = set(plan.wanted), plan.phase is Phase.ENDS
        if is_about_ends and self._climb.is_above_first:
            wanted.update(first_look_requests(self._rules))  # begun ahead, when this was the next rung
        for key, job in list(self._jobs.items()):
            if job.knowledge is self._above and is_about_ends:
                continue
            if job.knowledge is not self._knowledge or not wanted.intersection(job.requests):
                self._cancel([key], "obsolete")

    def _cancel(self, keys: Sequence[str], reason: str) -> None:
        for key in keys:
            job = self._jobs.pop(key)
            self._executor.cancel(key)
            self._store.append(self._id, PROBE_CANCELLED, {"key": key, "wall_s": self._note_time(job)})
            self._tell(ProbeGone(key, job.requests[0], reason))

    def _note_time(self, job: RunningProbe) -> float:
        """Count the time of a probe that ends without a result; return it, seconds."""
        wall_s = self._clock() - job.started_s
        self._spending.other_s += wall_s
        return wall_s

    def _start(self, plan: Plan, slots: int) -> bool:
        """Start what is wanted while slots are free; return whether something was learnt, so that a new plan is due."""
        knows = self._knowledge
        running = {request for job in self._jobs.values() if job.knowledge is knows for request in job.requests}
        for request in self._in_turn(plan, slots):
            if request in running:
                continue
            try:
                variant = self._space.variant(request.point)
            except UnbuildableError as error:
                self._knowledge.note_unbuildable(request, str(error))
                return True
            spec = ProbeSpec(variant, self._question.rung, request.seed_idx, request.repeat)
            if self._holds_back(slots) and self._warmth.must_be_fresh(spec):
                continue
            early = knows.early_rules(request, plan, self._rules)
            key = knows.early_key_of(knows.key_of(request, spec), spec, early)
            if key in self._jobs:
                self._jobs[key].requests.append(request)
            elif self._knowledge.take_known(key, request, variant):
                return True
            elif len(self._jobs) < slots and not self._why_spent():
                try:
                    self._submit(key, request, spec, early=early, ahead=self._seeds_ahead(plan, spec, slots))
                except UnbuildableError as error:
                    self._knowledge.note_unbuildable(request, str(error))
                    return True
        if plan.phase is Phase.ENDS and not self._holds_back(slots):
            self._start_ahead(slots)
        return False

    def _in_turn(self, plan: Plan, slots: int) -> Sequence[Request]:
        """Return what is wanted in the order in which it is started: first the repeat that may show that forks will do."""
        if not self._is_near_proof(slots):
            return plan.wanted
        return sorted(plan.wanted, key=lambda request: request.repeat == 0)

    def _holds_back(self, slots: int) -> bool:
        """Return whether programs that must be fresh wait: the first one is about to show that the others may be forked."""
        return bool(self._jobs) and self._is_near_proof(slots)

    def _is_near_proof(self, slots: int) -> bool:
        waited_s = 0.0 if self._first_s is None else self._clock() - self._first_s
        return self._warmth.is_near_proof(slots=slots, waited_s=waited_s)

    def _start_ahead(self, slots: int) -> None:
        """Begin with the ends of the next rung on workers that the proof of the ends leaves idle."""
        question = self._climb.ahead
        if question is None or len(self._jobs) >= slots:
            return
        if self._above is None:
            self._above = self._make_knowledge(question)
            self._above.load()
        for key, request, spec in runs_ahead(self._above, self._rules, self._space, question.rung):
            if len(self._jobs) >= slots or self._why_spent():
                return
            if key not in self._jobs:
                try:
                    self._submit(key, request, spec, above=(question, self._above))
                except InputError:  # no node has what that rung takes
                    self._climb.stay()
                    return

    def _seeds_ahead(self, plan: Plan, spec: ProbeSpec, slots: int) -> tuple[int, ...]:
        """Return the seed indices whose processes are begun beside a probe: of a fresh one, if it has a free slot beside it."""
        if self._warmth.must_be_fresh(spec) and not (slots > 1 and self._is_near_proof(slots)):
            return ()
        return seeds_ahead(plan, spec.seed_idx)

    def _why_spent(self) -> str:
        """Return why no more probes may be started, "" while they may."""
        limit, num_running = self._question.limits.max_probes, len(self._jobs)
        if limit is not None and self._tally.num_probes + num_running >= limit:
            return f"the budget of {limit} probes is spent"
        return self._spending.why_spent(num_running, worked_s=self._worked_s())

    def _submit(
        self,
        key: str,
        request: Request,
        spec: ProbeSpec,
        *,
        above: tuple[Question, Knowledge] | None = None,
        early: EarlyRules | None = None,
        ahead: tuple[int, ...] = (),
    ) -> None:
        """Hand a probe to the executor.

        Args:
            key, request, spec: of the probe.
            above: the next rung's question, with what is known there, where it runs on that.
            early: when it may stop.
            ahead: seed indices that come soon.
        """
        packs = self._space.packs(spec.variant)
        is_fresh = self._warmth.must_be_fresh(spec)
        question, knowledge = above or (self._question, self._knowledge)
        avoid = self._nodes.avoid(key, request, spec.variant)
        settings, repo = question.settings, self._space.repo_key
        job = ProbeJob(key, spec, settings, repo, packs, is_fresh, early=early, seeds_ahead=ahead, avoid=avoid)
        self._executor.submit(with_good_end(job, question=question, space=self._space, rules=self._rules))
        self._first_s = self._clock() if self._first_s is None else self._first_s
        self._jobs[key] = RunningProbe(knowledge, [request], spec.variant, spec, self._clock())
        self._store.append(self._id, "probe_started", {"key": key, "point": request.point.to_text()})
        self._tell(ProbeStarted(key, request, question.rung.name if above else ""))

    def _wait_for_result(self, slots: int) -> None:
        """Wait until a probe has ended, or others need not be held back; progress alone needs no new plan."""
        was_held = self._holds_back(slots)
        while True:
            is_plan_due = was_held and not self._holds_back(slots)
            for event in self._executor.wait(WAIT_S):
                if isinstance(event, ProbeFinished):
                    is_plan_due |= self._finish(event.result)
                elif isinstance(event, ProbeLost):
                    is_plan_due |= self._lose(event.job_id, event.reason, event.node)
                else:
                    self._tell(ProbeMoved(event))
            if any(self._store.cancel_requested(name) for name in self._whole):
                raise InterruptedByUser("cancelled", hint=self._resume_hint)
            if is_plan_due or self._spending.is_late(self._worked_s()):
                return

    def _finish(self, result: ProbeResult) -> bool:
        job = self._jobs.get(result.job_id)
        if job is None:
            return False
        num_tries = self._num_tries.get(result.job_id, 0) + 1
        if num_tries < MAX_TRIES and (reason := why_lost(result)):
            return self._lose(result.job_id, reason, result.node)
        if reason := self._nodes.why_disbelieved(result.node) or self._warmth.take(job.spec, result):
            return self._lose(result.job_id, reason)
        del self._jobs[result.job_id]
        refuse_missing_judge(result, self._question.settings)
        self._nodes.note_finished(result.node)
        self._spending.add_finished(result.wall_s)
        job.knowledge.take_result(result, job.requests, job.variant)
        return True

    def _lose(self, key: str, reason: str, node: str = "") -> bool:
        """Note a lost probe; it is run again, or given up as untestable after `MAX_TRIES`."""
        job = self._jobs.pop(key, None)
        if job is None:
            return False
        tries = self._num_tries[key] = self._num_tries.get(key, 0) + 1
        lost = {"key": key, "reason": reason, "tries": tries, "wall_s": self._note_time(job)}
        self._store.append(self._id, PROBE_LOST, {**lost, "node": node} if node and self._nodes.is_cluster else lost)
        self._nodes.note_lost(key, node)
        for request in job.requests:
            self._tell(ProbeGone(key, request, reason))
            if tries >= MAX_TRIES:
                job.knowledge.give_up(request, job.variant, f"lost {tries} times: {reason}")
        return True
