"""What a coordinator knows: observations, results that it may take over, what a person said; stored before it is used.

Results are known by key. One of this bisection answers every request whose point gives the same variant; one of another
bisection counts until a fresh repeat contradicts such a result, which drops all of them. What was taken back never counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from bisect_train.coordinator.contradiction import contradicted_marks
from bisect_train.coordinator.early import EarlyVerdicts
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.events import CoordinatorEvent, MarkContradicted, ProbeDone, ProbeGone
from bisect_train.coordinator.golden import GOLDEN_STALE, golden_observations, is_stale
from bisect_train.coordinator.node_events import Why, suspects_of
from bisect_train.coordinator.observing import (
    BEGUN_AS,
    REUSE_DISTRUSTED,
    is_of_rung,
    load_state,
    observe,
    observe_lost,
    request_of,
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
from bisect_train.coordinator.trust import has_foreign_judge, is_contradicted, is_reusable
from bisect_train.coordinator.unread import Reads
from bisect_train.core.changes import Point, Variant
from bisect_train.core.early import EarlyRules
from bisect_train.core.probe import MachineFacts, ProbeResult, ProbeSpec, probe_key, share_a_node
from bisect_train.core.question import Question
from bisect_train.core.reads import ReadSet
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.node_checks import NODE_CHECK
from bisect_train.search.terms import Known, Plan, Request, Rules
from bisect_train.store.contract import PROBE_FINISHED, PROBE_REUSED, Store, StoredEvent
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Observation


@dataclass(slots=True)
class Tally:
    """Probes that a bisection has run, and results that it has taken over, on all its rungs."""

    num_probes: int = 0
    num_reused: int = 0


class Knowledge:
    """What is known of one bisection on one rung.

    Args:
        question: what was asked.
        bisection_id: where observations are stored.
        store: events and results; the caller holds the bisection's lock.
        facts: of the machine that runs the probes.
        listener: told what happens.
        tally: counts what is run and reused, on all rungs together.
    """

    def __init__(
        self,
        question: Question,
        *,
        bisection_id: str,
        store: Store,
        facts: MachineFacts,
        listener: Callable[[CoordinatorEvent], None],
        tally: Tally | None = None,
    ) -> None:
        self._question = question
        self._id = bisection_id
        self._store = store
        self._facts = facts
        self._tell = listener
        self._begin()
        self.tally = tally or Tally()

    def _begin(self) -> None:
        """Know nothing yet."""
        self._observations: list[Observation] = []
        self._unbuildable: dict[Point, str] = {}
        self._marks: dict[int, VerdictKind] = {}
        self._contradicted: set[int] = set()
        self._own_results: dict[str, ProbeResult] = {}
        self._recorded: dict[Request, ProbeResult] = {}
        self._reads: dict[Request, ReadSet | None] = {}
        self._whole_keys: dict[str, str] = {}  # of runs that may be stopped early, by their own key
        self._early = EarlyVerdicts(self._question)
        self._checks: dict[Request, ProbeResult | None] = {}
        self._reused: set[Request] = set()
        self._golden: list[Observation] = []
        self._trusts_reuse = True
        self._taken_back = TakenBack()
        self._durations: list[tuple[Point, float]] = []
        self._disbelieved: frozenset[str] = frozenset()

    def load(self) -> None:
        """Take over what earlier coordinators of this bisection observed."""
        stored = load_state(self._store, self._id, self._question, facts=self._facts)
        self._unbuildable.update(stored.unbuildable)
        self._observations.extend(stored.observations)
        self._own_results.update((probe.key, probe.result) for probe in stored.probes)
        self._recorded.update((request_of_spec(probe.spec), probe.result) for probe in stored.probes)
        self._reads.update(stored.reads)
        self._checks.update(stored.checks)
        self._marks.update(stored.marks)
        self._durations.extend((request_of_spec(probe.spec).point, probe.result.wall_s) for probe in stored.probes)
        events = read_events(self._store, self._id)
        kinds = Counter(event.kind for event in events)
        self.tally.num_probes, self.tally.num_reused = kinds[PROBE_FINISHED], kinds[PROBE_REUSED]
        self._trusts_reuse = not kinds[REUSE_DISTRUSTED]
        golden = golden_observations(self._question, self._facts)
        self._golden = [run for run in golden if run in self._observations]
        self._taken_back = taken_back(events)
        above = read_events(self._store, self._question.part_of) if self._question.part_of else ()
        self._disbelieved = frozenset(node for node, why in suspects_of((*above, *events)).items() if why is Why.WRONG)
        reused = (request_of_spec(event.data["spec"]) for event in events_that_count(events) if self._is_reused(event))
        self._reused.update(reused if self._trusts_reuse else ())

    def _is_reused(self, event: StoredEvent) -> bool:
        """Return whether an event took over a result of another bisection on this rung."""
        return is_foreign(event) and is_of_rung(event.data["spec"], self._question)

    def reload(self) -> None:
        """Read anew what is stored: results of a node that is not believed any more were taken back."""
        whole_keys, contradicted = self._whole_keys, self._contradicted  # of runs that still go; told already
        self._begin()
        self._whole_keys, self._contradicted = whole_keys, contradicted
        self.load()

    def seen(self) -> list[tuple[Observation, ProbeResult]]:
        """Return the observations that count with the results behind them; given up and golden ones have none."""
        return [(run, self._recorded[request_of(run)]) for run in self._observations if request_of(run) in self._recorded]

    def checks(self) -> list[tuple[Request, tuple[Observation, ProbeResult] | None]]:
        """Return what other nodes said when they were asked about a run; None where that was lost too often."""
        return [
            (request, None if result is None else (observe(request, result.fingerprint, self._question), result))
            for request, result in self._checks.items()
        ]

    def known(self, in_flight: list[Request], slots: int) -> Known:
        """Return it in the terms of the search."""
        return Known(self._observations, self._unbuildable, in_flight, slots, self._marks)

    def reads(self) -> list[Reads]:
        """Return what each run that counts has read."""
        return [(request.point, reads) for request, reads in self._reads.items()]

    def key_of(self, request: Request, spec: ProbeSpec) -> str:
        """Return the probe's identity; repeats and proofs are fresh in each bisection, and so is what was taken back."""
        is_fresh = request.repeat > 0 or request.attempt > 0 or has_foreign_judge(self._question.settings)
        is_fresh |= not (self._trusts_reuse and self._question.limits.reuse)
        gone = self._taken_back
        for num in count(gone.num_times.get(request, 0)):
            scope = f"{self._id}/again-{num}" if num else self._id if is_fresh else ""
            key = probe_key(spec, settings=self._question.settings, facts=self._facts, scope=scope)
            if key not in gone.keys:
                break
        return key

    def early_rules(self, request: Request, plan: Plan, rules: Rules) -> EarlyRules | None:
        """Return when a run may be stopped before its last step; None where it must go to its end."""
        return self._early.rules_for(request, plan, rules, observations=self._observations, runs=self._recorded)

    def early_key_of(self, key: str, spec: ProbeSpec, early: EarlyRules | None) -> str:
        """Return the key of a run that may be stopped early, given that of the whole run; this one where that is known."""
        if early is None or self.has_result(key):
            return key
        scope = f"{self._id}/early-{key}"
        early_key = probe_key(spec, settings=self._question.settings, facts=self._facts, scope=scope)
        if early_key in self._taken_back.keys:
            return key
        self._whole_keys[early_key] = key
        return early_key

    def durations(self) -> tuple[tuple[Point, float], ...]:
        """Return the point and the time (seconds) of each probe that this bisection has run on this rung, in that order."""
        return tuple(self._durations)

    def has_result(self, key: str) -> bool:
        """Return whether a result is known already that can stand for a run of this bisection."""
        if key in self._own_results:
            return True
        return self._find_foreign(key) is not None

    def _find_foreign(self, key: str) -> ProbeResult | None:
        """Return a stored result that can stand for a run of this bisection."""
        result = self._store.find_result(key)
        if result is None or share_a_node(result.node, self._disbelieved) or not is_reusable(result, self._question.settings):
            return None
        return result

    def take_known(self, key: str, request: Request, variant: Variant) -> bool:
        """Take a result that is known already, of this bisection for the same variant, or of another; False if none is."""
        own = self._own_results.get(key)
        if own is not None:
            self._share(key, request, variant)
            self._observe(key, request, own, is_reused=True)
            return True
        result = self._find_foreign(key)
        if result is None:
            return False
        self._store.reuse_result(self._id, key, self._spec_of(request, variant))
        self.tally.num_reused += 1
        self._reused.add(request)
        self._observe(key, request, result, is_reused=True)
        return True

    def take_result(self, result: ProbeResult, requests: Iterable[Request], variant: Variant) -> None:
        """Store the result of a probe that has run, and take it for each request that it answers."""
        first, *others = requests
        key, spec = self._key_to_store(result), self._spec_of(first, variant)
        if key != result.job_id:
            spec[BEGUN_AS] = result.job_id
        self._store.save_result(self._id, key, result, spec=spec)
        self.tally.num_probes += 1
        if first.part == NODE_CHECK:
            self._checks[first] = result
            observation = observe(first, result.fingerprint, self._question)
            self._tell(ProbeDone(result.job_id, observation, result, is_reused=False))
            return
        self._durations.append((first.point, result.wall_s))
        self._observe(key, first, result, is_reused=False, told_key=result.job_id)
        for request in others:
            self._share(key, request, variant)
            self._observe(key, request, result, is_reused=True)

    def _key_to_store(self, result: ProbeResult) -> str:
        """Return the key of a result: a run that might have been stopped early and was not is a whole run like any other."""
        whole = self._whole_keys.get(result.job_id, result.job_id)
        return result.job_id if result.fingerprint.early is not None or whole in self._own_results else whole

    def give_up(self, request: Request, variant: Variant, reason: str) -> None:
        """Store that a probe was lost too often: its request has no verdict."""
        self._store.append(self._id, GIVEN_UP, {**self._spec_of(request, variant), "reason": reason})
        if request.part == NODE_CHECK:
            self._checks[request] = None
            return
        self._observations.append(observe_lost(request, reason))

    def note_unbuildable(self, request: Request, reason: str) -> None:
        """Store that a point cannot be built."""
        self._store.append(self._id, "unbuildable", {"point": request.point.to_text(), "reason": reason})
        self._unbuildable[request.point] = reason
        self._tell(ProbeGone("", request, reason))

    def tell_contradicted(self, ends: Ends) -> None:
        """Tell of each mark, once, that its version's runs show the opposite."""
        for found in contradicted_marks(self._marks, self._observations, ends, self._question.metric):
            if found.version not in self._contradicted:
                self._contradicted.add(found.version)
                self._tell(MarkContradicted(found))

    def _spec_of(self, request: Request, variant: Variant) -> dict[str, object]:
        return spec_of_request(request, variant, self._facts, self._question)

    def _share(self, key: str, request: Request, variant: Variant) -> None:
        """Store that one result answers another request too: two points with the same files are one variant."""
        self._store.append(self._id, RESULT_SHARED, {"key": key, "spec": self._spec_of(request, variant)})

    def _observe(
        self, key: str, request: Request, result: ProbeResult, *, is_reused: bool, told_key: str | None = None
    ) -> None:
        self._own_results[key] = result
        self._recorded[request] = result
        self._reads[request] = result.fingerprint.reads
        observation = observe(request, result.fingerprint, self._question)
        self._observations.append(observation)
        self._tell(ProbeDone(told_key or key, observation, result, is_reused))
        repeats = all(item.repeats for item in self._question.golden)
        if self._golden and is_stale(self._golden, observation, repeats=repeats):
            self._distrust_golden(key)
        if self._reused and is_contradicted(observation, self._observations, self._reused):
            self._distrust_reused()

    def _distrust_golden(self, key: str) -> None:
        """Drop what the baseline says: the good end does not show it any more, so something outside git has changed."""
        self._store.append(self._id, GOLDEN_STALE, {"key": key})
        self._observations = [run for run in self._observations if run not in self._golden]
        self._golden = []

    def _distrust_reused(self) -> None:
        """Drop what earlier bisections observed: a fresh repeat gave other bits, so something outside git has changed."""
        self._store.append(self._id, REUSE_DISTRUSTED, {})
        self._trusts_reuse = False
        self._early = EarlyVerdicts(self._question)  # made from runs that do not count any more
        self._observations = [run for run in self._observations if request_of(run) not in self._reused]
        for request in self._reused:
            self._reads.pop(request, None)
        self._reused.clear()
