"""The proof of an answer, by fresh runs only: this, not the posterior, carries the promise.

Three claims about a change (or a pair), each a comparison of a healthy and a sick variant on the same unused seeds:

    parent      the state just before it is healthy, the state with it is sick           required
    heals       the bad end without it is healthy, the bad end is sick                   required
    breaks      the good end with it is sick, the good end is healthy                    if not: it has a partner

Attempt n tests each claim at 0.005 / 2^n, looks included. Looks, one-sided, on `sick - healthy > gap / 2`:

    1 seed     both sides are bitwise equal to their end (or show the symptom / do not fail, as their end does)
    3 seeds    exact criterion: the metric of both sides is that of their end to the last digit, and the ends differ
    3 seeds    t with the spread pooled over all groups, if the residuals have been shown to be near normal   level / 4
    m seeds    exact permutation test, m the smallest that can reach its level                                level / 4
    10 seeds   exact permutation test                                                                         level / 2

Where more than 10 seeds were allowed, the last half of the level is shared by 10 and by that many seeds.

A failure that comes and goes is compared by Fisher's exact test after 8, 16, 24 and 40 seeds (0.1, 0.2, 0.3 and 0.4 of the
level), with a difference of the rates above half that of the ends.

Where the ends showed that seeds move all variants alike (`pairing`), the looks are sign-flip tests of the differences on the
same seeds instead: after the fewest pairs that can reach half the level (10 for attempt 1), and after 4 more.

A claim is given up before its last look when the sick side is not even worse after 3 seeds, or its jump is at most half the
gap after m seeds: that costs power, never error.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.ends import is_often
from bisect_train.verdict.evidence import failures_and_passes, is_metric_fine
from bisect_train.verdict.outcome import Observation, OutcomeKind, is_blind
from bisect_train.verdict.replicates import worsening
from bisect_train.verdict.stats import (
    MAX_FLIPS,
    fisher_p,
    is_near_normal,
    permutation_p,
    pooled_sd,
    sign_flip_p,
    smallest_group_for,
    summarise,
    t_upper_tail,
)

LEVEL = 0.005
NUM_FIRST_PAIRS = 3
NUM_LAST_PAIRS = 10
NUM_SYMPTOM_PAIRS = 2
MORE_PAIRS = 4  # of the second look at pairs
RATE_LOOKS = ((8, 0.1), (16, 0.2), (24, 0.3), (40, 0.4))  # seeds, share of the level
NORMALITY_LEVEL = 0.2  # at 0.05 exponential noise passed often enough to break the t look 5 times more than its level


class ClaimKind(str, Enum):
    """Which of the three claims."""

    PARENT = "parent"
    HEALS = "heals"
    BREAKS = "breaks"


class ClaimStatus(str, Enum):
    """OPEN needs more runs; UNBUILDABLE could not be made or run."""

    OPEN = "open"
    HELD = "held"
    FAILED = "failed"
    UNBUILDABLE = "unbuildable"


@dataclass(frozen=True, slots=True)
class Claim:
    """One comparison: which points must be healthy and sick."""

    kind: ClaimKind
    healthy: Point
    sick: Point


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The state of one claim.

    Attributes:
        claim: the comparison.
        status: see ClaimStatus.
        num_seeds: seeds that it needs by now (the next look), or rested on.
        how: `bitwise`, `metric`, `symptom`, `rates`, `paired`, `t`, `permutation`, or "".
        p_value: of the look that decided, or None.
        jump: sick - healthy, positive when worse, in the metric's unit; None without values.
        reason: one sentence.
    """

    claim: Claim
    status: ClaimStatus
    num_seeds: int
    how: str = ""
    p_value: float | None = None
    jump: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProofRuns:
    """Fresh runs of one attempt, by point: the first seeds without a hole; `end_points` are (good end, bad end).

    `max_seeds` is the number that was allowed for each end: above 10, a last look may use as many fresh runs of each state.
    """

    of_point: Mapping[Point, Sequence[Observation]]
    end_points: tuple[Point, Point]
    unbuildable: Mapping[Point, str]
    max_seeds: int = NUM_LAST_PAIRS


def examine_claim(claim: Claim, runs: ProofRuns, ends: Ends, metric: Metric, *, attempt: int) -> ClaimResult:
    """Return whether a claim holds by the fresh runs so far, or how many seeds it needs next.

    Args:
        claim: the comparison.
        runs: fresh runs of this attempt only.
        ends: the proof of the ends, SEPARATED.
        metric: the primary metric.
        attempt: 1 for the first attempt of this bisection.
    """
    for point in (claim.healthy, claim.sick):
        if point in runs.unbuildable:
            return ClaimResult(claim, ClaimStatus.UNBUILDABLE, 0, reason=runs.unbuildable[point])
    points = {claim.healthy, claim.sick, *runs.end_points}
    if ends.criterion is Criterion.STATISTICAL:
        runs, num_accidents = _without_accidents(runs, points)
        result = _examine(claim, runs, ends, metric, points, attempt=attempt)
        is_open = result.status is ClaimStatus.OPEN
        return replace(result, num_seeds=result.num_seeds + num_accidents) if is_open else result
    return _examine(claim, runs, ends, metric, points, attempt=attempt)


def _without_accidents(runs: ProofRuns, points: Collection[Point]) -> tuple[ProofRuns, int]:
    """Return the runs without the few that failed, where values decide, and how many more seeds make up for them."""
    kept = dict(runs.of_point)
    num_accidents = 0
    for point in points:
        every = runs.of_point.get(point, ())
        measured = [run for run in every if run.outcome.kind is OutcomeKind.MEASURED]
        if measured and not is_often(len(every) - len(measured), len(every)):
            kept[point] = measured
            num_accidents = max(num_accidents, len(every) - len(measured))
    return replace(runs, of_point=kept), num_accidents


def _examine(
    claim: Claim, runs: ProofRuns, ends: Ends, metric: Metric, points: Collection[Point], *, attempt: int
) -> ClaimResult:
    num = min(len(runs.of_point.get(point, ())) for point in points)
    if num == 0:
        return ClaimResult(claim, ClaimStatus.OPEN, 1)
    broken = next((run for point in points for run in runs.of_point[point] if _is_unusable(run, ends)), None)
    if broken is not None:
        return ClaimResult(claim, ClaimStatus.UNBUILDABLE, num, reason=broken.outcome.reason)
    if ends.criterion in (Criterion.SYMPTOM, Criterion.JUDGE):
        is_flaky = ends.is_flaky
        return _test_rates(claim, runs, ends, level=LEVEL / 2**attempt) if is_flaky else _test_symptom(claim, runs, ends)
    exact = _test_bitwise(claim, runs, ends, metric)
    if exact is not None:
        return exact
    if ends.criterion is Criterion.EXACT and is_metric_fine(ends):
        return _test_metric(claim, runs, metric, num)
    if ends.criterion is Criterion.EXACT:
        return ClaimResult(claim, ClaimStatus.FAILED, num, how="bitwise", reason="not bitwise equal to the end")
    return _test_values(claim, runs, ends, metric, level=LEVEL / 2**attempt)


def _is_unusable(run: Observation, ends: Ends) -> bool:
    kind = run.outcome.kind
    if ends.criterion in (Criterion.SYMPTOM, Criterion.JUDGE):
        is_unknown = kind in (OutcomeKind.UNTESTABLE, OutcomeKind.UNSEEN) or is_blind(run.outcome, ends.signature)
        return is_unknown or (kind is OutcomeKind.FAILED and run.outcome.signature != ends.signature)
    return kind is not OutcomeKind.MEASURED


def _test_symptom(claim: Claim, runs: ProofRuns, ends: Ends) -> ClaimResult:
    healthy, sick = runs.of_point[claim.healthy], runs.of_point[claim.sick]
    num = min(len(healthy), len(sick))
    num_wrong = sum(run.outcome.signature == ends.signature for run in healthy)
    num_wrong += sum(run.outcome.signature != ends.signature for run in sick)
    if num_wrong:
        reason = f"{num_wrong} of {len(healthy) + len(sick)} fresh runs contradict it"
        return ClaimResult(claim, ClaimStatus.FAILED, num, how="symptom", reason=reason)
    if num < NUM_SYMPTOM_PAIRS:
        return ClaimResult(claim, ClaimStatus.OPEN, NUM_SYMPTOM_PAIRS, how="symptom")
    reason = f"{len(sick)} of {len(sick)} fail, {len(healthy)} of {len(healthy)} do not"
    return ClaimResult(claim, ClaimStatus.HELD, num, how="symptom", reason=reason)


def _test_rates(claim: Claim, runs: ProofRuns, ends: Ends, *, level: float) -> ClaimResult:
    """Return HELD if the sick side fails more often (Fisher's exact test) and by more than half the difference of the ends."""
    num = min(len(runs.of_point[point]) for point in (claim.healthy, claim.sick))
    for look, share in RATE_LOOKS:
        if num < look:
            return ClaimResult(claim, ClaimStatus.OPEN, look, how="rates")
        healthy, sick = (failures_and_passes(runs.of_point[point][:look], ends) for point in (claim.healthy, claim.sick))
        jump, p_value = (sick[0] - healthy[0]) / look, fisher_p(sick, healthy)
        said = f"{sick[0]} of {look} runs fail against {healthy[0]} of {look}"
        if p_value <= level * share and jump > ends.gap / 2.0:
            return ClaimResult(claim, ClaimStatus.HELD, look, how="rates", p_value=p_value, jump=jump, reason=said)
        if jump <= ends.gap / 4.0:
            break
    return ClaimResult(claim, ClaimStatus.FAILED, look, how="rates", jump=jump, reason=said)


def _test_metric(claim: Claim, runs: ProofRuns, metric: Metric, num: int) -> ClaimResult:
    """Return HELD if, on three fresh seeds, both sides show the metric of their end to the last digit, and the ends differ."""
    values = {
        point: [worsening(run.outcome.value or 0.0, metric) for run in runs.of_point[point]]
        for point in (claim.healthy, claim.sick, *runs.end_points)
    }
    good, bad = (values[point] for point in runs.end_points)
    healthy, sick = values[claim.healthy], values[claim.sick]
    if any(healthy[idx] != good[idx] or sick[idx] != bad[idx] or good[idx] == bad[idx] for idx in range(num)):
        reason = f"{metric.name} is not that of the ends"
        return ClaimResult(claim, ClaimStatus.FAILED, num, how="metric", reason=reason)
    jump = summarise(sick).mean - summarise(healthy).mean
    if num < NUM_FIRST_PAIRS:
        return ClaimResult(claim, ClaimStatus.OPEN, NUM_FIRST_PAIRS, how="metric", jump=jump)
    reason = f"{metric.name} is that of the ends to the last digit on {num} seeds"
    return ClaimResult(claim, ClaimStatus.HELD, num, how="metric", jump=jump, reason=reason)


def _test_bitwise(claim: Claim, runs: ProofRuns, ends: Ends, metric: Metric) -> ClaimResult | None:
    """Return HELD if, on the first fresh seed, both sides are bitwise equal to their end and the ends differ enough."""
    if not ends.repeats_bitwise:
        return None
    if {claim.healthy, claim.sick} == set(runs.end_points) and ends.criterion is not Criterion.EXACT:
        return None  # the ends are equal to themselves: that says nothing
    firsts = [runs.of_point[point][0] for point in (*runs.end_points, claim.healthy, claim.sick)]
    if len({run.seed_idx for run in firsts}) > 1:
        return None
    good, bad = (runs.of_point[point][0].outcome for point in runs.end_points)
    healthy, sick = runs.of_point[claim.healthy][0].outcome, runs.of_point[claim.sick][0].outcome
    if not (healthy.digest == good.digest != bad.digest == sick.digest):
        return None
    jump = worsening(bad.value or 0.0, metric) - worsening(good.value or 0.0, metric)
    if ends.criterion is not Criterion.EXACT and not _exceeds_half(jump, ends.gap):
        return None
    return ClaimResult(claim, ClaimStatus.HELD, 1, how="bitwise", jump=jump, reason="bitwise equal to the ends")


def _exceeds_half(jump: float, gap: float) -> bool:
    return jump > gap / 2.0 if gap >= 0 else jump < gap / 2.0


def _test_values(claim: Claim, runs: ProofRuns, ends: Ends, metric: Metric, *, level: float) -> ClaimResult:
    sign, half_gap = (1.0 if ends.gap >= 0 else -1.0), abs(ends.gap) / 2.0
    groups = {point: [sign * worsening(run.outcome.value or 0.0, metric) for run in of] for point, of in runs.of_point.items()}
    healthy, sick = groups[claim.healthy], groups[claim.sick]
    if ends.are_seeds_inert:
        jump = sick[0] - healthy[0]
        status = ClaimStatus.HELD if jump > half_gap else ClaimStatus.FAILED
        return ClaimResult(claim, status, 1, how="value", jump=sign * jump, reason="seeds change nothing: one run each")
    if ends.are_paired:
        shared = _on_shared_seeds(runs.of_point[claim.healthy], runs.of_point[claim.sick])
        healthy, sick = ([sign * worsening(run.outcome.value or 0.0, metric) for run in side] for side in shared)
        result = _test_pairs(claim, healthy, sick, half_gap, level=level, max_seeds=runs.max_seeds)
        return replace(result, jump=None if result.jump is None else sign * result.jump)
    num = min(len(healthy), len(sick))
    jump = summarise(sick).mean - summarise(healthy).mean
    for look in _looks_at(level, runs.max_seeds):
        if num < look.num:
            return ClaimResult(claim, ClaimStatus.OPEN, look.num, jump=sign * jump)
        firsts = [group[: look.num] for group in groups.values() if len(group) >= look.num]
        p_value = _p_of_look(look, healthy[: look.num], [value - half_gap for value in sick[: look.num]], firsts)
        if p_value is not None and p_value <= look.level:
            return ClaimResult(claim, ClaimStatus.HELD, num, how=look.how, p_value=p_value, jump=sign * jump)
        if summarise(sick[: look.num]).mean - summarise(healthy[: look.num]).mean <= look.least_jump * half_gap:
            break
    reason = f"{num} + {num} fresh runs show no worsening by more than half the gap"
    return ClaimResult(claim, ClaimStatus.FAILED, num, how="permutation", jump=sign * jump, reason=reason)


def _on_shared_seeds(
    first: Sequence[Observation], second: Sequence[Observation]
) -> tuple[list[Observation], list[Observation]]:
    """Return the runs of both sides on the seeds that both have, in order."""
    seeds = {run.seed_idx for run in first} & {run.seed_idx for run in second}
    return [run for run in first if run.seed_idx in seeds], [run for run in second if run.seed_idx in seeds]


def _test_pairs(
    claim: Claim, healthy: Sequence[float], sick: Sequence[float], half_gap: float, *, level: float, max_seeds: int
) -> ClaimResult:
    """Return what the differences on the same seeds show: exact sign-flip tests of sick - healthy > gap / 2 at two looks."""
    differences = [after - before for before, after in zip(healthy, sick, strict=False)]
    jump = summarise(differences).mean
    first = math.ceil(math.log2(2.0 / level))  # the fewest pairs that can reach half the level
    look = 0
    for look in (first, min(max(first + MORE_PAIRS, max_seeds), MAX_FLIPS)):
        if len(differences) < look:
            return ClaimResult(claim, ClaimStatus.OPEN, look, jump=jump)
        shifted = [value - half_gap for value in differences[:look]]
        p_value = sign_flip_p(shifted)
        if p_value <= level / 2.0:
            return ClaimResult(claim, ClaimStatus.HELD, look, how="paired", p_value=p_value, jump=jump)
        if summarise(shifted).mean <= 0.0:
            break
    reason = f"{look} pairs of fresh runs show no worsening by more than half the gap"
    return ClaimResult(claim, ClaimStatus.FAILED, look, how="paired", jump=jump, reason=reason)


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the first `num` seeds; a jump of at most `least_jump` half gaps ends the test."""

    num: int
    how: str
    level: float
    least_jump: float


def _looks_at(level: float, max_seeds: int) -> tuple[_Look, ...]:
    early = (
        _Look(NUM_FIRST_PAIRS, "t", level / 4.0, 0.0),
        _Look(smallest_group_for(level / 4.0), "permutation", level / 4.0, 1.0),
    )
    if max_seeds <= NUM_LAST_PAIRS:
        return (*early, _Look(NUM_LAST_PAIRS, "permutation", level / 2.0, 1.0))
    late = [_Look(num, "permutation", level / 4.0, 1.0) for num in (NUM_LAST_PAIRS, max_seeds)]
    return (*early, *late)


def _p_of_look(
    look: _Look, healthy: Sequence[float], shifted: Sequence[float], groups: Sequence[Sequence[float]]
) -> float | None:
    return _p_of_t(healthy, shifted, groups) if look.how == "t" else permutation_p(healthy, shifted)


def _p_of_t(healthy: Sequence[float], shifted: Sequence[float], groups: Sequence[Sequence[float]]) -> float | None:
    """Return the p value of the t test with the spread pooled over all fresh groups, None if normality was not shown."""
    if not is_near_normal(groups, level=NORMALITY_LEVEL):
        return None
    sd, dof = pooled_sd(groups)
    if sd == 0.0:
        return None
    gap = summarise(shifted).mean - summarise(healthy).mean
    return t_upper_tail(gap / (sd * math.sqrt(1 / len(shifted) + 1 / len(healthy))), dof)
