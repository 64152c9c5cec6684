"""One culprit among many free changes in one round: both halves of every bit of their numbers, all at the same time.

With m free changes numbered j = 0..m - 1, the test (b, x) holds those whose bit b is x. Of each pair of tests exactly one is
sick where there is one culprit, and that spells its number. What the tests say is weighed change by change, as if there were
one culprit: a sick test speaks against the changes that it lacks, a healthy one against those that it holds. Where both halves
of a bit are healthy (changes that need each other) or sick (several that are enough), no change is favoured by it, and the
prefix search goes on with what is left.

Only where one run decides, and where 2 ceil(log2 m) probes may run at a time; k workers search a line in log_{k+1} m rounds.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.search.terms import Known, Phase, Plan, Request, Rules
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.evidence import judge_variant

MIN_CHANGES, MAX_CHANGES = 16, 4096


def halves(rules: Rules) -> tuple[Point, ...]:
    """Return the tests of every bit, on top of all ordered changes: the changes with the bit, then those without it."""
    first, num = rules.first_free, rules.num_changes - rules.first_free
    return tuple(
        make_point(first, plus=tuple(first + idx for idx in range(num) if (idx >> bit & 1) == value))
        for bit in range(math.ceil(math.log2(num)))
        for value in (1, 0)
    )


def _can_use(rules: Rules, known: Known, ends: Ends) -> bool:
    """Return whether one round of halves is possible and worth while: the free changes hold the culprit, one run decides."""
    num = rules.num_changes - rules.first_free
    if not MIN_CHANGES <= num <= MAX_CHANGES or ends.is_flaky or 2 * math.ceil(math.log2(num)) > known.slots:
        return False
    is_sure = ends.are_seeds_inert or ends.criterion in (Criterion.EXACT, Criterion.SYMPTOM, Criterion.JUDGE)
    return is_sure and (rules.first_free == 0 or _verdict_at(rules, known, ends, Point(rules.first_free)) is VerdictKind.GOOD)


def _verdict_at(rules: Rules, known: Known, ends: Ends, point: Point) -> VerdictKind | None:
    runs = [run for run in known.at(point) if run.attempt == 0]
    return judge_variant(runs, ends, rules.ends.metric).verdict if runs else None


def with_bitcode(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with the round of halves in place of the search's first runs, where that is of use.

    Args:
        known: the runs of one range.
        plan: of its search.
    """
    if plan.phase is not Phase.SEARCH or plan.answer is not None or not _can_use(rules, known, plan.ends):
        return plan
    tests = halves(rules)
    run = {item.point for item in known.observations if item.attempt == 0}
    has_begun = any(point in run or Request(point, 0) in known.in_flight for point in tests)
    has_searched = any(rules.first_free < version < rules.num_changes for version in plan.evidence)
    if has_searched and not has_begun:
        return plan
    missing = tuple(Request(point, 0) for point in tests if point not in run and point not in known.unbuildable)
    return replace(plan, wanted=missing) if missing else plan


def doubts_of_halves(rules: Rules, known: Known, ends: Ends) -> dict[int, float]:
    """Return what the tests say against each free change, if there is one culprit. Nats (<= 0) by index."""
    if not MIN_CHANGES <= rules.num_changes - rules.first_free <= MAX_CHANGES:
        return {}
    run = {item.point for item in known.observations if item.attempt == 0}
    if not any(point.plus for point in run):
        return {}
    tests = halves(rules)
    if not all(point in run or point in known.unbuildable for point in tests):
        return {}
    doubts = dict.fromkeys(range(rules.first_free, rules.num_changes), 0.0)
    for point in tests:
        runs = [item for item in known.at(point) if item.attempt == 0]
        nats = judge_variant(runs, ends, rules.ends.metric).nats if runs else 0.0
        for idx in doubts:
            if point.holds(idx) == (nats < 0):
                doubts[idx] -= abs(nats)
    return doubts
