"""A range without some of its changes: the same list with these left out of every state, in coordinates of its own.

The parts of a bisection that are such ranges carry the numbers COMPLEMENT, COMPLEMENT - 1, ... by how deep they lie in each
other; each sees its own runs, and those of the searches around it where a state is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bisect_train.core.changes import Point, make_point
from bisect_train.search.terms import Culprit, Known, Remark, Request, Rules

COMPLEMENT = -10


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A range without some of its changes (indices in order): those behind one move up."""

    changes: tuple[int, ...]

    def index_inside(self, idx: int) -> int:
        """Return the index that a change which is kept has without the others."""
        return idx - bisect_left(self.changes, idx)

    def index_outside(self, idx: int) -> int:
        """Return the index in the whole range."""
        for change in self.changes:
            idx += change <= idx
        return idx

    def inside(self, point: Point) -> Point | None:
        """Return a point in the range's own coordinates; None if it holds a change that is left out."""
        if point.prefix < 0:
            return point
        if any(point.holds(change) for change in self.changes):
            return None
        minus = tuple(self.index_inside(idx) for idx in point.minus if idx not in self.changes)
        return make_point(self.index_inside(point.prefix), plus=tuple(map(self.index_inside, point.plus)), minus=minus)

    def outside(self, point: Point) -> Point:
        """Return a point of the range in the coordinates of the whole."""
        if point.prefix < 0:
            return point
        prefix = self.index_outside(point.prefix - 1) + 1 if point.prefix else 0
        minus = (*map(self.index_outside, point.minus), *self.changes)
        return make_point(prefix, plus=tuple(map(self.index_outside, point.plus)), minus=minus)


def own_runs(known: Known, part: int) -> Known:
    """Return what a range itself may use: its own runs, and those of the search of the ranges around it."""
    return replace(
        known,
        observations=[run for run in known.observations if run.part == part or (run.attempt == 0 and run.part in above(part))],
        in_flight=[request for request in known.in_flight if request.part == part],
    )


def numbered(known: Known, number: int) -> Known:
    """Return the runs of one part only."""
    return replace(
        known,
        observations=[run for run in known.observations if run.part == number],
        in_flight=[request for request in known.in_flight if request.part == number],
        inert=frozenset(),  # what the whole program reads says nothing of one without some changes
    )


def above(part: int) -> Iterator[int]:
    """Return the numbers of the ranges that a range is a part of."""
    if part < 0:
        yield 0
        yield from range(COMPLEMENT, part, -1)


def rules_inside(rules: Rules, left: LeftOut, *, num_attempts: int) -> Rules:
    """Return the rules of the range without what is left out; `num_attempts` were made before."""
    skipped = {version - bisect_left(left.changes, version) for version in rules.skipped if version - 1 not in left.changes}
    return replace(
        rules,
        num_changes=rules.num_changes - len(left.changes),
        num_ordered=left.index_inside(rules.first_free),
        skipped=frozenset(version for version in skipped if 0 < version < rules.num_changes - len(left.changes)),
        prior_nats={left.index_inside(idx): nats for idx, nats in rules.prior_nats.items() if idx not in left.changes},
        num_earlier_attempts=num_attempts,
    )


def known_inside(known: Known, left: LeftOut, *, part: int, number: int) -> Known:
    """Return what is known in the coordinates of the range inside: its own runs, and those of the searches around it."""
    observations = []
    for run in known.observations:
        is_around = run.attempt == 0 and (run.part == part or run.part in above(part))
        point = left.inside(run.point) if is_around or run.part <= number else None
        if point is not None:
            proof_of = left.index_inside(run.proof_of) if run.proof_of >= 0 else -1
            observations.append(replace(run, point=point, proof_of=proof_of))
    in_flight = []
    for request in known.in_flight:
        point = left.inside(request.point) if request.part <= number else None
        if point is not None:
            proof_of = left.index_inside(request.proof_of) if request.proof_of >= 0 else -1
            in_flight.append(replace(request, point=point, proof_of=proof_of))
    unbuildable = {inner: why for point, why in known.unbuildable.items() if (inner := left.inside(point)) is not None}
    marks = {version: mark for version, mark in known.marks.items() if version <= left.changes[0]}
    return Known(observations, unbuildable, in_flight, known.slots, marks)


def request_outside(request: Request, left: LeftOut, number: int) -> Request:
    """Return a request of the range in the coordinates of the whole, with the number of its part."""
    proof_of = left.index_outside(request.proof_of) if request.proof_of >= 0 else -1
    return replace(request, point=left.outside(request.point), proof_of=proof_of, part=request.part or number)


def culprit_outside(culprit: Culprit, left: LeftOut) -> Culprit:
    """Return a culprit of the range in the coordinates of the whole."""
    claims = tuple(
        replace(
            result,
            claim=replace(result.claim, healthy=left.outside(result.claim.healthy), sick=left.outside(result.claim.sick)),
        )
        for result in culprit.claims
    )
    return replace(culprit, changes=tuple(map(left.index_outside, culprit.changes)), claims=claims)


def remark_outside(remark: Remark, left: LeftOut) -> Remark:
    """Return a remark on the range in the coordinates of the whole."""
    return replace(remark, first=left.index_outside(remark.first), last=left.index_outside(remark.last - 1) + 1)
