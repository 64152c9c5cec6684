"""Changes that can only be changed together: a stretch of free changes in which no version can be run.

Between a good version `low` and a bad version `high` nothing can be tested, and all changes between are free. In another order
they may be testable: the stretch is reduced on top of the first `low` changes by delta debugging,

    parts, then what is left without each part; from singles on where there are few, else from halves

and a set counts as too small unless it is BAD. What remains is one culprit with all its changes, proved like a single one:

    PARENT   first `low` changes healthy, with the group sick
    HEALS    the bad end without the group is healthy
    BREAKS   the good end with it is sick

A member without which the rest of the group could be run must be shown to be needed, too: the group without it is healthy.
If one change remains, it was not coupled. The runs carry the part number COUPLING. A combination that the program refuses
costs next to nothing, which is why so many are tried.

Source: Zeller and Hildebrandt 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.attempts import MEASURED, Tested, check_claims
from bisect_train.search.belief import credible_changes
from bisect_train.search.terms import PROVED, Answer, Culprit, Known, Phase, Plan, Remark, RemarkKind, Request, Rules
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimStatus

COUPLING = -2
FEW = 8  # changes whose singles are tried at once
MAX_RUNS_OF_SET = 3
MAX_RUNS_PER_CHANGE, MORE_RUNS = 4, 32  # of one stretch: so many for each of its changes, and so many more
CANDIDATE_MASS = 0.95
DECIDED = (VerdictKind.GOOD, VerdictKind.BAD)
Items = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """How far a set was reduced: what is left of it, and the sets that must be judged to go on."""

    items: Items
    wanted: tuple[Items, ...] = ()


def reduce_set(items: Items, is_bad: Callable[[Items], bool | None], *, num_at_once: int = 1) -> Reduced:
    """Return a smallest subset that is still bad, or what must be judged next.

    Args:
        items: a set that is bad; the empty set is not.
        is_bad: of a subset; None while it is not known. What cannot be tested is not bad.
        num_at_once: sets to ask for at the same time, at most.
    """
    num_parts = len(items) if len(items) <= FEW else 2
    while len(items) > 1:
        parts = [tuple(part.tolist()) for part in np.array_split(np.array(items), num_parts)]
        rests = [tuple(idx for idx in items if idx not in part) for part in parts] if num_parts > 2 else []
        smaller, wanted = _first_bad([*parts, *rests], is_bad)
        if wanted:
            return Reduced(items, wanted[:num_at_once])
        if smaller is not None:
            num_parts = max(num_parts - 1, 2) if smaller in rests else 2
            num_parts = min(len(smaller), num_parts) if len(smaller) > FEW else len(smaller)
            items = smaller
        elif num_parts >= len(items):
            break
        else:
            num_parts = min(len(items), 2 * num_parts)
    return Reduced(items)


def _first_bad(sets: Sequence[Items], is_bad: Callable[[Items], bool | None]) -> tuple[Items | None, tuple[Items, ...]]:
    """Return the first set that is bad, or all that are unknown if one of these comes before it."""
    unknown = []
    for items in sets:
        answer = is_bad(items)
        if answer is None:
            unknown.append(items)
        elif answer and not unknown:
            return items, ()
    return None, tuple(unknown)


def plan_coupling(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with its candidates narrowed to what can only be changed together, or the runs that this wants.

    Args:
        rules, known: of the whole bisection.
        plan: its own, with the answer.
    """
    stretch = find_stretch(rules, known, plan)
    if stretch is None:
        return plan
    low, high = stretch
    own = replace(
        known,
        observations=[run for run in known.observations if run.part == COUPLING],
        in_flight=[request for request in known.in_flight if request.part == COUPLING],
    )
    items = tuple(range(low, high))
    search = _Stretch(rules, known, plan, low, items)
    reduced = reduce_set(items, search.is_bad, num_at_once=known.slots)
    is_spent = len(own.observations) >= MAX_RUNS_PER_CHANGE * len(items) + MORE_RUNS
    if reduced.wanted and not is_spent:
        return _waiting(plan, [search.request(subset) for subset in reduced.wanted])
    num_before = max([rules.num_earlier_attempts, *(run.attempt for run in known.observations if run.part == 0)])
    tested = check_claims(
        replace(rules, num_earlier_attempts=num_before),
        own,
        plan.ends,
        (*claims_of_group(rules, low, reduced.items), *search.claims_of_members(reduced.items)),
        reduced.items[-1],
    )
    if tested is None:
        return plan
    if tested.wanted:
        return _waiting(plan, [replace(request, part=COUPLING) for request in tested.wanted])
    return _with_group(plan, plan.answer, reduced.items, tested)


def _waiting(plan: Plan, wanted: Sequence[Request]) -> Plan:
    return replace(plan, phase=Phase.REST, wanted=tuple(wanted), answer=None, own=plan.answer)


def find_stretch(rules: Rules, known: Known, plan: Plan) -> tuple[int, int] | None:
    """Return the last good and the first bad version around candidates that are all free and that no version tells apart."""
    if plan.answer is None or plan.answer.status in PROVED or not plan.posterior:
        return None
    if plan.answer.status != "candidates":  # a drift, an end that could not be tested
        return None
    chosen = credible_changes(np.asarray(plan.posterior), mass=CANDIDATE_MASS)
    kinds = {version: item.verdict for version, item in plan.evidence.items()}
    kinds |= {0: VerdictKind.GOOD, rules.num_changes: VerdictKind.BAD}
    low = max(version for version, kind in kinds.items() if kind is VerdictKind.GOOD and version <= chosen[0])
    high = min(version for version, kind in kinds.items() if kind is VerdictKind.BAD and version > chosen[-1])
    if high - low < 2 or low < rules.first_free:
        return None
    blocked = {version for version, kind in kinds.items() if kind is VerdictKind.UNTESTABLE} | rules.skipped
    blocked |= {point.prefix for point in known.unbuildable if point.is_prefix}
    is_decided = any(low < version < high and kind in DECIDED for version, kind in kinds.items())
    return (low, high) if not is_decided and any(low < version < high for version in blocked) else None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Sets of changes on top of the first `low` ones, as their runs show them."""

    rules: Rules
    known: Known
    around: Plan
    low: int
    every: Items

    def point(self, items: Items) -> Point:
        return make_point(self.low, plus=items)

    def is_bad(self, items: Items) -> bool | None:
        """Return whether a set is bad; None while its runs do not tell."""
        if items == self.every:
            return True
        point = self.point(items)
        runs = self._runs(point)
        if point in self.known.unbuildable or (point.is_prefix and point.prefix in self.rules.skipped):
            return False
        if not runs:
            return None
        verdict = judge_variant(runs, self.around.ends, self.rules.ends.metric).verdict
        if verdict in (*DECIDED, VerdictKind.UNTESTABLE) or len(runs) >= MAX_RUNS_OF_SET:
            return verdict is VerdictKind.BAD
        return None

    def claims_of_members(self, group: Items) -> tuple[Claim, ...]:
        """Return the claims that a member which can be left out of the group is needed: single runs may have kept it there."""
        rests = [tuple(idx for idx in group if idx != member) for member in group] if len(group) > 1 else []
        return tuple(
            Claim(ClaimKind.HEALS, self.point(rest), self.point(group))
            for rest in rests
            if any(run.outcome.kind not in (OutcomeKind.FAILED, OutcomeKind.UNTESTABLE) for run in self._runs(self.point(rest)))
        )

    def request(self, items: Items) -> Request:
        """Return the next run of a set."""
        point = self.point(items)
        taken = {run.seed_idx for run in self._runs(point)}
        return Request(point, next(idx for idx in range(len(taken) + 1) if idx not in taken), part=COUPLING)

    def _runs(self, point: Point) -> list[Observation]:
        return [run for run in self.known.at(point) if run.attempt == 0 and run.part in (0, COUPLING)]


def claims_of_group(rules: Rules, low: int, group: Items) -> tuple[Claim, ...]:
    """Return the three claims about changes that are made together, on top of the first `low` ones."""
    return (
        Claim(ClaimKind.PARENT, Point(low), make_point(low, plus=group)),
        Claim(ClaimKind.HEALS, make_point(rules.num_changes, minus=group), rules.bad_point),
        Claim(ClaimKind.BREAKS, Point(0), make_point(0, plus=group)),
    )


def _with_group(plan: Plan, own: Answer | None, group: Items, tested: Tested) -> Plan:
    """Return the plan with the group as its culprit where the proof held, else with what it left open."""
    assert own is not None
    states = {ClaimStatus.HELD: True, ClaimStatus.FAILED: False}
    parent, heals, breaks, *of_members = tested.results
    probability = sum(plan.posterior[idx] for idx in group)
    culprit = Culprit(group, probability, tested.results, states.get(heals.status), states.get(breaks.status))
    plan = replace(plan, claims=tested.results)
    has_held = all(result.status is ClaimStatus.HELD for result in (parent, heals, *of_members))
    is_sure = has_held and parent.how not in MEASURED
    if not (tested.has_held or (is_sure and breaks.status is ClaimStatus.UNBUILDABLE)):
        return replace(plan, answer=replace(own, culprits=(culprit,)))
    if len(group) == 1:
        return replace(plan, answer=Answer("isolated", "proved by fresh runs", (culprit,)))
    remark = Remark(RemarkKind.COUPLED, group[0], group[-1] + 1)
    reason = f"{len(group)} changes that can only be changed together, proved by fresh runs"
    return replace(plan, answer=Answer("isolated", reason, (culprit,), remarks=(remark,)))
