"""Either is enough: the bad end is still bad without the culprit, because another change does the same by itself.

A proof that fails because the bad end without the change `a` is still clearly bad, while the state before `a` is healthy and
the state with it is sick, says that something else is enough, too. The range is then searched again without `a`: the same list
with `a` left out of every state is a bisection of its own, in coordinates of its own (`LeftOut`), with ends, search and proof.
It may end the same way, so that up to MAX_CULPRITS are found. With the culprits a and b each then has

    PARENT   the state just before it is healthy, with it sick            b: both without a
    HEALS    without all of them the bad end is healthy, with this one alone left it is sick
    BREAKS   the good end with it is sick

If a, alone left, leaves the bad end healthy, then b is the culprit, and a was made up for later. Failures that come and go are
never looked at this way: that the bad end failed without a change is no proof there.

The runs carry the part numbers COMPLEMENT, COMPLEMENT - 1, ... by depth; attempts continue the count of the range around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.attempts import (
    MEASURED,
    SEEDS_PER_ATTEMPT,
    attempt_for,
    fresh_requests,
    lacks_power,
    newest_attempt,
    proof_requests,
    proof_runs,
)
from bisect_train.search.leftout import (
    COMPLEMENT,
    LeftOut,
    culprit_outside,
    known_inside,
    numbered,
    own_runs,
    remark_outside,
    request_outside,
    rules_inside,
)
from bisect_train.search.partner import grow_set, sort_members
from bisect_train.search.proving import answer_of_proof, claims_of, tried_changes
from bisect_train.search.terms import PROVED, Answer, Culprit, Known, Phase, Plan, Remark, RemarkKind, Request, Rules
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus, ProofRuns, examine_claim

MAX_CULPRITS = 4
SEARCH_FACTOR, MORE_RUNS = 3.0, 12  # a clean step takes about log2 N runs of the search, noise some more
Planner = Callable[[Rules, Known], Plan]


@dataclass(frozen=True, slots=True)
class Enough:
    """A change without which the bad end is still bad: PARENT held (or is open), HEALS failed; the attempt that showed it."""

    change: int
    claims: tuple[ClaimResult, ...]
    attempt: int


def find_enough(rules: Rules, known: Known, ends: Ends) -> Enough | None:
    """Return the first change that was put to the proof and is not the only one that is enough; None if there is none.

    Args:
        known: the runs of one range only.
    """
    if ends.is_flaky:
        return None
    found = []
    for change in tried_changes(known):
        attempt = attempt_for(rules, known, change)
        claims = claims_of(change, rules)
        runs = proof_runs(rules, known, [point for claim in claims for point in (claim.healthy, claim.sick)], attempt)
        results = tuple(examine_claim(claim, runs, ends, rules.ends.metric, attempt=attempt) for claim in claims)
        parent, heals, _ = results
        is_possible = parent.status in (ClaimStatus.HELD, ClaimStatus.OPEN)  # HEALS may fail before PARENT has all its runs
        if is_possible and _is_still_bad(rules, runs, heals, ends):
            found.append(Enough(change, results, attempt))
    return min(found, key=lambda item: item.attempt, default=None)


def _is_still_bad(rules: Rules, runs: ProofRuns, heals: ClaimResult, ends: Ends) -> bool:
    """Return whether HEALS failed because its healthy side is clearly bad, not for want of power."""
    if heals.status is not ClaimStatus.FAILED or lacks_power(heals, ends):
        return False
    return judge_variant(runs.of_point[heals.claim.healthy], ends, rules.ends.metric).verdict is VerdictKind.BAD


def is_time_to_stop(rules: Rules, enough: Enough, *, num_judged: int) -> bool:
    """Return whether the search of a range ends here: at once at a free change, else when the history has had its chance.

    Ordered changes may have a history that was bad, good and bad again. That is found by the search itself, in few more runs.
    """
    return enough.change >= rules.first_free or num_judged >= SEARCH_FACTOR * math.log2(rules.num_changes + 1) + MORE_RUNS


def has_stopped(rules: Rules, plan: Plan) -> bool:
    """Return whether the search of a range ended early, at an ordered change, and may go on."""
    return plan.candidate is not None and plan.candidate < rules.first_free and bool(plan.claims)


def stop_at(rules: Rules, plan: Plan, enough: Enough) -> Plan:
    """Return the plan of a range that ends here: the change was proved as far as it can be, and is not the only one."""
    plan = replace(plan, phase=Phase.DONE, wanted=(), candidate=enough.change, claims=enough.claims)
    return replace(plan, answer=answer_of_proof(rules, plan, enough.change))


def plan_complement(rules: Rules, known: Known, plan: Plan, *, make: Planner, part: int = 0, depth: int = 0) -> Plan:
    """Return the plan with all changes that are enough by themselves, or the runs that this wants.

    Args:
        rules, known: of this range; `known` has its runs and those of the ranges inside.
        plan: the range's own, with its answer.
        make: plans one range without parts.
        part: number of this range.
        depth: how many culprits are left out of it already.
    """
    if plan.answer is None or plan.answer.status in PROVED or depth >= MAX_CULPRITS - 1:
        return plan
    own = own_runs(known, part)
    enough = find_enough(rules, own, plan.ends)
    if enough is None:
        return plan
    first = _first_culprit(rules, own, plan, enough)
    if not isinstance(first, Culprit):
        return _waiting(plan, first) if first else plan
    number = COMPLEMENT - depth
    left = LeftOut(first.changes)
    inner_rules = rules_inside(rules, left, num_attempts=newest_attempt(rules, replace(own, in_flight=())))
    inner_known = known_inside(known, left, part=part, number=number)
    inner = make(inner_rules, own_runs(inner_known, number))
    if inner.answer is not None:
        inner = plan_complement(inner_rules, inner_known, inner, make=make, part=number, depth=depth + 1)
    if inner.answer is None:
        return _waiting(plan, [request_outside(request, left, number) for request in inner.wanted])
    if inner.answer.status not in PROVED:
        return plan
    others = [culprit_outside(culprit, left) for culprit in inner.answer.culprits]
    remarks = [remark_outside(remark, left) for remark in inner.answer.remarks]
    return _Joining(rules, numbered(known, number), plan, inner.ends, first, others, remarks, number).plan()


def _waiting(plan: Plan, wanted: Sequence[Request]) -> Plan:
    return replace(plan, phase=Phase.REST, wanted=tuple(wanted), answer=None, own=plan.answer)


def _first_culprit(rules: Rules, own: Known, plan: Plan, enough: Enough) -> Culprit | tuple[Request, ...] | None:
    """Return the change, with what it needs to break the good end; the runs that tell; None where that cannot be shown."""
    parent, heals, breaks = enough.claims
    change, attempt = enough.change, enough.attempt
    if wanted := proof_requests([parent, breaks], rules, own, attempt, change):
        return wanted
    probability = 1.0  # the belief of the range fell when the bad end stayed bad without it
    if breaks.status is ClaimStatus.HELD:
        return Culprit((change,), probability, enough.claims, False, True)
    if breaks.status is ClaimStatus.UNBUILDABLE and change < rules.first_free:
        return None if parent.how in MEASURED else Culprit((change,), probability, enough.claims, False, None)
    grown = grow_set(rules, own, plan, change, attempt=attempt)
    if grown.breaks is None:
        return grown.wanted or None
    found = sort_members(rules, own, plan, grown.members, change, attempt=attempt, heals=False)
    if found.wanted or not found.is_complete:
        return found.wanted or None
    claims = (parent, heals, grown.breaks, *found.claims)
    return Culprit(found.named, grown.probability, claims, False, None if found.needed else True)


# ---- all of them together ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Joining:
    """What was found first and what was found without it: does the first one matter in the bad end, too?

    Attributes:
        known: the runs of the part without the first one.
        plan: of the range around.
        ends: of the range without the first one.
    """

    rules: Rules
    known: Known
    around: Plan
    ends: Ends
    first: Culprit
    others: list[Culprit]
    remarks: list[Remark]
    number: int

    def plan(self) -> Plan:
        """Return the answer of all, or the runs that it wants."""
        num, found = self.rules.num_changes, {idx for culprit in self.others for idx in culprit.changes}
        only_first = make_point(num, minus=tuple(found))
        healed = make_point(num, minus=(*found, *self.first.changes))
        keeps = self._examine(Claim(ClaimKind.HEALS, healed, only_first), self._bad_without_first())
        if keeps.status is ClaimStatus.OPEN:
            return self._waiting(keeps, self._bad_without_first())
        if keeps.status is ClaimStatus.HELD:
            return self._answer(_ranked([self._first_with(keeps), *self.others]))
        runs = [run for run in self.known.observations if run.point == only_first and run.attempt == self._attempt]
        is_healthy = bool(runs) and (judge_variant(runs, self.around.ends, self.rules.ends.metric).verdict is VerdictKind.GOOD)
        if keeps.status is ClaimStatus.UNBUILDABLE or not is_healthy or len(self.others) != 1:
            return self.around
        alone = self._examine(Claim(ClaimKind.HEALS, only_first, self.rules.bad_point), self.rules.bad_point)
        if alone.status is ClaimStatus.OPEN:
            return self._waiting(alone, self.rules.bad_point)
        return self._answer_alone(alone) if alone.status is ClaimStatus.HELD else self.around

    @property
    def _attempt(self) -> int:
        return max(run.attempt for run in self.known.observations)

    def _bad_without_first(self) -> Point:
        return make_point(self.rules.num_changes, minus=self.first.changes)

    def _examine(self, claim: Claim, bad: Point) -> ClaimResult:
        ends = self.around.ends if bad == self.rules.bad_point else self.ends
        points = {claim.healthy, claim.sick, self.rules.good_point, bad}
        runs = ProofRuns(
            {point: self._fresh(point) for point in points},
            (self.rules.good_point, bad),
            self.known.unbuildable,
            self.rules.ends.max_seeds,
        )
        return examine_claim(claim, runs, ends, self.rules.ends.metric, attempt=self._attempt)

    def _fresh(self, point: Point) -> list[Observation]:
        """Return the runs of the attempt at a point: the first seeds without a hole."""
        runs = {run.seed_idx: run for run in self.known.observations if run.attempt == self._attempt and run.point == point}
        fresh, seed_idx = [], SEEDS_PER_ATTEMPT * self._attempt
        while seed_idx in runs:
            fresh.append(runs[seed_idx])
            seed_idx += 1
        return fresh

    def _waiting(self, result: ClaimResult, bad: Point) -> Plan:
        ends = dict.fromkeys((self.rules.good_point, bad), result.num_seeds if result.how == "metric" else 1)
        needs = ends | dict.fromkeys((result.claim.healthy, result.claim.sick), result.num_seeds)
        change = self.others[0].changes[-1]
        wanted = fresh_requests(needs, self.known, self._attempt, change)
        return _waiting(self.around, [replace(request, part=self.number) for request in wanted])

    def _first_with(self, keeps: ClaimResult) -> Culprit:
        return replace(self.first, claims=(*self.first.claims, keeps))

    def _answer(self, culprits: list[Culprit]) -> Plan:
        every = [idx for culprit in culprits for idx in culprit.changes]
        told = [remark for remark in self.remarks if remark.kind is not RemarkKind.EITHER_ENOUGH]
        remark = Remark(RemarkKind.EITHER_ENOUGH, min(every), max(every) + 1)
        reason = f"each of {len(culprits)} is enough by itself, proved by fresh runs"
        several = tuple(replace(culprit, is_necessary=False) for culprit in culprits)
        return self._done(Answer("several", reason, several, remarks=(*told, remark)))

    def _answer_alone(self, heals: ClaimResult) -> Plan:
        (other,) = self.others
        claims = (other.claims[0], heals, *(item for item in other.claims if item.claim.kind is ClaimKind.BREAKS))
        undone = [
            Remark(RemarkKind.UNDONE, idx, idx + 1, self.first.claims[0].jump, reason=heals.reason)
            for idx in self.first.changes
        ]
        culprit = replace(other, claims=claims, is_necessary=True)
        return self._done(Answer("isolated", "proved by fresh runs", (culprit,), remarks=(*self.remarks, *undone)))

    def _done(self, answer: Answer) -> Plan:
        claims = tuple(result for culprit in answer.culprits for result in culprit.claims)
        return replace(self.around, phase=Phase.DONE, wanted=(), claims=claims, answer=answer)


def _ranked(culprits: list[Culprit]) -> list[Culprit]:
    """Return the culprits by the size of their effect, largest first."""
    return sorted(culprits, key=lambda culprit: -abs(culprit.claims[0].jump or 0.0) if culprit.claims else 0.0)
