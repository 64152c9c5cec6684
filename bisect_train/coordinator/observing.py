"""From stored results to observations and back to a plan: what resume, reports and the loop share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.event_log import read_events, read_results
from bisect_train.coordinator.golden import golden_that_count
from bisect_train.coordinator.node_events import disagreement_of
from bisect_train.coordinator.person import (
    GIVEN_UP,
    RESULT_SHARED,
    events_that_count,
    is_foreign,
    marks_of,
    request_of_spec,
    taken_back,
)
from bisect_train.coordinator.unread import Unread
from bisect_train.core.changes import Point, Variant, point_of_text
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import MachineFacts, ProbeResult
from bisect_train.core.question import Question
from bisect_train.core.reads import ReadSet
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.node_checks import NODE_CHECK
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, Plan, Request, Rules, answer_budget, answer_nodes
from bisect_train.shrink.ladder import level_share
from bisect_train.store.contract import MARKED, PROBE_FINISHED, UNDONE, Store, StoredEvent, StoredProbe
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind, judge_outcome

MIN_MAX_RUNS = 6  # runs of one version in the search, at most; more where more seeds are allowed for each end
LIMITS_CHANGED = "limits_changed"
"""Event {max_probes, gpu_hours}: what may be spent in all, from here on; what is missing stays as it was."""

UNSEEN = "is_unseen"  # in "budget_spent": no second node had seen what the answer hangs on
BY_A_PERSON = (MARKED, UNDONE, LIMITS_CHANGED)
BEGUN_AS = "begun_as"  # in a spec: the key under which the probe was started, where its result has another one
REUSE_DISTRUSTED = "reuse_distrusted"  # a fresh repeat contradicted a reused result: none of them counts from here on


def count_rounds(events: Sequence[StoredEvent]) -> int:
    """Return the length of the longest chain of probes that each began after the one before had ended.

    k workers that are never idle run n probes of one length in n / k rounds.
    """
    round_of: dict[str, int] = {}
    ended = 0
    for event in events:
        if event.kind == "probe_started":
            round_of[event.data["key"]] = ended + 1
        elif event.kind == PROBE_FINISHED:
            ended = max(ended, round_of.get(event.data.get("spec", {}).get(BEGUN_AS, event.data["key"]), 0))
    return ended


def rules_for(question: Question, space: ChangeSpace) -> Rules:
    """Return the rules of the search for a question."""
    return Rules(
        num_changes=len(space.changes),
        ends=EndRules(
            metric=question.metric,
            criterion=question.criterion,
            any_change=question.any_change,
            min_effect=question.min_effect,
            max_seeds=question.limits.max_seeds,
            has_judge=bool(question.settings.judge),
            repeats_known=question.repeats,
            symptom=question.symptom,
            level_share=level_share(len(question.ladder), question.rung_idx),
        ),
        num_earlier_attempts=question.num_earlier_attempts,
        good_is_base=space.good_is_base,
        num_ordered=space.num_ordered,
        skipped=space.skipped,
        prior_nats=space.priors.nats,
        confidence=question.limits.confidence,
        max_runs=max(MIN_MAX_RUNS, 3 * question.limits.max_seeds // 4),
        ends_only=question.ends_only,
        first_seed=question.first_seed,
    )


def spec_of_request(request: Request, variant: Variant, facts: MachineFacts, question: Question) -> dict[str, Any]:
    """Return what the store keeps beside a result: which run it was, of which variant, where."""
    return {
        "point": request.point.to_text(),
        "seed_idx": request.seed_idx,
        "repeat": request.repeat,
        "attempt": request.attempt,
        "proof_of": request.proof_of,
        "part": request.part,
        "variant": variant.id,
        "commit": variant.commit,
        "tree": variant.tree,
        "config": variant.config.text if variant.config else None,
        "rung": question.rung.name,
        "hardware_class": facts.hardware_class,
        "interpreter": facts.interpreter,
    }


def observe(request: Request, fingerprint: Fingerprint, question: Question) -> Observation:
    """Return a finished probe in the terms of the search."""
    has_judge = bool(question.settings.judge)
    outcome = judge_outcome(fingerprint, question.metric, has_judge=has_judge, symptom=question.symptom)
    return Observation(
        request.point, request.seed_idx, request.repeat, request.attempt, request.proof_of, outcome, request.part
    )


def is_comparable(spec: Mapping[str, Any], facts: MachineFacts) -> bool:
    """Return whether what was stored comes from this hardware class and interpreter; others are never mixed in."""
    return bool(spec.get("hardware_class") == facts.hardware_class and spec.get("interpreter") == facts.interpreter)


def is_of_rung(spec: Mapping[str, Any], question: Question) -> bool:
    """Return whether what was stored was run on the rung of this question; evidence counts for its own rung only."""
    return bool(spec.get("rung", question.rung.name) == question.rung.name)


def of_rung(probes: Iterable[StoredProbe], question: Question) -> tuple[StoredProbe, ...]:
    """Return the results of runs on the rung of this question."""
    return tuple(probe for probe in probes if is_of_rung(probe.spec, question))


def request_of(run: Observation) -> Request:
    """Return the request that an observation answers."""
    return Request(run.point, run.seed_idx, run.repeat, run.attempt, run.proof_of, run.part)


def observe_stored(probes: Iterable[StoredProbe], question: Question) -> list[Observation]:
    """Return the observations that stored results give."""
    return [observe(request_of_spec(probe.spec), probe.result.fingerprint, question) for probe in probes]


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the store knows of a bisection on one rung: comparable results, observations (lost ones given up too), conflicts.

    What a person took back is left out.

    Attributes:
        marks: what a person said about versions.
        budget_reason: why it ended without an answer, "" otherwise.
        reads: what each run has read, by its request; None where it has not told.
        checks: runs that asked another node about a run that is known; None where they were lost too often.
        disagreement: why nodes that contradict each other leave no answer, "" otherwise.
        is_unseen: whether the budget ended it before a second node had seen what the answer hangs on.
    """

    probes: tuple[StoredProbe, ...]
    observations: tuple[Observation, ...]
    unbuildable: Mapping[Point, str]
    budget_reason: str = ""
    marks: Mapping[int, VerdictKind] = field(default_factory=dict)
    reads: Mapping[Request, ReadSet | None] = field(default_factory=dict)
    checks: Mapping[Request, ProbeResult | None] = field(default_factory=dict)
    disagreement: str = ""
    is_unseen: bool = False

    def inert(self, question: Question, space: ChangeSpace) -> frozenset[int]:
        """Return the indices of the changes that the program was seen not to read."""
        return Unread(question, space).changes((request.point, reads) for request, reads in self.reads.items())

    def plan(self, question: Question, space: ChangeSpace) -> Plan:
        """Return the plan that these observations lead to; runs nothing."""
        inert = self.inert(question, space)
        plan = make_plan(rules_for(question, space), Known(self.observations, self.unbuildable, marks=self.marks, inert=inert))
        if self.disagreement:
            return replace(plan, phase=Phase.DONE, wanted=(), answer=answer_nodes(plan, self.disagreement))
        if self.budget_reason and self.is_unseen:
            return replace(plan, answer=answer_budget(replace(plan, own=None), self.budget_reason))
        if plan.answer is None and self.budget_reason:
            return replace(plan, answer=answer_budget(plan, self.budget_reason))
        return plan


def load_state(store: Store, bisection_id: str, question: Question, *, facts: MachineFacts | None = None) -> StoredState:
    """Return what is stored of a bisection.

    Args:
        facts: of the machine that goes on with it; None takes those of the newest result.
    """
    every = read_events(store, bisection_id)
    events = events_that_count(every)
    believed = _results_not_taken_back(store, bisection_id)
    probes = tuple(probe for probe in believed if not _is_check(probe.spec))
    if any(event.kind == REUSE_DISTRUSTED for event in events):
        foreign = {event.data["key"] for event in events if is_foreign(event)}
        probes = tuple(probe for probe in probes if probe.key not in foreign)
    if facts is None and probes:
        newest = probes[-1].spec
        facts = MachineFacts(str(newest.get("hardware_class")), str(newest.get("interpreter")), 1)
    comparable = tuple(probe for probe in probes if facts is None or is_comparable(probe.spec, facts))
    kept = of_rung(comparable, question)
    by_key = {probe.key: probe for probe in kept}
    observations = observe_stored(kept, question)
    reads = {request_of_spec(probe.spec): probe.result.fingerprint.reads for probe in kept}
    unbuildable: dict[Point, str] = {}
    checks: dict[Request, ProbeResult | None] = {
        request_of_spec(probe.spec): probe.result
        for probe in of_rung(believed, question)
        if _is_check(probe.spec) and (facts is None or is_comparable(probe.spec, facts))
    }
    for event in events:
        if event.kind == GIVEN_UP and _is_check(event.data):
            if is_of_rung(event.data, question):
                checks.setdefault(request_of_spec(event.data), None)
        elif event.kind == "unbuildable":
            unbuildable[point_of_text(event.data["point"])] = str(event.data["reason"])
        elif (
            event.kind == GIVEN_UP and is_of_rung(event.data, question) and (facts is None or is_comparable(event.data, facts))
        ):
            observations.append(observe_lost(request_of_spec(event.data), str(event.data["reason"])))
        elif event.kind == RESULT_SHARED and event.data["key"] in by_key:
            result = by_key[event.data["key"]].result
            request = request_of_spec(event.data["spec"])
            observations.append(observe(request, result.fingerprint, question))
            reads[request] = result.fingerprint.reads
    observations += golden_that_count(question, facts, observations)
    spent, split = _budget_spent(every), disagreement_of(every)
    reason, marks = str(spent.get("reason", "")), marks_of(events)
    is_unseen = bool(spent.get(UNSEEN))
    return StoredState(kept, tuple(observations), unbuildable, reason, marks, reads, checks, split, is_unseen)


def _budget_spent(events: Sequence[StoredEvent]) -> Mapping[str, Any]:
    """Return what the event says with which the budget ended it, unless it was started or changed by a person since."""
    for event in reversed(events):
        if event.kind == "budget_spent":
            return event.data
        if event.kind in ("started", *BY_A_PERSON):
            return {}
    return {}


def results_that_count(store: Store, bisection_id: str) -> tuple[StoredProbe, ...]:
    """Return a bisection's results without those that were taken back, and without what only asked about nodes."""
    return tuple(probe for probe in _results_not_taken_back(store, bisection_id) if not _is_check(probe.spec))


def _results_not_taken_back(store: Store, bisection_id: str) -> tuple[StoredProbe, ...]:
    keys = taken_back(read_events(store, bisection_id)).keys
    return tuple(probe for probe in read_results(store, bisection_id) if probe.key not in keys)


def _is_check(spec: Mapping[str, Any]) -> bool:
    return spec.get("part") == NODE_CHECK


def active_s(events: Sequence[StoredEvent]) -> float:
    """Return how long the earlier coordinators of a bisection worked, without the one that was started last; seconds."""
    return _worked_s(events)[0]


def worked_s(events: Sequence[StoredEvent]) -> float:
    """Return how long the coordinators of a bisection worked, the last one too; seconds."""
    return sum(_worked_s(events))


def _worked_s(events: Sequence[StoredEvent]) -> tuple[float, float]:
    """Return the time of the coordinators before the last one, and that of the last one, seconds."""
    total_s, begun_s, last_s = 0.0, None, 0.0
    for event in events:
        if event.kind == "started":
            total_s += last_s - begun_s if begun_s is not None else 0.0
            begun_s = event.time_s
        # while a bisection inside one of its merges works, it does not; nor when a person marks something long after
        if event.kind not in ("finished", *BY_A_PERSON) and "child" not in event.data:
            last_s = event.time_s
    return total_s, max(0.0, last_s - begun_s) if begun_s is not None else 0.0


def observe_lost(request: Request, reason: str) -> Observation:
    """Return the observation of a probe that was lost too often: it has no verdict."""
    outcome = Outcome(OutcomeKind.UNTESTABLE, reason=reason)
    return Observation(
        request.point, request.seed_idx, request.repeat, request.attempt, request.proof_of, outcome, request.part
    )
