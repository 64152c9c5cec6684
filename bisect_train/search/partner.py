"""What a change needs to break the good end: the smallest set of changes that does it together.

The change alone leaves the good end healthy, so it needs earlier ones. On top of it the prefix search is repeated: the last
change that must be there joins the set, and only the changes before it are still in question,

    set = {change};  while good + set is healthy:  set += the change at which  good + first k + set  becomes sick

up to MAX_MEMBERS. The set is proved by HEALS for every member (the bad end without it is healthy; where that cannot be run, the
set on the good end without it is) and BREAKS for the set. A free change without which the others cannot run is no cause: it is
told, and not named.

Of a pair the four cells good, good + a, good + b, good + a + b are run on the same fresh seeds, for the report (`two_by_two`).

Source: QuickXplain (Junker 2004); measured against ddmin in tests/benchmarks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.attempts import STUCK_PROBABILITY, fresh_requests, proof_requests, proof_runs
from bisect_train.search.line import Belief, Line, search_line
from bisect_train.search.terms import Answer, Culprit, Known, Phase, Plan, Remark, RemarkKind, Request, Rules
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus, examine_claim

MAX_MEMBERS = 4


@dataclass(frozen=True, slots=True)
class Grown:
    """How far a set has grown: the runs that it wants, or the set that breaks the good end; neither where there is none.

    Attributes:
        members: indices, in order.
        breaks: the claim that the set breaks the good end, HELD; None while it is open or where there is none.
        probability: that these are the members.
    """

    members: tuple[int, ...]
    wanted: tuple[Request, ...] = ()
    breaks: ClaimResult | None = None
    probability: float = 1.0


def grow_set(rules: Rules, known: Known, plan: Plan, change: int, *, attempt: int) -> Grown:
    """Return the smallest set found that holds `change` and breaks the good end, or what its search wants.

    Args:
        plan: with the proved ends; the change alone does not break the good end, or cannot run there alone.
        attempt: at the proof of `change`.
    """
    grown = Grown((change,))
    while len(grown.members) < MAX_MEMBERS and grown.members[0] > 0:
        found, wanted = _next_member(rules, known, plan, grown.members)
        if found is None:
            return Grown(grown.members, wanted)
        grown = Grown((found[0], *grown.members), probability=grown.probability * found[1])
        claim = Claim(ClaimKind.BREAKS, Point(0), make_point(0, plus=grown.members))
        runs = proof_runs(rules, known, [claim.healthy, claim.sick], attempt)
        result = examine_claim(claim, runs, plan.ends, rules.ends.metric, attempt=attempt)
        if result.status is ClaimStatus.HELD:
            return replace(grown, breaks=result)
        if wanted := proof_requests([result], rules, known, attempt, change):
            return replace(grown, wanted=wanted)
    return Grown(grown.members)


def _next_member(
    rules: Rules, known: Known, plan: Plan, members: tuple[int, ...]
) -> tuple[tuple[int, float] | None, tuple[Request, ...]]:
    """Return the last change that the members need, with its probability, or the runs that tell."""
    skipped = frozenset(version for version in rules.skipped if version < members[0])
    line = Line(members[0], lambda version: make_point(version, plus=members), skipped)
    belief = search_line(line, rules, known, plan.ends)
    best = belief.best
    is_stuck = not belief.wanted and belief.posterior[best] >= STUCK_PROBABILITY
    if belief.posterior[best] >= rules.confidence or is_stuck:
        return (best, belief.posterior[best]), ()
    if belief.wanted:
        return None, belief.wanted
    bad, blocked = _blocked_below(known, line, belief)
    if blocked is None:
        return None, ()
    between = range(blocked + 1, bad)
    if between:
        return None, (Request(line.point_of(between[len(between) // 2]), 0),)
    return ((bad - 1, 1.0) if bad - 1 >= rules.first_free else None), ()


def _blocked_below(known: Known, line: Line, belief: Belief) -> tuple[int, int | None]:
    """Return the first bad version of a line, and the last one before it that cannot be run; None if one before it could.

    Then the members run only from some free change on, and are sick as soon as they run.
    """
    verdicts = {version: item.verdict for version, item in belief.evidence.items()}
    verdicts |= dict.fromkeys(line.skipped, VerdictKind.UNTESTABLE)
    for point in known.unbuildable:
        if (version := line.version_at(point)) is not None:
            verdicts[version] = VerdictKind.UNTESTABLE
    bad = min((version for version, verdict in verdicts.items() if verdict is VerdictKind.BAD), default=line.num_changes)
    below = {version: verdict for version, verdict in verdicts.items() if version < bad}
    is_blocked = bool(below) and all(verdict is VerdictKind.UNTESTABLE for verdict in below.values())
    return bad, max(below) if is_blocked else None


@dataclass(frozen=True, slots=True)
class Sorted:
    """The members of a set that breaks the good end, told apart; or the runs that tell.

    Attributes:
        named: without these the set, or the bad end, is healthy.
        needed: without these the others cannot run.
        claims: what was shown about the named ones.
        is_complete: whether every member is one or the other.
    """

    named: tuple[int, ...] = ()
    needed: tuple[int, ...] = ()
    claims: tuple[ClaimResult, ...] = ()
    wanted: tuple[Request, ...] = ()
    is_complete: bool = True


def sort_members(
    rules: Rules, known: Known, plan: Plan, members: tuple[int, ...], change: int, *, attempt: int, heals: bool
) -> Sorted:
    """Return which members of a set that breaks the good end are part of the cause, and which are only needed to run it.

    Args:
        members: of the set, more than one.
        change: what the attempt is about.
        heals: whether the bad end without a member is to be healthy; else, and where it cannot be run, the set without it.
    """
    first = [_without(rules, known, plan, members, member, attempt, is_at_bad=heals) for member in members]
    again = [
        _without(rules, known, plan, members, member, attempt, is_at_bad=False)
        if heals and result.status is ClaimStatus.UNBUILDABLE
        else result
        for member, result in zip(members, first, strict=True)
    ]
    if wanted := proof_requests(again, rules, known, attempt, change):
        return Sorted(wanted=wanted)
    by_status = {
        status: tuple(member for member, result in zip(members, again, strict=True) if result.status is status)
        for status in ClaimStatus
    }
    held = tuple(result for result in again if result.status is ClaimStatus.HELD)
    needed = tuple(member for member in by_status[ClaimStatus.UNBUILDABLE] if member >= rules.first_free)
    named = by_status[ClaimStatus.HELD]
    is_complete = change in named and len(named) + len(needed) == len(members)
    return Sorted(named, needed, held, is_complete=is_complete)


def _without(
    rules: Rules, known: Known, plan: Plan, members: tuple[int, ...], member: int, attempt: int, *, is_at_bad: bool
) -> ClaimResult:
    """Return whether the bad end without a member, or the set on the good end without it, is healthy."""
    claim = Claim(ClaimKind.HEALS, make_point(rules.num_changes, minus=(member,)), rules.bad_point)
    if not is_at_bad:
        others = tuple(idx for idx in members if idx != member)
        claim = Claim(ClaimKind.HEALS, make_point(0, plus=others), make_point(0, plus=members))
    runs = proof_runs(rules, known, [claim.healthy, claim.sick], attempt)
    return examine_claim(claim, runs, plan.ends, rules.ends.metric, attempt=attempt)


def find_partner(rules: Rules, known: Known, plan: Plan, change: int, *, attempt: int) -> Plan | None:
    """Return the plan of the search for what a change needs, with its answer; None where no set could be proved.

    Args:
        plan: of the proof of `change`: its claim PARENT held, and HEALS, if it could be built.
        attempt: at that proof.
    """
    grown = grow_set(rules, known, plan, change, attempt=attempt)
    if grown.wanted:
        return replace(plan, phase=Phase.PARTNER, wanted=grown.wanted)
    if grown.breaks is None:
        return None
    found = sort_members(rules, known, plan, grown.members, change, attempt=attempt, heals=True)
    if found.wanted:
        return replace(plan, phase=Phase.PARTNER, wanted=found.wanted)
    if not found.is_complete:
        return None
    checked = _without_on_the_way(rules, known, plan, found.named, change, attempt=attempt)
    if wanted := proof_requests(checked, rules, known, attempt, change):
        return replace(plan, phase=Phase.PARTNER, wanted=wanted)
    if any(result.status is not ClaimStatus.HELD for result in checked):
        return None
    if len(grown.members) == len(found.named) == 2:
        if wanted := _cells_missing(rules, known, found.named, grown.breaks, attempt=attempt, change=change):
            return replace(plan, phase=Phase.PARTNER, wanted=wanted)
        if _acts_alone(rules, known, plan, found.named[0]):
            return None
    probability = plan.posterior[change] * grown.probability
    claims = (plan.claims[0], *found.claims, grown.breaks)
    is_necessary = True if all(result.claim.sick == rules.bad_point for result in found.claims) else None
    culprit = Culprit(found.named, probability, claims, is_necessary, None if found.needed else True)
    answer = Answer("isolated", _say_isolated(len(found.named)), culprits=(culprit,), remarks=remarks_on_needed(found.needed))
    told = {result.claim for result in plan.claims}
    more = (result for result in found.claims if result.claim not in told)
    return replace(plan, phase=Phase.DONE, claims=(*plan.claims, *more, grown.breaks), answer=answer)


def _without_on_the_way(
    rules: Rules, known: Known, plan: Plan, named: tuple[int, ...], change: int, *, attempt: int
) -> list[ClaimResult]:
    """Return whether a state between the change and the bad end heals without each member, where failures come and go.

    A state whose own rate of failures is odd makes an innocent change look needed, or `change` look as if it needed another:
    one more comparison, between states that no other claim rests on, is asked for each of them.
    """
    if not plan.ends.is_flaky:
        return []
    sick = make_point((change + 1 + rules.num_changes) // 2)
    claims = [Claim(ClaimKind.HEALS, make_point(sick.prefix, minus=(idx,)), sick) for idx in named]
    runs = proof_runs(rules, known, [sick, *(claim.healthy for claim in claims)], attempt)
    return [examine_claim(claim, runs, plan.ends, rules.ends.metric, attempt=attempt) for claim in claims]


def remarks_on_needed(needed: tuple[int, ...]) -> tuple[Remark, ...]:
    """Return what is to be said about changes that are no cause, but without which the culprit cannot run."""
    return tuple(Remark(RemarkKind.NEEDS, idx, idx + 1) for idx in needed)


def _say_isolated(num_members: int) -> str:
    words = {1: "proved by fresh runs", 2: "two changes together, proved by fresh runs"}
    return words.get(num_members, f"{num_members} changes together, proved by fresh runs")


def _cells_missing(
    rules: Rules, known: Known, pair: tuple[int, ...], breaks: ClaimResult, *, attempt: int, change: int
) -> tuple[Request, ...]:
    """Return the runs that the table of a pair lacks: all three states with a change on the same seeds, those that can run."""
    usable = [
        point
        for point in (make_point(0, plus=(idx,)) for idx in pair)
        if point not in known.unbuildable and not _is_broken(rules, known, point, breaks, attempt)
    ]
    cells = [*usable, breaks.claim.sick]
    num_seeds = max(sum(run.attempt == attempt for run in known.at(point)) for point in cells)
    return fresh_requests(dict.fromkeys(cells, num_seeds), known, attempt, change)


def _is_broken(rules: Rules, known: Known, point: Point, breaks: ClaimResult, attempt: int) -> bool:
    """Return whether a run of a cell could not even be started as those of the set were."""
    usual = {run.outcome.kind for run in known.at(breaks.claim.sick)} | {run.outcome.kind for run in known.at(Point(0))}
    return any(run.attempt == attempt and run.outcome.kind not in usual for run in known.at(point))


def _acts_alone(rules: Rules, known: Known, plan: Plan, change: int) -> bool:
    """Return whether a member breaks the good end without the other: then the two are no pair."""
    evidence = _evidence_at(rules, known, plan, make_point(0, plus=(change,)))
    return evidence is not None and evidence.verdict is VerdictKind.BAD


def _evidence_at(rules: Rules, known: Known, plan: Plan, point: Point) -> Evidence | None:
    runs = known.at(point)
    return judge_variant(runs, plan.ends, rules.ends.metric) if runs else None


@dataclass(frozen=True, slots=True)
class TwoByTwo:
    """The runs of the four states of a pair, on the good end: with neither change, each alone, both."""

    neither: tuple[Observation, ...]
    first: tuple[Observation, ...]
    second: tuple[Observation, ...]
    both: tuple[Observation, ...]


def two_by_two(known: Known, pair: tuple[int, int]) -> TwoByTwo:
    """Return the runs that the table of a pair shows: those of proofs, else those of the search; a cell may be empty.

    Args:
        known: everything observed.
        pair: indices of the two changes, the one that came first in time first.
    """

    def cell(*plus: int) -> tuple[Observation, ...]:
        runs = [run for run in known.at(make_point(0, plus=plus)) if run.repeat == 0]
        fresh = [run for run in runs if run.attempt > 0]
        return tuple(sorted(fresh or runs, key=lambda run: (run.attempt, run.seed_idx)))

    return TwoByTwo(cell(), cell(pair[0]), cell(pair[1]), cell(*pair))
