"""The search of one ordered line of changes: evidence, belief, and the versions to run next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion, Evidence, VerdictKind
from bisect_train.search.belief import FloatArray, posterior_over_changes
from bisect_train.search.propose import propose_versions
from bisect_train.search.terms import Known, Request, Rules
from bisect_train.search.testable import testable_probability
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind

OBSOLETE_MASS = 0.001
NUM_RUNS_WITHOUT_NOISE = 2  # runs of one version, at most, where another seed tells nothing new
MAX_SEARCH_RUNS = 120  # 80 left 0-1 % of single steps and 87-99 % of drifts open (FINDINGS 3b); batches need some more


@dataclass(frozen=True, slots=True)
class Line:
    """An ordered list of changes that is searched.

    Attributes:
        num_changes: N.
        point_of: gives the point of each version 0..N; between the ends version k has a prefix of k changes.
        skipped: versions that must not be run.
        doubts: nats (<= 0) against a change, by index: failed proofs, or a prior below that of the others.
    """

    num_changes: int
    point_of: Callable[[int], Point]
    skipped: frozenset[int] = frozenset()
    doubts: Mapping[int, float] = field(default_factory=dict)

    def version_at(self, point: Point) -> int | None:
        """Return the version between the ends that lies at a point, None when there is none."""
        version = point.prefix
        return version if 0 < version < self.num_changes and self.point_of(version) == point else None


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed about one line; `num_judged` counts the runs of the search (not of a proof) that could be judged."""

    posterior: tuple[float, ...]
    evidence: Mapping[int, Evidence]
    wanted: tuple[Request, ...]
    num_judged: int

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
    evidence = {version: judge_variant(runs, ends, rules.ends.metric) for version, runs in sorted(runs_of.items())}
    posterior = posterior_over_changes(
        line.num_changes, {version: item.nats for version, item in evidence.items()}, nats_of_change=line.doubts
    )
    state = _State(posterior, evidence, runs_of)
    num_judged = _count_judged(state)
    wanted = _wanted_runs(line, rules, known, ends, state) if num_judged < MAX_SEARCH_RUNS else ()
    return Belief(tuple(posterior.tolist()), evidence, wanted, num_judged)


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
    in_flight = [pair for pair in _useful_in_flight(line, known, state) if pair[0] not in blocked]
    num_runs = {version: len(runs) for version, runs in state.runs_of.items()}
    for version, _ in in_flight:
        num_runs[version] = num_runs.get(version, 0) + 1
    new = propose_versions(
        state.posterior,
        testable_probability(line.num_changes, is_testable),
        num=max(0, known.slots - len(in_flight)),
        in_flight=[version for version, _ in in_flight],
        num_runs=num_runs,
        max_runs=NUM_RUNS_WITHOUT_NOISE if ends.are_seeds_inert or ends.criterion is Criterion.EXACT else rules.max_runs,
    )
    if not new and not in_flight:
        new = _versions_to_retry(line, state, blocked)[: known.slots]
    requests = [request for _, request in in_flight]
    for version in new:
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
