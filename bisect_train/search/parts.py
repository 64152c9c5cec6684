"""More than one culprit: the parts of a range that are searched by themselves, each with ends and a proof of its own.

After the answer for the whole range, its parts are planned by the same pure function, in coordinates of their own:

    a change is isolated, and fresh runs show that it leaves something    the part before it, the part after it
    nothing is isolated, but the versions in between are one level        the part up to that level, the part beyond

Parts may have parts (MAX_DEPTH). A part that cannot be separated, or in which nothing is isolated, adds no name. The error of
the proofs is spent once: the attempts of a part continue the count, each part with half of what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import Criterion
from bisect_train.search.belief import credible_changes
from bisect_train.search.terms import PROVED, Answer, Culprit, Known, Part, Phase, Plan, Remark, RemarkKind, Request, Rules
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.outcome import Observation, OutcomeKind
from bisect_train.verdict.proof import ClaimResult
from bisect_train.verdict.replicates import worsening
from bisect_train.verdict.rest import Levels, Rest, is_plateau, is_step, rest_of

MAX_DEPTH = 3
MAX_SPLIT_DEPTH = 1  # of a range that looks like a drift: its halves would look like one, too
CANDIDATE_MASS = 0.99
Planner = Callable[[Rules, Known], Plan]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a range: changes first..last - 1, between prefix `first` (healthy) and prefix `last` (sick)."""

    first: int
    last: int

    def holds(self, point: Point) -> bool:
        """Return whether a set of changes lies in this part: all changes before it, none behind it."""
        return (
            self.first <= point.prefix <= self.last
            and all(idx >= self.first for idx in point.minus)
            and all(idx < self.last for idx in point.plus)
        )

    def inside(self, point: Point) -> Point:
        """Return a point of this part in its own coordinates."""
        return _shifted(point, -self.first)

    def outside(self, point: Point) -> Point:
        """Return a point of this part in the coordinates of the whole range."""
        return _shifted(point, self.first)


def _shifted(point: Point, by: int) -> Point:
    return make_point(point.prefix + by, plus=tuple(i + by for i in point.plus), minus=tuple(i + by for i in point.minus))


def plan_parts(rules: Rules, known: Known, plan: Plan, *, make: Planner, part: int = 0, depth: int = 0) -> Plan:
    """Return the plan of a range whose own answer is there, with its parts: what they want, or the answer of all.

    Args:
        rules, known: of this range; `known` has the runs of this range and those of its parts.
        plan: the range's own plan; its phase is DONE.
        make: plans one range without parts.
        part: number of this range; its parts are 2 part + 1 and 2 part + 2.
        depth: of this range, 0 for the whole.
    """
    assert plan.answer is not None
    if depth >= MAX_DEPTH or plan.ends.criterion is not Criterion.STATISTICAL:
        return plan
    windows, remarks = _windows_of(rules, _own_runs(known, part), plan, may_split=depth < MAX_SPLIT_DEPTH)
    plan = replace(plan, answer=replace(plan.answer, remarks=(*plan.answer.remarks, *remarks)))
    num_attempts = max([rules.num_earlier_attempts, *(run.attempt for run in known.observations if run.part == part)])
    parts = []
    for number, window in windows:
        name = 2 * part + number
        inner_rules = _rules_inside(rules, window, num_attempts=num_attempts + len(windows) - 1)
        inner = _known_inside(known, window, part=part, name=name)
        found = make(inner_rules, _own_runs(inner, name))
        if found.answer is not None:
            found = plan_parts(inner_rules, inner, found, make=make, part=name, depth=depth + 1)
        parts.append(Part(window.first, window.last, name, found))
    return _joined(replace(plan, parts=tuple(parts)), parts) if parts else plan


def _own_runs(known: Known, part: int) -> Known:
    """Return what a range itself may use: its own runs, and those of the search of the ranges around it."""
    return replace(
        known,
        observations=[run for run in known.observations if run.part == part or (run.attempt == 0 and run.part in _above(part))],
        in_flight=[request for request in known.in_flight if request.part == part],
    )


def _above(part: int) -> Iterator[int]:
    """Return the numbers of the ranges that a part lies in."""
    while part > 0:
        part = (part - 1) // 2
        yield part


def _windows_of(
    rules: Rules, known: Known, plan: Plan, *, may_split: bool
) -> tuple[list[tuple[int, Window]], tuple[Remark, ...]]:
    """Return the parts to look at (1 is the one at the good end, 2 that at the bad end), and what a reader must know."""
    answer = plan.answer
    assert answer is not None
    if answer.status == "isolated" and len(answer.culprits[0].changes) == 1:
        return _windows_around(rules, known, plan, answer.culprits[0].changes[0])
    if answer.status == "candidates" or (answer.status == "drift" and may_split):
        level = _version_between(rules, known, plan)
        if level is not None:
            return [(1, Window(0, level)), (2, Window(level, rules.num_changes))], ()
    return [], ()


def _windows_around(rules: Rules, known: Known, plan: Plan, change: int) -> tuple[list[tuple[int, Window]], tuple[Remark, ...]]:
    levels = _levels_around(rules, known, change)
    if levels is None or plan.ends.gap <= 0:
        return [], ()
    left, right = rest_of(levels)
    before, after = Window(0, change), Window(change + 1, rules.num_changes)
    windows = [(1, before)] if left.is_worse and change > 0 else []
    if right.is_worse and change + 1 < rules.num_changes:
        windows.append((2, after))
    return windows, (*_remarks_on(left, before, plan, is_before=True), *_remarks_on(right, after, plan, is_before=False))


def _remarks_on(rest: Rest, window: Window, plan: Plan, *, is_before: bool) -> Iterator[Remark]:
    if window.first < window.last and (rest.is_worse or rest.is_better):
        better = RemarkKind.IMPROVED_BEFORE if is_before else RemarkKind.MASKED
        kind = RemarkKind.UNEXPLAINED if rest.is_worse else better
        yield Remark(kind, window.first, window.last, rest.size, rest.size / plan.ends.gap)


def _levels_around(rules: Rules, known: Known, change: int) -> Levels | None:
    """Return the values that the proof's fresh runs show; those of the ends' own proof count for the ends too."""
    groups = []
    for point, is_end in (
        (Point(0), rules.good_is_base),
        (make_point(change), change == 0 and rules.good_is_base),
        (make_point(change + 1), change + 1 == rules.num_changes),
        (rules.bad_point, True),
    ):
        runs = [run for run in known.at(point) if run.repeat == 0 and (is_end or run.attempt > 0)]
        groups.append(_values(rules, runs))
    return Levels(*groups) if all(groups) else None


def _values(rules: Rules, runs: list[Observation]) -> list[float]:
    """Return the values of distinct runs: copies (other seeds with the same bits) count once."""
    seen: set[str] = set()
    values = []
    for run in runs:
        outcome = run.outcome
        is_whole = outcome.kind is OutcomeKind.MEASURED and not outcome.is_early
        if is_whole and outcome.value is not None and outcome.digest not in seen:
            seen |= {outcome.digest} - {""}
            values.append(worsening(outcome.value, rules.ends.metric))
    return values


def _version_between(rules: Rules, known: Known, plan: Plan) -> int | None:
    """Return a version that is unlike both ends: beside a change that is a step, or in the middle of a level."""
    if plan.ends.gap <= 0:
        return None
    for change in plan.tried:
        levels = _levels_around(rules, known, change)
        if levels is None or not is_step(levels.before, levels.with_it):
            continue
        left, right = rest_of(levels)
        version = change + 1 if right.is_worse else change if left.is_worse else 0
        if 0 < version < rules.num_changes:
            return version
    return _level_between(rules, known, plan)


def _level_between(rules: Rules, known: Known, plan: Plan) -> int | None:
    """Return a version in the middle of the longest level between the last good and the first bad version."""
    chosen = credible_changes(np.asarray(plan.posterior), mass=CANDIDATE_MASS) if plan.posterior else []
    if len(chosen) < 2:
        return None
    inside: dict[int, list[float]] = {}
    for version in range(chosen[0] + 1, chosen[-1] + 1):
        if values := _values(rules, [run for run in known.at(Point(version)) if run.repeat == 0]):
            inside[version] = values
    ends = [_values(rules, [run for run in known.at(point) if run.repeat == 0]) for point in (Point(0), rules.bad_point)]
    if not all(ends):
        return None
    versions = list(inside)
    spans = sorted(combinations(range(len(versions) + 1), 2), key=lambda span: (span[0] - span[1], span))
    for first, last in spans:  # the longest first
        span = versions[first:last]
        if is_plateau(ends[0], [inside[version] for version in span], ends[1]):
            return span[len(span) // 2]
    return None


def _rules_inside(rules: Rules, window: Window, *, num_attempts: int) -> Rules:
    return replace(
        rules,
        num_changes=window.last - window.first,
        good_is_base=True,
        skipped=frozenset(version - window.first for version in rules.skipped if window.first < version < window.last),
        prior_nats={idx - window.first: nats for idx, nats in rules.prior_nats.items() if window.first <= idx < window.last},
        num_earlier_attempts=num_attempts,
        num_ordered=min(max(rules.first_free, window.first), window.last) - window.first,
    )


def _known_inside(known: Known, window: Window, *, part: int, name: int) -> Known:
    """Return what is known in a part's coordinates: its own runs, and those of the search around it."""

    def is_seen(run: Observation) -> bool:
        is_around = run.attempt == 0 and (run.part == part or run.part in _above(part))
        return window.holds(run.point) and (is_around or run.part == name or name in _above(run.part))

    def move(run: Observation) -> Observation:
        return replace(run, point=window.inside(run.point), proof_of=run.proof_of - window.first if run.proof_of >= 0 else -1)

    return Known(
        observations=[move(run) for run in known.observations if is_seen(run)],
        unbuildable={window.inside(point): why for point, why in known.unbuildable.items() if window.holds(point)},
        in_flight=[
            _request_inside(request, window)
            for request in known.in_flight
            if window.holds(request.point) and (request.part == name or name in _above(request.part))
        ],
        slots=known.slots,
        marks={version - window.first: mark for version, mark in known.marks.items() if window.first < version < window.last},
    )


def _request_inside(request: Request, window: Window) -> Request:
    proof_of = request.proof_of - window.first if request.proof_of >= 0 else -1
    return replace(request, point=window.inside(request.point), proof_of=proof_of)


def _request_outside(request: Request, part: Part) -> Request:
    proof_of = request.proof_of + part.first if request.proof_of >= 0 else -1
    point = Window(part.first, part.last).outside(request.point)
    return replace(request, point=point, proof_of=proof_of, part=request.part or part.number)


def _joined(plan: Plan, parts: list[Part]) -> Plan:
    """Return the plan of a range and its parts: what is still wanted, or one answer."""
    if any(part.plan.answer is None for part in parts):
        wanted = tuple(_request_outside(request, part) for part in parts for request in part.plan.wanted)
        return replace(plan, phase=Phase.REST, wanted=wanted, answer=None, own=plan.answer)
    own = plan.answer
    assert own is not None
    plan = replace(plan, own=own)
    is_whole = own.status == "isolated"
    culprits = list(own.culprits) if is_whole else []
    remarks = list(own.remarks)
    for part in parts:
        answer = part.plan.answer
        assert answer is not None
        remarks += [replace(item, first=item.first + part.first, last=item.last + part.first) for item in answer.remarks]
        if answer.status in PROVED:
            culprits += [_culprit_outside(culprit, part) for culprit in answer.culprits]
        else:
            remarks.append(_remark_on_open(part, answer))
    return replace(plan, wanted=(), answer=answer_of_all(own, culprits, remarks))


def answer_of_all(own: Answer, culprits: Sequence[Culprit], remarks: Sequence[Remark]) -> Answer:
    """Return one answer from a range's own, the culprits that were proved in it or its parts, and what is to be said."""
    ranked = sorted(culprits, key=lambda culprit: -_size_of(culprit))
    if len(ranked) >= 2:
        reason = f"{len(ranked)} changes, each proved by fresh runs"
        return Answer("several", reason, tuple(ranked), remarks=tuple(remarks))
    told = [
        Remark(RemarkKind.PROVED_PART, culprit.changes[-1], culprit.changes[-1] + 1, _size_of(culprit))
        for culprit in ranked
        if own.status not in PROVED
    ]
    return replace(own, remarks=(*remarks, *told))


def _culprit_outside(culprit: Culprit, part: Part) -> Culprit:
    window = Window(part.first, part.last)

    def move(result: ClaimResult) -> ClaimResult:
        claim = result.claim
        moved = replace(claim, healthy=window.outside(claim.healthy), sick=window.outside(claim.sick))
        return replace(result, claim=moved)

    changes = tuple(idx + part.first for idx in culprit.changes)
    claims = tuple(move(result) for result in culprit.claims)
    return replace(culprit, changes=changes, claims=claims, part=culprit.part or part.number)


def _size_of(culprit: Culprit) -> float:
    """Return the jump that the proof's first claim measured."""
    return abs(culprit.claims[0].jump or 0.0) if culprit.claims else 0.0


def _remark_on_open(part: Part, answer: Answer) -> Remark:
    is_separated = part.plan.ends.status is EndsStatus.SEPARATED
    kind = RemarkKind.NOT_NARROWED if is_separated else RemarkKind.NOT_PROVED
    return Remark(kind, part.first, part.last, part.plan.ends.gap, reason=answer.reason)
