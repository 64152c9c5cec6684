"""A culprit that was proved in a part of the range must also matter in the whole of it.

A part has ends of its own, so its proof says nothing about the ends that were asked about: a later change may have replaced
what the culprit did, and two states beside each other may differ by an oddity of one of them. One more comparison is made, by
runs of the same attempt and at its level, with the spread of the part and more than half of its gap:

    the part does not reach the bad end     the bad end without the culprit is better than the bad end
    it does                                 the good end with the culprit is worse than the good end

If it fails, the change is told and not named. If it cannot be built, the part's own proof must rest on three different
comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile

from bisect_train.core.changes import Point, make_point
from bisect_train.search.attempts import SEEDS_PER_ATTEMPT
from bisect_train.search.parts import answer_of_all
from bisect_train.search.terms import Culprit, Known, Part, Phase, Plan, Remark, RemarkKind, Request, Rules
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus, ProofRuns, examine_claim


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a culprit was proved: the ends of the part, and its attempt."""

    first: int
    last: int
    ends: Ends
    number: int
    attempt: int


def confirm_in_whole(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with the culprits of parts that matter in the whole range, or the runs that tell.

    Args:
        rules, known: of the whole bisection.
        plan: of the whole range and its parts, with its answer.
    """
    answer = plan.answer
    if answer is None or not any(culprit.part for culprit in answer.culprits):
        return plan
    kept: list[Culprit] = []
    remarks: list[Remark] = list(answer.remarks)
    wanted: list[Request] = []
    for culprit in answer.culprits:
        if not culprit.part:
            kept.append(culprit)
            continue
        place = _place_of(plan, known, culprit)
        claim = _claim_in_whole(rules, place, culprit)
        result = examine_claim(
            claim, _runs_at(rules, known, place, claim), place.ends, rules.ends.metric, attempt=place.attempt
        )
        if result.status is ClaimStatus.OPEN:
            wanted += _requests(known, place, culprit, result)
        elif result.status is ClaimStatus.HELD or _stands_alone(result, culprit):
            kept.append(_with_claim(culprit, result))
        else:
            remarks.append(_remark_on(culprit, result))
    if wanted:
        return replace(plan, phase=Phase.REST, wanted=tuple(wanted), answer=None)
    assert plan.own is not None
    return replace(plan, answer=answer_of_all(plan.own, kept, remarks))


def _place_of(plan: Plan, known: Known, culprit: Culprit) -> _Place:
    first, part = next(pair for pair in _all_parts(plan, 0) if pair[1].number == culprit.part)
    attempts = [run.attempt for run in known.observations if run.part == culprit.part and run.proof_of in culprit.changes]
    return _Place(first, first + part.last - part.first, part.plan.ends, part.number, max(attempts))


def _all_parts(plan: Plan, offset: int) -> Iterator[tuple[int, Part]]:
    """Yield all parts and their parts, with where they begin in the whole range."""
    for part in plan.parts:
        yield offset + part.first, part
        yield from _all_parts(part.plan, offset + part.first)


def _claim_in_whole(rules: Rules, place: _Place, culprit: Culprit) -> Claim:
    if place.last < rules.num_changes:
        return Claim(ClaimKind.HEALS, make_point(rules.num_changes, minus=culprit.changes), rules.bad_point)
    return Claim(ClaimKind.BREAKS, Point(0), make_point(0, plus=culprit.changes))


def _runs_at(rules: Rules, known: Known, place: _Place, claim: Claim) -> ProofRuns:
    ends = (make_point(place.first), make_point(place.last))
    of_point = {}
    for point in {claim.healthy, claim.sick, *ends}:
        runs = {
            run.seed_idx: run
            for run in known.observations
            if run.point == point and run.part == place.number and run.attempt == place.attempt
        }
        of_point[point] = [runs[idx] for idx in takewhile(runs.__contains__, count(SEEDS_PER_ATTEMPT * place.attempt))]
    return ProofRuns(of_point, ends, known.unbuildable, rules.ends.max_seeds)


def _requests(known: Known, place: _Place, culprit: Culprit, result: ClaimResult) -> Iterator[Request]:
    """Yield the runs that are missing, seed by seed so that healthy and sick interleave."""
    done = {
        (run.point, run.seed_idx) for run in known.observations if run.part == place.number and run.attempt == place.attempt
    }
    start = SEEDS_PER_ATTEMPT * place.attempt
    for seed_idx in range(start, start + result.num_seeds):
        for point in (result.claim.healthy, result.claim.sick):
            if (point, seed_idx) not in done:
                yield Request(point, seed_idx, 0, place.attempt, culprit.changes[-1], place.number)


def _stands_alone(result: ClaimResult, culprit: Culprit) -> bool:
    """Return whether a culprit whose claim in the whole cannot be built is proved by three different comparisons."""
    held = [item.claim for item in culprit.claims if item.status is ClaimStatus.HELD]
    return result.status is ClaimStatus.UNBUILDABLE and len({(claim.healthy, claim.sick) for claim in held}) >= len(ClaimKind)


def _with_claim(culprit: Culprit, result: ClaimResult) -> Culprit:
    is_held = result.status is ClaimStatus.HELD
    if result.claim.kind is ClaimKind.HEALS:
        return replace(culprit, claims=(*culprit.claims, result), is_necessary=is_held or None)
    return replace(culprit, claims=(*culprit.claims, result), is_sufficient=is_held or None)


def _remark_on(culprit: Culprit, result: ClaimResult) -> Remark:
    change = culprit.changes[-1]
    jump = culprit.claims[0].jump
    if result.claim.kind is ClaimKind.HEALS and result.status is ClaimStatus.FAILED:
        return Remark(RemarkKind.UNDONE, change, change + 1, jump, reason=result.reason)
    return Remark(RemarkKind.NOT_PROVED, change, change + 1, jump, reason=result.reason)
