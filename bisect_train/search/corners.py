"""Four corners: is it the code, the rest (config, packages, data, launch settings), both together, or either?

Where the changes fall into an ordered block (commits) and a free one (the rest), two of the four corners of

                    good rest      bad rest
    good code       good end       make_point(0, plus=all free changes)
    bad code        Point(num_ordered)    bad end

are the ends, and the other two are run before the search. The first of them is a version of the line, so that the search
makes use of it anyway; the second decides where the first cannot be run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.terms import Corners, CornersOutcome, Known, Phase, Plan, Request, Rules
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.evidence import judge_variant

MIN_CHANGES = 5  # fewer are found in as many runs as the corners take
MAX_CORNER_RUNS = 3  # of one corner, while its runs decide nothing
DECIDED = (VerdictKind.GOOD, VerdictKind.BAD)


def has_corners(rules: Rules) -> bool:
    """Return whether there are two blocks of changes, and enough changes for the corners to be worth their runs."""
    return 0 < rules.first_free < rules.num_changes and rules.num_changes >= MIN_CHANGES


def corner_points(rules: Rules) -> tuple[Point, Point]:
    """Return the corner of all code without the rest, and that of the good code with all the rest."""
    return make_point(rules.first_free), make_point(0, plus=tuple(range(rules.first_free, rules.num_changes)))


def judge_corners(rules: Rules, known: Known, ends: Ends) -> Corners:
    """Return what the two mixed corners show; they are UNCLEAR until both are decided."""
    code, rest = (_evidence_at(rules, known, ends, point) for point in corner_points(rules))
    return Corners(_outcome_of(code, rest), code, rest)


def _evidence_at(rules: Rules, known: Known, ends: Ends, point: Point) -> Evidence | None:
    if point in known.unbuildable:
        return Evidence(VerdictKind.UNTESTABLE, reason=known.unbuildable[point])
    if point.is_prefix and point.prefix in rules.skipped:
        return Evidence(VerdictKind.UNTESTABLE, reason="it was skipped")
    runs = [run for run in known.at(point) if run.attempt == 0]
    return judge_variant(runs, ends, rules.ends.metric) if runs else None


def _outcome_of(code: Evidence | None, rest: Evidence | None) -> CornersOutcome:
    kinds = tuple(None if item is None else item.verdict for item in (code, rest))
    if VerdictKind.UNTESTABLE in kinds:
        return CornersOutcome.UNTESTABLE
    outcomes: Mapping[tuple[VerdictKind | None, ...], CornersOutcome] = {
        (VerdictKind.BAD, VerdictKind.GOOD): CornersOutcome.CODE_ALONE,
        (VerdictKind.GOOD, VerdictKind.BAD): CornersOutcome.REST_ALONE,
        (VerdictKind.GOOD, VerdictKind.GOOD): CornersOutcome.BOTH_NEEDED,
        (VerdictKind.BAD, VerdictKind.BAD): CornersOutcome.EITHER_ENOUGH,
    }
    return outcomes.get(kinds, CornersOutcome.UNCLEAR)


def with_corners(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with what the corners show, and with the runs that they want first.

    Args:
        known: the runs of the whole range itself.
        plan: its own plan.
    """
    if not has_corners(rules) or plan.ends.status is not EndsStatus.SEPARATED or plan.phase is Phase.BASE:
        return plan
    plan = replace(plan, corners=judge_corners(rules, known, plan.ends))
    if plan.answer is not None:
        return plan
    wanted = [request for point in corner_points(rules) for request in _wanted_at(rules, known, plan, point)]
    return replace(plan, wanted=(*wanted, *(request for request in plan.wanted if request not in wanted)))


def _wanted_at(rules: Rules, known: Known, plan: Plan, point: Point) -> list[Request]:
    if point.is_prefix and point.prefix in known.marks:
        return []
    evidence = _evidence_at(rules, known, plan.ends, point)
    seeds = {run.seed_idx for run in known.at(point) if run.attempt == 0}
    is_done = evidence is not None and (evidence.verdict in (*DECIDED, VerdictKind.UNTESTABLE) or len(seeds) >= MAX_CORNER_RUNS)
    return [] if is_done else [Request(point, next(idx for idx in range(len(seeds) + 1) if idx not in seeds))]


def doubts_of_corners(rules: Rules, known: Known, ends: Ends) -> dict[int, float]:
    """Return what the corner of the good code says about each change where the other corner cannot be run. Nats by index."""
    if not has_corners(rules):
        return {}
    corners = judge_corners(rules, known, ends)
    if corners.rest is None or corners.code is None or corners.code.verdict is not VerdictKind.UNTESTABLE:
        return {}
    against = range(rules.first_free) if corners.rest.nats > 0 else range(rules.first_free, rules.num_changes)
    return dict.fromkeys(against, -abs(corners.rest.nats)) if corners.rest.verdict in DECIDED else {}
