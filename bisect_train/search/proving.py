"""The proof of the change that the search named, and the search for its partner where it does not act alone."""

from __future__ import annotations

from dataclasses import replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.search.attempts import (
    MAX_ATTEMPTS,
    MEASURED,
    lacks_power,
    last_attempt,
    newest_attempt,
    proof_requests,
    proof_runs,
)
from bisect_train.search.partner import find_partner
from bisect_train.search.terms import Answer, Culprit, Known, Phase, Plan, Request, Rules, answer_candidates
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.ends import renewed_ends
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus, ProofRuns, examine_claim
from bisect_train.verdict.replicates import worsening

NUM_SPREAD = 4  # variants on each side that must agree when a claim cannot be built


def tried_changes(known: Known) -> tuple[int, ...]:
    """Return the changes that were ever put to the proof."""
    return tuple(sorted({run.proof_of for run in known.observations if run.attempt > 0 and run.proof_of >= 0}))


def refuted_changes(rules: Rules, known: Known, ends: Ends) -> dict[int, float]:
    """Return what failed proofs say against a change: the bad end stayed bad without it. Nats (<= 0) by index.

    Had the change been the only culprit, the bad end without it would be GOOD: the fresh runs of that point weigh as they do
    anywhere else, so a proof that failed for want of power says little.
    """
    refuted: dict[int, float] = {}
    for attempt, change in sorted({(run.attempt, run.proof_of) for run in known.observations if run.attempt > 0}):
        runs = proof_runs(rules, known, _proof_points(change, rules), attempt)
        heals = claims_of(change, rules)[1]
        if examine_claim(heals, runs, ends, rules.ends.metric, attempt=attempt).status is ClaimStatus.FAILED:
            nats = judge_variant(runs.of_point[heals.healthy], ends, rules.ends.metric).nats
            refuted[change] = refuted.get(change, 0.0) - max(0.0, nats)
    return refuted


def with_fresh_ends(ends: Ends, rules: Rules, known: Known) -> Ends:
    """Return the ends with what their fresh runs of proofs show too: bits and values by seed, means and spread."""
    metric = rules.ends.metric
    sides = [[run for run in known.at(point) if run.attempt > 0] for point in (rules.good_point, rules.bad_point)]
    digests = [{run.seed_idx: run.outcome.digest for run in runs if run.outcome.digest} for runs in sides]
    values = [
        {run.seed_idx: worsening(run.outcome.value, metric) for run in runs if run.outcome.value is not None} for runs in sides
    ]
    ends = replace(
        ends,
        good_digests=digests[0] | ends.good_digests,
        bad_digests=digests[1] | ends.bad_digests,
        good_values=values[0] | ends.good_values,
        bad_values=values[1] | ends.bad_values,
    )
    return renewed_ends(ends, metric) if ends.criterion is Criterion.STATISTICAL and all(values) else ends


def claims_of(change: int, rules: Rules) -> tuple[Claim, ...]:
    """Return the three claims about a change."""
    num = rules.num_changes
    return (
        Claim(ClaimKind.PARENT, make_point(change), make_point(change + 1)),
        Claim(ClaimKind.HEALS, make_point(num, minus=(change,)), rules.bad_point),
        Claim(ClaimKind.BREAKS, Point(0), make_point(0, plus=(change,))),
    )


def _proof_points(change: int, rules: Rules) -> tuple[Point, ...]:
    points = [rules.good_point, rules.bad_point]
    for claim in claims_of(change, rules):
        points += [claim.healthy, claim.sick]
    return tuple(dict.fromkeys(points))


def prove_change(rules: Rules, known: Known, plan: Plan, change: int, *, attempt: int) -> Plan:
    """Return what the proof of `change` needs next, or the answer.

    Args:
        plan: of the search so far, with ends and posterior.
        attempt: 1 for the first attempt of this bisection.
    """
    if attempt > last_attempt(rules):
        reason = f"{MAX_ATTEMPTS} attempts to prove an answer failed"
        return replace(plan, phase=Phase.DONE, candidate=change, wanted=(), answer=answer_candidates(plan, reason))
    runs = proof_runs(rules, known, _proof_points(change, rules), attempt, evidence=plan.evidence)
    claims = tuple(
        examine_claim(claim, runs, plan.ends, rules.ends.metric, attempt=attempt) for claim in claims_of(change, rules)
    )
    plan = replace(plan, phase=Phase.PROOF, claims=claims, candidate=change, wanted=())
    parent, heals, breaks = claims
    is_weak = parent.status is not ClaimStatus.FAILED and lacks_power(heals, plan.ends)
    if (is_weak or _is_worth_another(parent, runs, plan.ends)) and newest_attempt(rules, known) < last_attempt(rules):
        return prove_change(rules, known, plan, change, attempt=newest_attempt(rules, known) + 1)
    if parent.status is ClaimStatus.FAILED:
        return replace(plan, phase=Phase.DONE, answer=answer_candidates(plan, "its proof failed: " + parent.reason))
    if parent.status is ClaimStatus.UNBUILDABLE or heals.status is ClaimStatus.FAILED:
        return replace(plan, phase=Phase.DONE, answer=answer_of_proof(rules, plan, change))
    wanted = proof_requests(claims, rules, known, attempt, change)
    if wanted:
        return replace(plan, wanted=wanted)
    if _may_need_more(rules, claims, change) and (found := find_partner(rules, known, plan, change, attempt=attempt)):
        return found
    if ClaimStatus.UNBUILDABLE in (heals.status, breaks.status) and (spread := _spread_requests(rules, known, change)):
        return replace(plan, wanted=spread)
    return replace(plan, phase=Phase.DONE, answer=answer_of_proof(rules, plan, change))


def _may_need_more(rules: Rules, claims: tuple[ClaimResult, ...], change: int) -> bool:
    """Return whether earlier changes may have to come with it: alone it does not break the good end, or cannot run there."""
    _, heals, breaks = claims
    is_short = breaks.status is ClaimStatus.FAILED
    is_short |= breaks.status is ClaimStatus.UNBUILDABLE and change >= rules.first_free
    return is_short and heals.status in (ClaimStatus.HELD, ClaimStatus.UNBUILDABLE) and change > 0


def _is_worth_another(parent: ClaimResult, runs: ProofRuns, ends: Ends) -> bool:
    """Return whether fresh seeds could still prove it: a jump of the right size lacked power, or a run broke by chance."""
    if parent.status is ClaimStatus.FAILED:
        return lacks_power(parent, ends)
    is_built = not {parent.claim.healthy, parent.claim.sick} & runs.unbuildable.keys()
    return parent.status is ClaimStatus.UNBUILDABLE and is_built


def _side_versions(rules: Rules, known: Known, change: int) -> tuple[list[int], list[int]]:
    """Return up to four spread versions on the healthy side (0..change) and on the sick side (change + 1..N)."""

    def pick(low: int, high: int) -> list[int]:
        usable = [
            version
            for version in range(low, high + 1)
            if version not in {*rules.skipped, *known.marks} and Point(version) not in known.unbuildable
        ]
        if len(usable) <= NUM_SPREAD:
            return usable
        step = (len(usable) - 1) / (NUM_SPREAD - 1)
        return [usable[round(idx * step)] for idx in range(NUM_SPREAD)]

    return pick(0, change), pick(change + 1, rules.num_changes)


def _spread_requests(rules: Rules, known: Known, change: int) -> tuple[Request, ...]:
    """Return runs of versions that must agree in place of a claim that cannot be built, where they have no run yet."""
    healthy, sick = _side_versions(rules, known, change)
    tried = {run.point for run in known.observations if run.attempt == 0}
    return tuple(Request(Point(version), 0) for version in [*healthy, *sick] if Point(version) not in tried)


def _do_sides_agree(rules: Rules, plan: Plan, change: int) -> bool:
    # a mark rests on no run: it may speak against an answer, never for it
    was_run = {k: item for k, item in plan.evidence.items() if item.num_runs > 0}
    num_healthy = sum(item.verdict is VerdictKind.GOOD for k, item in was_run.items() if k <= change)
    num_sick = sum(item.verdict is VerdictKind.BAD for k, item in was_run.items() if k > change)
    is_healthy_wrong = any(item.verdict is VerdictKind.BAD for k, item in plan.evidence.items() if k <= change)
    is_sick_wrong = any(item.verdict is VerdictKind.GOOD for k, item in plan.evidence.items() if k > change)
    # the ends themselves were proved and count as one each
    enough_healthy = num_healthy + 1 >= min(NUM_SPREAD, change + 1)
    enough_sick = num_sick + 1 >= min(NUM_SPREAD, rules.num_changes - change)
    return enough_healthy and enough_sick and not (is_healthy_wrong or is_sick_wrong)


def answer_of_proof(rules: Rules, plan: Plan, change: int) -> Answer:
    """Return the answer that the claims of a plan give about a change."""
    parent, heals, breaks = plan.claims
    states = {ClaimStatus.HELD: True, ClaimStatus.FAILED: False}
    necessary, sufficient = states.get(heals.status), states.get(breaks.status)
    culprit = Culprit((change,), plan.posterior[change], plan.claims, necessary, sufficient)
    if necessary is False:
        return replace(answer_candidates(plan, _say_not_healed(heals)), culprits=(culprit,))
    if parent.status is not ClaimStatus.HELD:
        return answer_candidates(plan, f"the state before it or with it could not be run afresh: {parent.reason}")
    is_one_comparison = heals.claim.healthy == parent.claim.healthy  # the last change: undoing it is what the first claim shows
    if not sufficient and ((is_one_comparison and parent.how in MEASURED) or parent.how == "rates"):
        return replace(
            answer_candidates(
                plan, "alone on the good end it was not shown to make it worse, and the rest of its proof is too weak"
            ),
            culprits=(culprit,),
        )
    if necessary and sufficient is not None:
        return Answer("isolated", "proved by fresh runs", culprits=(culprit,))
    if _do_sides_agree(rules, plan, change):
        return Answer("isolated", "proved by fresh runs on both sides", culprits=(culprit,))
    reason = "it could not be undone or applied alone, and too few other states agree"
    return replace(answer_candidates(plan, reason), culprits=(culprit,))


def _say_not_healed(heals: ClaimResult) -> str:
    if heals.how in ("permutation", "paired", "t", "value"):
        return f"that the bad end heals without this change could not be shown: {heals.reason}"
    return "without this change the bad end is still bad: at least one other change makes it worse too"
