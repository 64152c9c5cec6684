"""The proof of the change that the search named, and the search for its partner where it does not act alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.line import Line, search_line
from bisect_train.search.terms import Answer, Culprit, Known, Phase, Plan, Request, Rules, answer_candidates
from bisect_train.verdict.ends import Ends
from bisect_train.verdict.evidence import MAX_NATS
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus, ProofRuns, examine_claim

MAX_ATTEMPTS = 3
SEEDS_PER_ATTEMPT = 100  # attempt n uses seed indices 100 n, 100 n + 1, ...
NUM_SPREAD = 4  # variants on each side that must agree when a claim cannot be built


def attempt_for(change: int, known: Known) -> int:
    """Return the number of the attempt that is about `change`: the newest one if it is, else the next free number."""
    newest = max((run.attempt for run in known.observations), default=0)
    newest = max([newest, *(request.attempt for request in known.in_flight)])
    about = {run.proof_of for run in known.observations if run.attempt == newest}
    about |= {request.proof_of for request in known.in_flight if request.attempt == newest}
    return newest if newest > 0 and about == {change} else newest + 1


def refuted_changes(rules: Rules, known: Known, ends: Ends) -> dict[int, float]:
    """Return what failed proofs say against a change: the bad end stayed bad without it. Nats by index."""
    refuted: dict[int, float] = {}
    for attempt, change in {(run.attempt, run.proof_of) for run in known.observations if run.attempt > 0}:
        runs = _proof_runs(rules, known, _proof_points(change, rules), attempt)
        heals = _claims_of(change, rules)[1]
        result = examine_claim(heals, runs, ends, rules.ends.metric, attempt=attempt)
        if result.status is ClaimStatus.FAILED:
            refuted[change] = refuted.get(change, 0.0) - MAX_NATS
    return refuted


def _claims_of(change: int, rules: Rules) -> tuple[Claim, ...]:
    num = rules.num_changes
    return (
        Claim(ClaimKind.PARENT, make_point(change), make_point(change + 1)),
        Claim(ClaimKind.HEALS, make_point(num, minus=(change,)), rules.bad_point),
        Claim(ClaimKind.BREAKS, Point(0), make_point(0, plus=(change,))),
    )


def _proof_points(change: int, rules: Rules) -> tuple[Point, ...]:
    points = [rules.good_point, rules.bad_point]
    for claim in _claims_of(change, rules):
        points += [claim.healthy, claim.sick]
    return tuple(dict.fromkeys(points))


def prove_change(rules: Rules, known: Known, plan: Plan, change: int, *, attempt: int) -> Plan:
    """Return what the proof of `change` needs next, or the answer.

    Args:
        plan: of the search so far, with ends and posterior.
        attempt: 1 for the first attempt of this bisection.
    """
    if attempt > MAX_ATTEMPTS:
        reason = f"{MAX_ATTEMPTS} attempts to prove an answer failed"
        return replace(plan, phase=Phase.DONE, wanted=(), answer=answer_candidates(plan, reason))
    runs = _proof_runs(rules, known, _proof_points(change, rules), attempt)
    claims = tuple(
        examine_claim(claim, runs, plan.ends, rules.ends.metric, attempt=attempt) for claim in _claims_of(change, rules)
    )
    plan = replace(plan, phase=Phase.PROOF, claims=claims, candidate=change, wanted=())
    parent, heals, breaks = claims
    if parent.status is ClaimStatus.FAILED:
        if attempt >= MAX_ATTEMPTS:
            return replace(plan, phase=Phase.DONE, answer=answer_candidates(plan, "its proof failed: " + parent.reason))
        return prove_change(rules, known, plan, change, attempt=attempt + 1)
    wanted = _proof_requests(claims, runs, rules, attempt, change)
    if wanted:
        return replace(plan, wanted=wanted)
    if ClaimStatus.UNBUILDABLE in (heals.status, breaks.status) and (spread := _spread_requests(rules, known, change)):
        return replace(plan, wanted=spread)
    if breaks.status is ClaimStatus.FAILED and heals.status is ClaimStatus.HELD and change > 0:
        return _find_partner(rules, known, plan, change, attempt=attempt)
    return replace(plan, phase=Phase.DONE, answer=_answer_of_proof(rules, plan, change))


def _proof_runs(rules: Rules, known: Known, points: Sequence[Point], attempt: int) -> ProofRuns:
    fresh: dict[Point, list[Observation]] = {}
    for run in known.observations:
        if run.attempt == attempt and run.point in points:
            fresh.setdefault(run.point, []).append(run)
    for runs in fresh.values():
        runs.sort(key=lambda run: (run.seed_idx, run.repeat))
    return ProofRuns(fresh, (rules.good_point, rules.bad_point), known.unbuildable)


def _proof_requests(
    claims: Sequence[ClaimResult], runs: ProofRuns, rules: Rules, attempt: int, change: int
) -> tuple[Request, ...]:
    """Return the runs that the open claims need, seed by seed so that healthy and sick interleave."""
    needs: dict[Point, int] = {}
    for result in claims:
        if result.status is ClaimStatus.OPEN:
            for point in (result.claim.healthy, result.claim.sick):
                needs[point] = max(needs.get(point, 0), result.num_seeds)
            for point in (rules.good_point, rules.bad_point):
                needs[point] = max(needs.get(point, 0), 1)
    done = {(run.point, run.seed_idx) for of in runs.of_point.values() for run in of}
    first = SEEDS_PER_ATTEMPT * attempt
    return tuple(
        Request(point, first + idx, 0, attempt, change)
        for idx in range(max(needs.values(), default=0))
        for point, num in needs.items()
        if idx < num and (point, first + idx) not in done
    )


def _side_versions(rules: Rules, known: Known, change: int) -> tuple[list[int], list[int]]:
    """Return up to four spread versions on the healthy side (0..change) and on the sick side (change + 1..N)."""

    def pick(low: int, high: int) -> list[int]:
        usable = [
            version
            for version in range(low, high + 1)
            if version not in rules.skipped and Point(version) not in known.unbuildable
        ]
        if len(usable) <= NUM_SPREAD:
            return usable
        step = (len(usable) - 1) / (NUM_SPREAD - 1)
        return [usable[round(idx * step)] for idx in range(NUM_SPREAD)]

    return pick(0, change), pick(change + 1, rules.num_changes)


def _spread_requests(rules: Rules, known: Known, change: int) -> tuple[Request, ...]:
    """Return runs of versions that must agree in place of a claim that cannot be built, where they have no run yet."""
    healthy, sick = _side_versions(rules, known, change)
    return tuple(
        Request(Point(version), 0)
        for version in [*healthy, *sick]
        if not any(run.attempt == 0 for run in known.at(Point(version)))
    )


def _do_sides_agree(rules: Rules, plan: Plan, change: int) -> bool:
    num_healthy = sum(item.verdict is VerdictKind.GOOD for k, item in plan.evidence.items() if k <= change)
    num_sick = sum(item.verdict is VerdictKind.BAD for k, item in plan.evidence.items() if k > change)
    is_healthy_wrong = any(item.verdict is VerdictKind.BAD for k, item in plan.evidence.items() if k <= change)
    is_sick_wrong = any(item.verdict is VerdictKind.GOOD for k, item in plan.evidence.items() if k > change)
    # the ends themselves were proved and count as one each
    enough_healthy = num_healthy + 1 >= min(NUM_SPREAD, change + 1)
    enough_sick = num_sick + 1 >= min(NUM_SPREAD, rules.num_changes - change)
    return enough_healthy and enough_sick and not (is_healthy_wrong or is_sick_wrong)


def _answer_of_proof(rules: Rules, plan: Plan, change: int) -> Answer:
    parent, heals, breaks = plan.claims
    states = {ClaimStatus.HELD: True, ClaimStatus.FAILED: False}
    necessary, sufficient = states.get(heals.status), states.get(breaks.status)
    culprit = Culprit((change,), plan.posterior[change], plan.claims, necessary, sufficient)
    if parent.status is ClaimStatus.UNBUILDABLE:
        return answer_candidates(plan, f"the state before it or with it could not be run afresh: {parent.reason}")
    if necessary is False:
        reason = "without this change the bad end is still bad: at least one other change makes it worse too"
        return replace(answer_candidates(plan, reason), culprits=(culprit,))
    if necessary is None or sufficient is None:
        if _do_sides_agree(rules, plan, change):
            return Answer("isolated", "proved by fresh runs on both sides", culprits=(culprit,))
        reason = "it could not be undone or applied alone, and too few other states agree"
        return replace(answer_candidates(plan, reason), culprits=(culprit,))
    return Answer("isolated", "proved by fresh runs", culprits=(culprit,))


def _find_partner(rules: Rules, known: Known, plan: Plan, change: int, *, attempt: int) -> Plan:
    """The change alone leaves the good end healthy: search the earlier changes for what it needs."""
    line = Line(change, lambda version: make_point(version, plus=(change,)))
    belief = search_line(line, rules, known, plan.ends)
    best = belief.best
    if belief.posterior[best] < rules.confidence and belief.wanted:
        return replace(plan, phase=Phase.PARTNER, wanted=belief.wanted)
    alone = _answer_of_proof(rules, plan, change)
    if belief.posterior[best] < rules.confidence:
        return replace(plan, phase=Phase.DONE, answer=alone)
    pair_claims = (
        Claim(ClaimKind.HEALS, make_point(rules.num_changes, minus=(best,)), rules.bad_point),
        Claim(ClaimKind.BREAKS, Point(0), make_point(0, plus=(best, change))),
    )
    points = [
        rules.good_point,
        rules.bad_point,
        *(point for claim in pair_claims for point in (claim.healthy, claim.sick)),
    ]
    runs = _proof_runs(rules, known, points, attempt)
    results = [examine_claim(claim, runs, plan.ends, rules.ends.metric, attempt=attempt) for claim in pair_claims]
    wanted = _proof_requests(results, runs, rules, attempt, change)
    if wanted:
        return replace(plan, phase=Phase.PARTNER, wanted=wanted)
    if any(result.status is not ClaimStatus.HELD for result in results):
        return replace(plan, phase=Phase.DONE, answer=alone)
    probability = plan.posterior[change] * belief.posterior[best]
    pair = Culprit((best, change), probability, (plan.claims[0], *results), True, True)
    claims = (*plan.claims, *results)
    answer = Answer("isolated", "two changes together, proved by fresh runs", culprits=(pair,))
    return replace(plan, phase=Phase.DONE, claims=claims, answer=answer)
