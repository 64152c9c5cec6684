"""The search of one ordered line of changes: evidence, belief, and the versions to run next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion, Evidence, VerdictKind
from bisect_train.search.belief import FloatArray, posterior_over_changes
from bisect_train.search.marks import with_marks
from bisect_train.search.propose import propose_versions
from bisect_train.search.rates import posterior_with_rates, propose_with_rates
from bisect_train.search.terms import Known, Request, Rules
from bisect_train.search.testable import testable_probability
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.evidence import failures_and_passes, judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind

OBSOLETE_MASS = 0.001
NUM_RUNS_WITHOUT_NOISE = 2  # runs of one version, at most, where another seed tells nothing new
MAX_RATE_RUNS = 400  # failure rates of 0.05 and 0.4 take 120 in the mean on 128 commits
MAX_SEARCH_RUNS = 120  # 80 left 0-1 % of single steps and 87-99 % of drifts open (FINDINGS 3b); batches need some more


@dataclass(frozen=True, slots=True)
class Line:
    """An ordered list of changes that is searched.

    Attributes:
        num_changes: N.
        point_of: gives the point of each version 0..N; between the ends version k has a prefix of k changes.
        skipped: versions that must not be run.
        doubts: nats for or against a change, by index: its prior weight, and failed proofs (<= 0).
        marks: what a person said about versions; those are not run.
        costs: of the next run of a version, where it is not that of a typical one.
    """

    num_changes: int
    point_of: Callable[[int], Point]
    skipped: frozenset[int] = frozenset()
    doubts: Mapping[int, float] = field(default_factory=dict)
    marks: Mapping[int, VerdictKind] = field(default_factory=dict)
    costs: Mapping[int, float] = field(default_factory=dict)

    def cost_by_version(self) -> FloatArray | None:
        """Return the cost of the next run of each version 0..N; None where all are alike."""
        if not self.costs:
            return None
        cost = np.ones(self.num_changes + 1)
        for version, value in self.costs.items():
            cost[version] = value
        return cost

    def version_at(self, point: Point) -> int | None:
        """Return the version between the ends that lies at a point, None when there is none."""
        version = point.prefix
        return version if 0 < version < self.num_changes and self.point_of(version) == point else None


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed about one line.

    `num_judged` counts the runs of the search (not of a proof) that could be judged; `inert` are changes that need no run
    (`search.inert`).
    """

    posterior: tuple[float, ...]
    evidence: Mapping[int, Evidence]
    wanted: tuple[Request, ...]
    num_judged: int
    inert: frozenset[int] = frozenset()

    @property
    def best(self) -> int:
        """Index of the most probable change, the first of equal ones."""
        return self.posterior.index(max(self.posterior))


def search_line(line: Line, rules: Rules, known: Known, ends: Ends) -> Belief:
    """Return the belief over one line and the runs that it wants: running ones that still matter, then new ones."""
    runs_of: dict[int, list[Observation]] = {}
    for run in known.observations:
        if (version := line.version_at(run.point)) is not None:
            runs_of.setdefault(version, []).append(run)
    measured = {version: judge_variant(runs, ends, rules.ends.metric) for version, runs in sorted(runs_of.items())}
    evidence = with_marks(measured, line.marks)
    posterior = _posterior(line, runs_of, evidence, ends)
    state = _State(posterior, evidence, runs_of)
    num_judged = _count_judged(state)
    wanted = _wanted_runs(line, rules, known, ends, state) if num_judged < max_search_runs(ends) else ()
    return Belief(tuple(posterior.tolist()), evidence, wanted, num_judged)


def _posterior(
    line: Line, runs_of: Mapping[int, Sequence[Observation]], evidence: Mapping[int, Evidence], ends: Ends
) -> FloatArray:
    if not ends.is_flaky:
        by_version = {version: item.nats for version, item in evidence.items()}
        return posterior_over_changes(line.num_changes, by_version, nats_of_change=line.doubts)
    nats_of_change = dict(line.doubts)
    for version in line.marks:  # a mark is no run with a rate: it speaks against the changes on its wrong side
        nats = evidence[version].nats
        against = range(version, line.num_changes) if nats > 0 else range(version) if nats < 0 else ()
        nats_of_change |= {idx: nats_of_change.get(idx, 0.0) - abs(nats) for idx in against}
    return posterior_with_rates(line.num_changes, _counts_of(line, runs_of, ends), nats_of_change=nats_of_change)


def max_search_runs(ends: Ends) -> int:
    """Return the number of judged runs after which a search ends without a single change."""
    return MAX_RATE_RUNS if ends.is_flaky else MAX_SEARCH_RUNS


def _counts_of(line: Line, runs_of: Mapping[int, Sequence[Observation]], ends: Ends) -> dict[int, tuple[int, int]]:
    """Return failures and passes by version, those of the ends included."""
    unmarked = {version: runs for version, runs in runs_of.items() if version not in line.marks}
    counts = {version: failures_and_passes(runs, ends) for version, runs in unmarked.items()}
    return {**counts, 0: ends.good_counts, line.num_changes: ends.bad_counts}


@dataclass(frozen=True, slots=True)
class _State:
    """What the observations say about a line: belief, evidence and runs by version."""

    posterior: FloatArray
    evidence: Mapping[int, Evidence]
    runs_of: Mapping[int, Sequence[Observation]]


def _wanted_runs(line: Line, rules: Rules, known: Known, ends: Ends, state: _State) -> tuple[Request, ...]:
    blocked = {version for version in line.skipped if 0 < version < line.num_changes}
    blocked |= {version for point in known.unbuildable if (version := line.version_at(point)) is not None}
    is_testable = {version: item.verdict is not VerdictKind.UNTESTABLE for version, item in state.evidence.items()}
    is_testable |= dict.fromkeys(blocked, False)
    blocked |= line.marks.keys()
    in_flight = [pair for pair in _useful_in_flight(line, known, state) if pair[0] not in blocked]
    num_runs = {version: len(runs) for version, runs in state.runs_of.items()}
    for version, _ in in_flight:
        num_runs[version] = num_runs.get(version, 0) + 1
    testable, num = testable_probability(line.num_changes, is_testable), max(0, known.slots - len(in_flight))
    testable[list(line.marks)] = 0.0  # a person has said what they are
    running, cost = [version for version, _ in in_flight], line.cost_by_version()
    if ends.is_flaky:
        testable[[0, line.num_changes]] = 0.0  # the proof of the ends ran these often enough
        below = np.concatenate([[0.0], np.cumsum(state.posterior)])
        testable[(below <= OBSOLETE_MASS) | (below >= 1.0 - OBSOLETE_MASS)] = 0.0  # would be cancelled at once
        counts = _counts_of(line, state.runs_of, ends)
        chosen = propose_with_rates(line.num_changes, counts, state.posterior, testable, num=num, in_flight=running, cost=cost)
        return _requests_for(line, state, [request for _, request in in_flight], chosen)
    is_inert = ends.are_seeds_inert or ends.criterion is Criterion.EXACT
    max_runs = NUM_RUNS_WITHOUT_NOISE if is_inert else rules.max_runs
    new = propose_versions(
        state.posterior, testable, num=num, in_flight=running, num_runs=num_runs, max_runs=max_runs, cost=cost
    )
    if not new and not in_flight:
        new = _versions_to_retry(line, state, blocked)[: known.slots]
    return _requests_for(line, state, [request for _, request in in_flight], new)


def _requests_for(line: Line, state: _State, in_flight: Sequence[Request], versions: Sequence[int]) -> tuple[Request, ...]:
    """Return the running requests and new ones, each on the first seed that its version has not had."""
    requests = list(in_flight)
    for version in versions:
        requests.append(Request(line.point_of(version), _next_seed(line.point_of(version), version, state, requests)))
    return tuple(requests)


def _versions_to_retry(line: Line, state: _State, blocked: Collection[int]) -> list[int]:
    """Return the versions that failed once, in their only run: before the search gives up, another seed may run.

    Only those count that could still split the belief; what could not be built or started is not tried again.
    """
    below = np.concatenate([[0.0], np.cumsum(state.posterior)])
    return [
        version
        for version, runs in sorted(state.runs_of.items())
        if version not in blocked
        and OBSOLETE_MASS < below[version] < 1.0 - OBSOLETE_MASS
        and [run.outcome.kind for run in runs] == [OutcomeKind.FAILED]
        and state.evidence[version].verdict is VerdictKind.UNTESTABLE
    ]


def _count_judged(state: _State) -> int:
    usable = [runs for version, runs in state.runs_of.items() if state.evidence[version].verdict is not VerdictKind.UNTESTABLE]
    return sum(run.attempt == 0 for runs in usable for run in runs)


def _next_seed(point: Point, version: int, state: _State, requests: Sequence[Request]) -> int:
    taken = {run.seed_idx for run in state.runs_of.get(version, ()) if run.attempt == 0}
    taken |= {request.seed_idx for request in requests if request.point == point and request.attempt == 0}
    return next(idx for idx in range(len(taken) + 1) if idx not in taken)


def _useful_in_flight(line: Line, known: Known, state: _State) -> list[tuple[int, Request]]:
    """Return the running requests on this line that can still move the belief, by version."""
    below = np.concatenate([[0.0], np.cumsum(state.posterior)])  # below[k] = P(culprit among the first k changes)
    kept = []
    for request in sorted(known.in_flight):
        version = line.version_at(request.point)
        if version is None or request.attempt != 0:
            continue
        done = {(run.seed_idx, run.repeat) for run in state.runs_of.get(version, ()) if run.attempt == 0}
        is_open = (request.seed_idx, request.repeat) not in done
        if is_open and OBSOLETE_MASS < below[version] < 1.0 - OBSOLETE_MASS:
            kept.append((version, request))
    return kept
