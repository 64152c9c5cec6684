"""The plan of a whole bisection: from everything observed so far to what should run next, or to the answer.

`make_plan` is a pure function of the rules and the observations. The coordinator calls it after every event; resume, replay
and reports call it on stored observations. The phases:

    ENDS     prove that the good end and the bad end differ                         verdict.ends
    BASE     neither end is an ancestor of the other: is the merge base good?       fixed before, otherwise
    SEARCH   narrow the ordered list of changes                                     search.belief, search.propose
    PROOF    fresh runs for or against the change that the search named             verdict.proof
    PARTNER  the change alone does not break the good end: which earlier change must come with it?
    DONE     an answer
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.search.line import MAX_SEARCH_RUNS, NUM_RUNS_WITHOUT_NOISE, Line, search_line
from bisect_train.search.proving import attempt_for, prove_change, refuted_changes, tried_changes, with_fresh_bits
from bisect_train.search.terms import Answer, Known, Phase, Plan, Request, Rules, answer_candidates
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation

UNLIKELY_PRIOR = 0.001  # of a change outside the paths that were asked about, relative to one inside
STUCK_PROBABILITY = 0.8  # a search that can go no further still puts a change of this probability to the proof
BASE_BAD_NATS = math.log(100.0) - 1e-9  # the answer "fixed before" rests on these runs alone, so one symptom at least


def make_plan(rules: Rules, known: Known) -> Plan:
    """Return what should run next, or the answer.

    Args:
        rules: what was asked.
        known: everything observed so far; the same observations in any order of finishing give an equivalent plan.
    """
    known = replace(known, observations=_in_order(known.observations))
    ends = _prove_ends(rules, known)
    if ends.status is EndsStatus.OPEN:
        wanted = [Request(rules.bad_point if run.is_bad else rules.good_point, run.seed_idx, run.repeat) for run in ends.wanted]
        return Plan(Phase.ENDS, tuple(wanted), ends)
    if ends.status is not EndsStatus.SEPARATED:
        return Plan(Phase.DONE, (), ends, answer=_answer_of_ends(ends))
    if not rules.good_is_base and (plan := _judge_base(rules, known, ends)):
        return plan
    return _search_and_prove(rules, known, ends)


def _in_order(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations in one order, whichever finished first; a request that was run twice counts once."""

    def key(run: Observation) -> tuple[Point, int, int, int, str, str]:
        return run.point, run.attempt, run.seed_idx, run.repeat, run.outcome.kind.value, repr(run.outcome)

    by_request = {
        (run.point, run.attempt, run.seed_idx, run.repeat): run for run in sorted(observations, key=key, reverse=True)
    }
    return sorted(by_request.values(), key=key)


def _prove_ends(rules: Rules, known: Known) -> Ends:
    for point, status in ((rules.good_point, EndsStatus.GOOD_UNTESTABLE), (rules.bad_point, EndsStatus.BAD_UNTESTABLE)):
        if point in known.unbuildable:
            return Ends(status, reason=known.unbuildable[point])
    runs = [[run for run in known.at(point) if run.attempt == 0] for point in (rules.good_point, rules.bad_point)]
    return prove_ends(runs[0], runs[1], rules.ends)


def _answer_of_ends(ends: Ends) -> Answer:
    if ends.status is EndsStatus.NO_METRIC:
        return Answer("failed", ends.reason, is_input_error=True)
    if ends.status in (EndsStatus.GOOD_UNTESTABLE, EndsStatus.BAD_UNTESTABLE):
        return Answer("failed", ends.reason, end="good" if ends.status is EndsStatus.GOOD_UNTESTABLE else "bad")
    if ends.status in (EndsStatus.SAME, EndsStatus.BETTER):
        return Answer("no_regression", ends.reason)
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


def _search_and_prove(rules: Rules, known: Known, ends: Ends) -> Plan:
    ends = with_fresh_bits(ends, rules, known)
    doubts = dict.fromkeys(rules.unlikely, math.log(UNLIKELY_PRIOR))
    for change, nats in refuted_changes(rules, known, ends).items():
        doubts[change] = doubts.get(change, 0.0) + nats
    line = Line(rules.num_changes, Point, rules.skipped, doubts)
    belief = search_line(line, rules, known, ends)
    plan = Plan(Phase.SEARCH, belief.wanted, ends, belief.posterior, belief.evidence, tried=tried_changes(known))
    best = belief.best
    is_named = belief.posterior[best] >= rules.confidence
    is_stuck = not belief.wanted and belief.posterior[best] >= STUCK_PROBABILITY
    # a proof that has begun goes on while its change is likely: single runs of it would stop and start it again
    has_begun = best in plan.tried and belief.posterior[best] >= STUCK_PROBABILITY
    if is_named or is_stuck or has_begun:
        proof = prove_change(rules, known, plan, best, attempt=attempt_for(best, known))
        if is_named or is_stuck or proof.wanted:
            return proof
    if belief.wanted:
        return plan
    return replace(plan, phase=Phase.DONE, answer=_answer_unnarrowed(plan, num_judged=belief.num_judged))


def _answer_unnarrowed(plan: Plan, *, num_judged: int) -> Answer:
    if num_judged < MAX_SEARCH_RUNS:
        return answer_candidates(plan, "no further probe can narrow it")
    reason = f"{num_judged} runs did not narrow it to one change: a slow drift, or several small changes"
    return answer_candidates(plan, reason, status="drift")
