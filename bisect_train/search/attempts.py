"""Attempts at a proof: which fresh runs belong to one, which are missing, and whether another one is worth while.

Attempt n uses the seed indices 100 n, 100 n + 1, ... and tests each claim at 0.005 / 2^n (`verdict.proof`), so that all
attempts of a bisection together spend 0.005 per claim, whatever they are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.marks import MARKED_UNTESTABLE
from bisect_train.search.terms import Known, Request, Rules
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import Claim, ClaimResult, ClaimStatus, ProofRuns, examine_claim

MAX_ATTEMPTS = 3
STUCK_PROBABILITY = 0.8  # a search that can go no further still puts a change of this probability to the proof
LAST_ATTEMPT = 7  # of all parts together: no exact test of 10 + 10 runs, or of 20 pairs, can reach the level of a later one
SEEDS_PER_ATTEMPT = 100  # attempt n uses seed indices 100 n, 100 n + 1, ...
MEASURED = ("permutation", "paired", "t", "rates")  # by values that chance and oddities of a state move, not by bits


@dataclass(frozen=True, slots=True)
class Tested:
    """Claims as the newest attempt shows them, and the runs that they still want."""

    results: tuple[ClaimResult, ...]
    wanted: tuple[Request, ...]
    attempt: int

    @property
    def has_held(self) -> bool:
        """Whether every claim held."""
        return all(result.status is ClaimStatus.HELD for result in self.results)


def newest_attempt(rules: Rules, known: Known) -> int:
    """Return the number of the newest attempt, running ones included."""
    earlier = rules.num_earlier_attempts
    return max([earlier, *(run.attempt for run in known.observations), *(request.attempt for request in known.in_flight)])


def last_attempt(rules: Rules) -> int:
    """Return the number of the last attempt that a range may make."""
    return min(rules.num_earlier_attempts + MAX_ATTEMPTS, LAST_ATTEMPT)


def attempt_for(rules: Rules, known: Known, change: int) -> int:
    """Return the number of the newest attempt that is about `change`, else the next free number."""
    about = [run.attempt for run in known.observations if run.attempt > 0 and run.proof_of == change]
    about += [request.attempt for request in known.in_flight if request.attempt > 0 and request.proof_of == change]
    return max(about, default=newest_attempt(rules, known) + 1)


def check_claims(rules: Rules, known: Known, ends: Ends, claims: Sequence[Claim], change: int) -> Tested | None:
    """Return what fresh runs say about claims, with a new attempt where power was missing; None when none is left.

    Args:
        known: the runs of one range only; its attempts are counted.
        change: what the attempt is about.
    """
    attempt = attempt_for(rules, known, change)
    if attempt > last_attempt(rules):
        return None
    points = [point for claim in claims for point in (claim.healthy, claim.sick)]
    runs = proof_runs(rules, known, points, attempt)
    results = tuple(examine_claim(claim, runs, ends, rules.ends.metric, attempt=attempt) for claim in claims)
    if any(lacks_power(result, ends) for result in results) and newest_attempt(rules, known) < last_attempt(rules):
        attempt = newest_attempt(rules, known) + 1
        runs = proof_runs(rules, known, points, attempt)
        results = tuple(examine_claim(claim, runs, ends, rules.ends.metric, attempt=attempt) for claim in claims)
    if any(result.status is ClaimStatus.FAILED for result in results):
        return Tested(results, (), attempt)
    return Tested(results, proof_requests(results, rules, known, attempt, change), attempt)


def lacks_power(result: ClaimResult, ends: Ends) -> bool:
    """Return whether a claim failed although its jump had the right size: too few runs for this much noise."""
    if result.status is not ClaimStatus.FAILED or result.jump is None or ends.are_seeds_inert:
        return False
    return abs(result.jump - ends.gap) < abs(ends.gap) / 2.0


def proof_runs(
    rules: Rules, known: Known, points: Sequence[Point], attempt: int, *, evidence: Mapping[int, Evidence] | None = None
) -> ProofRuns:
    """Return the fresh runs of an attempt: of each point the first seeds without a hole, so that looks come in one order."""
    every = {rules.good_point, rules.bad_point, *points}
    fresh: dict[Point, dict[int, Observation]] = {}
    for run in known.observations:
        if run.attempt == attempt and run.point in every:
            fresh.setdefault(run.point, {})[run.seed_idx] = run
    first = SEEDS_PER_ATTEMPT * attempt
    in_order = {
        point: [runs[seed_idx] for seed_idx in takewhile(runs.__contains__, count(first))] for point, runs in fresh.items()
    }
    unbuildable = _unbuildable_points(rules, known, points, evidence or {})
    return ProofRuns(in_order, (rules.good_point, rules.bad_point), unbuildable, rules.ends.max_seeds)


def _unbuildable_points(
    rules: Rules, known: Known, points: Sequence[Point], evidence: Mapping[int, Evidence]
) -> dict[Point, str]:
    """Return which points of a proof cannot be run: not buildable, skipped, marked or found untestable."""
    unbuildable = dict(known.unbuildable)
    for point in points:
        if not point.is_prefix or point in (rules.good_point, rules.bad_point):
            continue
        if point.prefix in rules.skipped:
            unbuildable.setdefault(point, "it was skipped")
        if known.marks.get(point.prefix) is VerdictKind.UNTESTABLE:
            unbuildable.setdefault(point, MARKED_UNTESTABLE)
        item = evidence.get(point.prefix)
        if item is not None and item.verdict is VerdictKind.UNTESTABLE:
            unbuildable.setdefault(point, item.reason)
    return unbuildable


def proof_requests(claims: Sequence[ClaimResult], rules: Rules, known: Known, attempt: int, change: int) -> tuple[Request, ...]:
    """Return the runs that the open claims need, seed by seed so that healthy and sick interleave."""
    needs: dict[Point, int] = {}
    for result in claims:
        if result.status is ClaimStatus.OPEN:
            for point in (result.claim.healthy, result.claim.sick):
                needs[point] = max(needs.get(point, 0), result.num_seeds)
            for point in (rules.good_point, rules.bad_point):
                needs[point] = max(needs.get(point, 0), result.num_seeds if result.how == "metric" else 1)
    return fresh_requests(needs, known, attempt, change)


def fresh_requests(needs: Mapping[Point, int], known: Known, attempt: int, change: int) -> tuple[Request, ...]:
    """Return the runs that an attempt lacks, given how many seeds each point needs."""
    done = {(run.point, run.seed_idx) for run in known.observations if run.attempt == attempt}
    first = SEEDS_PER_ATTEMPT * attempt
    return tuple(
        Request(point, first + idx, 0, attempt, change)
        for idx in range(max(needs.values(), default=0))
        for point, num in needs.items()
        if idx < num and (point, first + idx) not in done
    )
