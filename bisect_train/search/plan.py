"""The plan of a whole bisection: from everything observed so far to what should run next, or to the answer.

`make_plan` is a pure function of the rules and the observations. The coordinator calls it after every event; resume, replay
and reports call it on stored observations. The phases:

    ENDS     prove that the good end and the bad end differ                         verdict.ends
    BASE     neither end is an ancestor of the other: is the merge base good?       fixed before, otherwise
    SEARCH   narrow the ordered list of changes                                     search.belief, search.propose
    PROOF    fresh runs for or against the change that the search named             verdict.proof
    PARTNER  the change alone does not break the good end: which earlier changes must come with it?   search.partner
    REST     more than one: changes that are coupled or each enough     search.coupling, search.complement
             parts of the range, and bad stretches before the culprit   search.parts, search.islands
    DONE     an answer
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.search.ahead import with_runs_ahead
from bisect_train.search.attempts import STUCK_PROBABILITY, attempt_for
from bisect_train.search.bitcode import doubts_of_halves, with_bitcode
from bisect_train.search.complement import find_enough, has_stopped, is_time_to_stop, plan_complement, stop_at
from bisect_train.search.corners import doubts_of_corners, with_corners
from bisect_train.search.coupling import plan_coupling
from bisect_train.search.inert import search_without_inert
from bisect_train.search.islands import plan_islands
from bisect_train.search.line import NUM_RUNS_WITHOUT_NOISE, Line, max_search_runs
from bisect_train.search.outside import check_candidates, doubts_of_sets, judged_sets
from bisect_train.search.parts import plan_parts
from bisect_train.search.proving import prove_change, refuted_changes, tried_changes, with_fresh_ends
from bisect_train.search.terms import PROVED, Answer, Known, Phase, Plan, Request, Rules, answer_candidates
from bisect_train.search.whole import confirm_in_whole
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.evidence import failures_and_passes, judge_variant
from bisect_train.verdict.outcome import Observation

BASE_BAD_NATS = math.log(100.0) - 1e-9  # the answer "fixed before" rests on these runs alone, so one symptom at least


def make_plan(rules: Rules, known: Known) -> Plan:
    """Return what should run next, or the answer.

    Args:
        rules: what was asked.
        known: everything observed so far; the same observations in any order of finishing give an equivalent plan.
    """
    known = replace(known, observations=_in_order(known.observations))
    plan = with_runs_ahead(rules, known, _plan_whole(rules, known))
    # a run that is still going for the search may be what a proof wants too
    return replace(plan, wanted=tuple(dict.fromkeys(plan.wanted)))


def _plan_whole(rules: Rules, known: Known) -> Plan:
    own = replace(
        known,
        observations=[run for run in known.observations if run.part == 0],
        in_flight=[request for request in known.in_flight if request.part == 0],
    )
    if rules.ends_only:
        return _plan_ends(rules, own)
    plan = _look_outside(rules, known, with_corners(rules, own, _plan_range(rules, own)))
    if plan.answer is not None and plan.answer.status not in PROVED and has_stopped(rules, plan):
        plan = _look_outside(rules, known, with_corners(rules, own, _plan_range(rules, own, may_stop=False)))
    if plan.answer is None:
        return plan
    plan = confirm_in_whole(rules, known, plan_parts(rules, known, plan, make=partial(_plan_range, may_stop=False)))
    return plan_islands(rules, known, plan)


def _look_outside(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan, or where its answer proves nothing: are changes coupled, is another one enough?"""
    return plan_complement(rules, known, plan_coupling(rules, known, plan), make=_plan_range)


def _plan_range(rules: Rules, known: Known, *, may_stop: bool = True) -> Plan:
    """Return the plan of one range as a whole, from its own runs.

    Args:
        may_stop: the search may end early where a change is not the only one that is enough (`search.complement`).
    """
    plan = _plan_ends(rules, known)
    ends = plan.ends
    if ends.status is not EndsStatus.SEPARATED:
        return plan
    if not rules.good_is_base and (of_base := _judge_base(rules, known, ends)):
        return of_base
    return _search_and_prove(rules, known, ends, may_stop=may_stop)


def _plan_ends(rules: Rules, known: Known) -> Plan:
    """Return the plan of the ends alone: what they still need, or what they have shown."""
    ends = _prove_ends(rules, known)
    if ends.status is EndsStatus.OPEN:
        points = {False: rules.good_point, True: rules.bad_point}
        wanted = [Request(points[run.is_bad], run.seed_idx + rules.first_seed, run.repeat) for run in ends.wanted]
        return Plan(Phase.ENDS, tuple(wanted), ends)
    return Plan(Phase.DONE, (), ends, answer=_answer_of_ends(ends))


def _in_order(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations in one order, whichever finished first; a request that was run twice counts once."""

    def key(run: Observation) -> tuple[Point, int, int, int, int, str, str]:
        return run.point, run.part, run.attempt, run.seed_idx, run.repeat, run.outcome.kind.value, repr(run.outcome)

    by_request = {
        (run.point, run.part, run.attempt, run.seed_idx, run.repeat): run for run in sorted(observations, key=key, reverse=True)
    }
    return sorted(by_request.values(), key=key)


def _prove_ends(rules: Rules, known: Known) -> Ends:
    for point, status in ((rules.good_point, EndsStatus.GOOD_UNTESTABLE), (rules.bad_point, EndsStatus.BAD_UNTESTABLE)):
        if point in known.unbuildable:
            return Ends(status, reason=known.unbuildable[point])
    runs = [[run for run in known.at(point) if run.attempt == 0] for point in (rules.good_point, rules.bad_point)]
    if rules.first_seed:  # the proof of the ends counts from 0
        runs = [[replace(run, seed_idx=run.seed_idx - rules.first_seed) for run in side] for side in runs]
    return prove_ends(runs[0], runs[1], rules.ends)


def _answer_of_ends(ends: Ends) -> Answer:
    if ends.status is EndsStatus.NO_METRIC:
        return Answer("failed", ends.reason, is_input_error=True)
    if ends.status in (EndsStatus.GOOD_UNTESTABLE, EndsStatus.BAD_UNTESTABLE):
        return Answer("failed", ends.reason, end="good" if ends.status is EndsStatus.GOOD_UNTESTABLE else "bad")
    if ends.status in (EndsStatus.SAME, EndsStatus.BETTER):
        return Answer("no_regression", ends.reason)
    if ends.status is EndsStatus.SEPARATED:
        return Answer("candidates", "only the ends were compared")
    return Answer("not_reproduced", ends.reason)


def _judge_base(rules: Rules, known: Known, ends: Ends) -> Plan | None:
    """Return a plan while the merge base is open or bad; None when it is good."""
    base = Point(0)
    if base in known.unbuildable:
        return Plan(Phase.DONE, (), ends, answer=Answer("failed", f"merge base: {known.unbuildable[base]}", end="good"))
    runs = [run for run in known.at(base) if run.attempt == 0]
    if not runs:
        return Plan(Phase.BASE, (Request(base, 0),), ends)
    evidence = judge_variant(runs, ends, rules.ends.metric)
    if evidence.verdict is VerdictKind.GOOD:
        return None
    if evidence.nats >= BASE_BAD_NATS:
        reason = "the merge base of the two ends is bad already: the good end holds a fix that the bad end lacks"
        return Plan(Phase.DONE, (), ends, answer=Answer("fixed_before", reason))
    max_runs = NUM_RUNS_WITHOUT_NOISE if ends.are_seeds_inert or ends.criterion is Criterion.EXACT else rules.max_runs
    if evidence.verdict is VerdictKind.UNTESTABLE or len(runs) >= max_runs:
        reason = f"the merge base of the two ends could not be judged: {evidence.reason}"
        return Plan(Phase.DONE, (), ends, answer=Answer("failed", reason, end="good"))
    return Plan(Phase.BASE, (Request(base, len(runs)),), ends)


def _search_and_prove(rules: Rules, known: Known, ends: Ends, *, may_stop: bool) -> Plan:
    prior = rules.prior_nats
    if from_halves := doubts_of_halves(rules, known, ends):
        prior = {idx: prior.get(idx, 0.0) + from_halves.get(idx, 0.0) for idx in {*prior, *from_halves}}
    plan = with_bitcode(rules, known, _search_once(replace(rules, prior_nats=prior), known, ends, may_stop=may_stop))
    if prior and plan.answer is not None and plan.answer.status not in PROVED:
        # a prior says where to look first, not where to end: what it names and cannot prove is searched without it
        plan = _search_once(replace(rules, prior_nats={}), known, ends, may_stop=may_stop)
    return check_candidates(rules, known, plan)


def _search_once(rules: Rules, known: Known, ends: Ends, *, may_stop: bool) -> Plan:
    ends = replace(with_fresh_ends(ends, rules, known), is_flaky=ends.is_flaky or _comes_and_goes(known, ends))
    from_sets = (doubts_of_sets(judged_sets(rules, known, ends)), doubts_of_corners(rules, known, ends))
    said = (rules.prior_nats, refuted_changes(rules, known, ends), *from_sets)
    doubts = {idx: sum(nats.get(idx, 0.0) for nats in said) for idx in set().union(*said)}
    line = Line(rules.num_changes, Point, rules.skipped, doubts, known.marks, known.costs)
    belief = search_without_inert(line, rules, known, ends)
    plan = Plan(Phase.SEARCH, belief.wanted, ends, belief.posterior, belief.evidence, tried=tried_changes(known))
    plan = replace(plan, inert=belief.inert)
    enough = find_enough(rules, known, ends) if may_stop else None
    if enough is not None and is_time_to_stop(rules, enough, num_judged=belief.num_judged):
        return stop_at(rules, plan, enough)
    best = belief.best
    is_named = belief.posterior[best] >= rules.confidence
    is_stuck = not belief.wanted and belief.posterior[best] >= STUCK_PROBABILITY
    # a proof that has begun goes on while its change is likely: single runs of it would stop and start it again
    has_begun = best in plan.tried and belief.posterior[best] >= STUCK_PROBABILITY
    num_idle = known.slots - len(belief.wanted)
    # workers that the search leaves idle begin the proof: its runs are needed, and tell the search as much as any others
    is_ahead = num_idle > 0 and belief.posterior[best] >= STUCK_PROBABILITY
    if is_named or is_stuck or has_begun or is_ahead:
        proof = prove_change(rules, known, plan, best, attempt=attempt_for(rules, known, best))
        if is_named or is_stuck:
            return proof
        if has_begun and proof.wanted:
            running = tuple(request for request in belief.wanted if request in known.in_flight)
            return replace(proof, wanted=(*proof.wanted, *running))
        if is_ahead:
            return replace(plan, wanted=(*belief.wanted, *proof.wanted[:num_idle]))
    if belief.wanted:
        return plan
    return replace(plan, phase=Phase.DONE, answer=_answer_unnarrowed(plan, num_judged=belief.num_judged))


def _comes_and_goes(known: Known, ends: Ends) -> bool:
    """Return whether a failure that decides came in some runs of a variant and not in others: rates are compared then."""
    if ends.criterion not in (Criterion.SYMPTOM, Criterion.JUDGE):
        return False
    runs_of: dict[Point, list[Observation]] = {}
    for run in known.observations:
        runs_of.setdefault(run.point, []).append(run)
    return any(all(failures_and_passes(runs, ends)) for runs in runs_of.values())


def _answer_unnarrowed(plan: Plan, *, num_judged: int) -> Answer:
    if num_judged < max_search_runs(plan.ends):
        return answer_candidates(plan, "no further probe can narrow it")
    reason = f"{num_judged} runs did not narrow it to one change: a slow drift, or several small changes"
    return answer_candidates(plan, reason, status="drift")
