"""The search of one ordered line of changes: evidence, belief, and the versions to run next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.belief import posterior_over_changes
from bisect_train.search.propose import propose_versions
from bisect_train.search.terms import Known, Request, Rules
from bisect_train.search.testable import testable_probability
from bisect_train.verdict.ends import Ends
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation

OBSOLETE_MASS = 0.001


@dataclass(frozen=True, slots=True)
class Line:
    """An ordered list of changes that is searched.

    Attributes:
        num_changes: N.
        point_of: gives the point of each version 0..N.
        skipped: versions that must not be run.
        refuted: nats (<= 0) that failed proofs said against a change, by index.
    """

    num_changes: int
    point_of: Callable[[int], Point]
    skipped: frozenset[int] = frozenset()
    refuted: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed about one line."""

    posterior: tuple[float, ...]
    evidence: Mapping[int, Evidence]
    wanted: tuple[Request, ...]

    @property
    def best(self) -> int:
        """Index of the most probable change."""
        return max(range(len(self.posterior)), key=lambda idx: self.posterior[idx])


def search_line(line: Line, rules: Rules, known: Known, ends: Ends) -> Belief:
    """Return the belief over one line and the runs that it wants: running ones that still matter, then new ones."""
    by_point: dict[Point, list[Observation]] = {}
    for run in known.observations:
        by_point.setdefault(run.point, []).append(run)
    evidence: dict[int, Evidence] = {}
    for version in range(1, line.num_changes):
        runs = by_point.get(line.point_of(version)) if by_point else None
        if runs:
            evidence[version] = judge_variant(runs, ends, rules.ends.metric)
    untestable = {version: False for version in line.skipped if 0 < version < line.num_changes}
    untestable |= {
        version: False
        for version in range(1, line.num_changes)
        if known.unbuildable and line.point_of(version) in known.unbuildable
    }
    is_testable = {version: item.verdict is not VerdictKind.UNTESTABLE for version, item in evidence.items()}
    posterior = posterior_over_changes(
        line.num_changes, {version: item.nats for version, item in evidence.items()}, nats_of_change=line.refuted
    )
    testable = testable_probability(line.num_changes, {**is_testable, **untestable})
    in_flight = _useful_in_flight(line, known, posterior.tolist())
    num_runs = {version: len(by_point[line.point_of(version)]) for version in evidence}
    for version, _ in in_flight:
        num_runs[version] = num_runs.get(version, 0) + 1
    new = propose_versions(
        posterior,
        testable,
        num=max(0, known.slots - len(in_flight)),
        in_flight=[version for version, _ in in_flight],
        num_runs=num_runs,
        max_runs=2 if ends.are_seeds_inert else rules.max_runs,
    )
    requests = [request for _, request in in_flight]
    for version in new:
        requests.append(Request(line.point_of(version), _next_seed(line.point_of(version), by_point, requests)))
    return Belief(tuple(posterior.tolist()), evidence, tuple(requests))


def _next_seed(point: Point, by_point: Mapping[Point, list[Observation]], requests: Sequence[Request]) -> int:
    taken = {run.seed_idx for run in by_point.get(point, ()) if run.attempt == 0}
    taken |= {request.seed_idx for request in requests if request.point == point and request.attempt == 0}
    return next(idx for idx in range(len(taken) + 1) if idx not in taken)


def _useful_in_flight(line: Line, known: Known, posterior: Sequence[float]) -> list[tuple[int, Request]]:
    """Return the running requests on this line that can still move the belief."""
    wanted_points = {request.point for request in known.in_flight if request.attempt == 0}
    versions = {
        line.point_of(version): version for version in range(1, line.num_changes) if line.point_of(version) in wanted_points
    }
    kept = []
    for request in sorted(known.in_flight):
        version = versions.get(request.point)
        if version is None or request.attempt != 0:
            continue
        below = sum(posterior[:version])
        if OBSOLETE_MASS < below < 1.0 - OBSOLETE_MASS:
            kept.append((version, request))
    return kept
