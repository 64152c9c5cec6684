"""The proof of the ends: do the good end and the bad end differ, in which way, and by how much more than chance?

Two kinds of replicate: the same seed again (does a run repeat bitwise?) and other seeds, the same at both ends (how wide is
the metric?). Looks and their error, one-sided, together about 1 %:

    3 + 3 seeds   the gap is >= 10 pooled sd and t(4) p <= 0.0005   "far more than any seed could explain"
    5 + 5 seeds   exact permutation p <= 1/252                      (complete separation)
    8 + 8 seeds   exact permutation p <= 0.0025
    max seeds     exact permutation p <= 0.0025, when more than 8 were allowed

A failure (crash, out-of-memory, timeout, non-finite metric) at the bad end is the symptom if it comes back with the same
signature on every seed and the good end never fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.outcome import Observation, OutcomeKind
from bisect_train.verdict.stats import (
    Summary,
    permutation_p,
    pooled_sd,
    summarise,
    t_upper_tail,
    upper_bound_paired,
)

FAR_GAP_SD = 10.0  # "far more than any seed could explain": pooled sd that 3 + 3 seeds must lie apart
FAR_LEVEL = 0.0005
LEVEL_OF_LOOK = {5: 1.0 / 252.0 + 1e-9, 8: 0.0025}
FIRST_LOOK, SECOND_LOOK = 3, 5
NUM_SYMPTOM_SEEDS = 3
INERT_EFFECT_SHARE = 0.01  # without any seed spread, differences under 1 % of the good value count as harmless


class EndsStatus(str, Enum):
    """What is known about the two ends."""

    OPEN = "open"  # more runs are needed, see `wanted`
    SEPARATED = "separated"
    SAME = "same"  # bitwise equal, or the bound on the effect is below the smallest that counts
    UNCLEAR = "unclear"  # not separated, and the effect could still be as large as the bound
    BETTER = "better"  # the bad end is better
    FLAKY = "flaky"  # the bad end fails in some runs only
    GOOD_UNTESTABLE = "good_untestable"
    BAD_UNTESTABLE = "bad_untestable"
    NO_METRIC = "no_metric"  # neither end shows the metric, and neither fails


@dataclass(frozen=True, slots=True)
class EndRun:
    """A run that is wanted at an end."""

    is_bad: bool
    seed_idx: int
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """The state of the proof of the ends. Values are in the metric's unit, `gap` positive when the bad end is worse.

    Attributes:
        status: see EndsStatus.
        criterion: EXACT, STATISTICAL, SYMPTOM or JUDGE once it is known.
        repeats_bitwise: the same seed again gave the same bits at both ends; None while unknown.
        good, bad: summaries over seeds (copies do not count), or None.
        spread: pooled seed standard deviation, or the declared one when seeds change nothing.
        gap: how much worse the bad end is.
        min_effect: smallest worsening that counts.
        bound: upper 95 % bound of the worsening, or None.
        p_value: of the look that decided.
        signature: of the symptom.
        good_digests, bad_digests: bitwise class by seed index.
        are_seeds_inert: other seeds gave the same bits.
        wanted: runs that are needed next, most urgent first.
        reason: one sentence.
    """

    status: EndsStatus
    criterion: Criterion = Criterion.AUTO
    repeats_bitwise: bool | None = None
    good: Summary | None = None
    bad: Summary | None = None
    spread: float = 0.0
    gap: float = 0.0
    min_effect: float = 0.0
    bound: float | None = None
    p_value: float | None = None
    signature: str = ""
    good_digests: dict[int, str] = field(default_factory=dict)
    bad_digests: dict[int, str] = field(default_factory=dict)
    are_seeds_inert: bool = False
    wanted: tuple[EndRun, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EndRules:
    """What was asked: the metric, the criterion, whether any difference counts, the smallest effect, seeds per end."""

    metric: Metric
    criterion: Criterion = Criterion.AUTO
    any_change: bool = False
    min_effect: float | None = None
    max_seeds: int = 8
    has_judge: bool = False


def worsening(value: float, metric: Metric) -> float:
    """Return the value with the sign that makes larger worse."""
    return value if metric.better == "lower" else -value


def prove_ends(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    """Return what the runs of both ends show so far, and which runs are needed next.

    Args:
        good, bad: observations of the two ends outside any proof of an answer, in any order.
        rules: what was asked.
    """
    first_good, first_bad = _run_of(good, 0, 0), _run_of(bad, 0, 0)
    missing = [EndRun(is_bad, 0) for is_bad, run in ((False, first_good), (True, first_bad)) if run is None]
    if first_good is not None and (broken := _untestable_good(first_good, rules)):
        return broken
    if first_bad is not None and first_bad.outcome.kind is OutcomeKind.UNTESTABLE:
        return Ends(EndsStatus.BAD_UNTESTABLE, reason=first_bad.outcome.reason)
    if first_good is None or first_bad is None:
        return Ends(EndsStatus.OPEN, wanted=tuple(missing), reason="running both ends")
    if first_bad.outcome.kind is OutcomeKind.FAILED or rules.has_judge:
        return _prove_symptom(good, bad, rules)
    kinds = (first_good.outcome.kind, first_bad.outcome.kind)
    if OutcomeKind.NO_METRIC in kinds:
        return _report_no_metric(kinds, rules)
    return _prove_values(good, bad, rules)


def _untestable_good(run: Observation, rules: EndRules) -> Ends | None:
    kind = run.outcome.kind
    if kind is OutcomeKind.UNTESTABLE:
        return Ends(EndsStatus.GOOD_UNTESTABLE, reason=run.outcome.reason)
    if kind is OutcomeKind.FAILED:
        said = "the judging command calls it bad" if rules.has_judge else run.outcome.reason
        return Ends(EndsStatus.GOOD_UNTESTABLE, signature=run.outcome.signature, reason=said)
    return None


def _report_no_metric(kinds: tuple[OutcomeKind, OutcomeKind], rules: EndRules) -> Ends:
    name = rules.metric.name
    if kinds == (OutcomeKind.NO_METRIC, OutcomeKind.NO_METRIC):
        return Ends(EndsStatus.NO_METRIC, reason=f"no value of {name} was seen at either end")
    if kinds[0] is OutcomeKind.NO_METRIC:
        return Ends(EndsStatus.GOOD_UNTESTABLE, reason=f"no value of {name} was seen at the good end")
    return Ends(EndsStatus.BAD_UNTESTABLE, reason=f"no value of {name} was seen at the bad end")


def _run_of(runs: Sequence[Observation], seed_idx: int, repeat: int) -> Observation | None:
    return next((run for run in runs if run.seed_idx == seed_idx and run.repeat == repeat), None)


# ---- a failure, or a judging command, decides ------------------------------------------------------------------


def _prove_symptom(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    criterion = Criterion.JUDGE if rules.has_judge else Criterion.SYMPTOM
    first = _run_of(bad, 0, 0)
    assert first is not None
    if rules.criterion in (Criterion.EXACT, Criterion.STATISTICAL) and not rules.has_judge:
        return Ends(EndsStatus.BAD_UNTESTABLE, signature=first.outcome.signature, reason=first.outcome.reason)
    wanted = tuple(
        EndRun(is_bad, seed_idx)
        for seed_idx in range(NUM_SYMPTOM_SEEDS)
        for is_bad, runs in ((True, bad), (False, good))
        if _run_of(runs, seed_idx, 0) is None
    )
    signature = first.outcome.signature
    ends = Ends(EndsStatus.OPEN, criterion=criterion, signature=signature)
    num_bad = sum(run.outcome.signature == signature and bool(signature) for run in bad)
    num_good_failed = sum(bool(run.outcome.signature) for run in good)
    if num_bad < len(bad) or num_good_failed:
        reason = f"the bad end fails in {num_bad} of {len(bad)} runs, the good end in {num_good_failed} of {len(good)}"
        if not signature:
            return replace(ends, status=EndsStatus.SAME, reason="the judging command calls both ends good")
        return replace(ends, status=EndsStatus.FLAKY, reason=reason)
    if wanted:
        return replace(ends, wanted=wanted, reason="does the failure come back?")
    reason = f"the bad end fails in {len(bad)} of {len(bad)} runs ({first.outcome.reason}), the good end never"
    return replace(ends, status=EndsStatus.SEPARATED, repeats_bitwise=True, reason=reason)


# ---- values decide ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Replicates:
    """Values of distinct seeds (copies left out), signed so that larger is worse, by seed index; and bitwise facts."""

    good: dict[int, float]
    bad: dict[int, float]
    good_digests: dict[int, str]
    bad_digests: dict[int, str]
    repeats_bitwise: bool | None
    are_seeds_inert: bool


def _prove_values(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    failed = next((run for run in [*good, *bad] if run.outcome.kind is not OutcomeKind.MEASURED), None)
    if failed is not None:
        status = EndsStatus.GOOD_UNTESTABLE if failed in good else EndsStatus.FLAKY
        return Ends(status, signature=failed.outcome.signature, reason=f"seed {failed.seed_idx}: {failed.outcome.reason}")
    seen = _replicates(good, bad, rules.metric)
    ends = _ends_of(seen, rules)
    wanted = _missing_runs(good, bad, num_seeds=FIRST_LOOK)
    if wanted:
        return replace(ends, wanted=wanted, reason="how wide is the metric?")
    if seen.repeats_bitwise and _are_all_equal(seen):
        return replace(ends, status=EndsStatus.SAME, reason="both ends are bitwise equal on every seed", bound=0.0)
    if seen.are_seeds_inert:
        return _prove_without_spread(seen, ends, rules)
    return _prove_by_looks(good, bad, seen, rules)


def _replicates(good: Sequence[Observation], bad: Sequence[Observation], metric: Metric) -> _Replicates:
    values: list[dict[int, float]] = []
    digests: list[dict[int, str]] = []
    num_copies = 0
    for runs in (good, bad):
        first_runs = {run.seed_idx: run for run in runs if run.repeat == 0}
        digest_of_seed = {idx: run.outcome.digest for idx, run in sorted(first_runs.items())}
        origin = digest_of_seed.get(0, "")
        copies = {idx for idx, digest in digest_of_seed.items() if idx > 0 and digest and digest == origin}
        num_copies += len(copies)
        kept = {idx: run for idx, run in sorted(first_runs.items()) if idx not in copies}
        values.append({idx: worsening(run.outcome.value or 0.0, metric) for idx, run in kept.items()})
        digests.append(digest_of_seed)
    num_other_seeds = sum(len(digest_of_seed) - 1 for digest_of_seed in digests)
    return _Replicates(
        values[0], values[1], digests[0], digests[1], _repeats_bitwise(good, bad), 0 < num_other_seeds == num_copies
    )


def _repeats_bitwise(good: Sequence[Observation], bad: Sequence[Observation]) -> bool | None:
    answers = []
    for runs in (good, bad):
        first, again = _run_of(runs, 0, 0), _run_of(runs, 0, 1)
        if first is None or again is None:
            return None
        answers.append(bool(first.outcome.digest) and first.outcome.digest == again.outcome.digest)
    return all(answers)


def _are_all_equal(seen: _Replicates) -> bool:
    shared = seen.good_digests.keys() & seen.bad_digests.keys()
    return bool(shared) and all(seen.good_digests[idx] == seen.bad_digests[idx] != "" for idx in shared)


def _missing_runs(good: Sequence[Observation], bad: Sequence[Observation], *, num_seeds: int) -> tuple[EndRun, ...]:
    plan = [(0, 0), (0, 1), *((idx, 0) for idx in range(1, num_seeds))]
    return tuple(
        EndRun(is_bad, seed_idx, repeat)
        for seed_idx, repeat in plan
        for is_bad, runs in ((False, good), (True, bad))
        if _run_of(runs, seed_idx, repeat) is None
    )


def _prove_without_spread(seen: _Replicates, ends: Ends, rules: EndRules) -> Ends:
    """No seed changes anything: the spread of harmless changes is declared, not measured, and the gap must dwarf it."""
    good_value = next(iter(seen.good.values()))
    smallest = rules.min_effect if rules.min_effect is not None else INERT_EFFECT_SHARE * abs(good_value)
    gap, spread = ends.gap, smallest / 2.0
    declared = f"seeds change nothing; differences under {smallest:.3g} are taken as harmless (--min-effect sets it)"
    ends = replace(ends, spread=spread, min_effect=smallest, bound=gap, reason=declared)
    is_far = abs(gap) >= FAR_GAP_SD * spread or rules.min_effect is not None
    if rules.any_change:
        return replace(ends, status=EndsStatus.SEPARATED, criterion=Criterion.EXACT, reason="the bits differ")
    if gap < smallest:
        return replace(ends, status=EndsStatus.BETTER if gap <= -smallest and is_far else EndsStatus.SAME)
    return replace(ends, status=EndsStatus.SEPARATED if is_far else EndsStatus.UNCLEAR)


def _prove_by_looks(good: Sequence[Observation], bad: Sequence[Observation], seen: _Replicates, rules: EndRules) -> Ends:
    ends = _ends_of(seen, rules)
    num = min(len(seen.good), len(seen.bad))
    sign = -1.0 if rules.any_change and ends.gap < 0 else 1.0
    low, high = ([sign * v for v in group.values()] for group in (seen.good, seen.bad))
    p_value = _look_p(low, high, ends.spread)
    if p_value is not None and sign * ends.gap >= ends.min_effect:
        reason = f"{num} + {num} seeds lie {sign * ends.gap / ends.spread:.1f} seed sd apart" if ends.spread else "no overlap"
        return replace(ends, status=EndsStatus.SEPARATED, p_value=p_value, reason=reason)
    if -sign * ends.gap >= ends.min_effect and _look_p([-v for v in low], [-v for v in high], ends.spread) is not None:
        return replace(ends, status=EndsStatus.BETTER, reason="the bad end is better than the good end")
    ends = replace(ends, bound=_bound_of(seen))
    is_bounded = ends.bound is not None and ends.bound < ends.min_effect
    if num >= SECOND_LOOK and is_bounded and not rules.any_change:
        return replace(ends, status=EndsStatus.SAME, reason="no worsening that counts")
    wanted = _runs_of_next_look(good, bad, seen, max_seeds=max(FIRST_LOOK, rules.max_seeds))
    if wanted:
        return replace(ends, wanted=wanted, reason="more seeds are needed")
    if rules.any_change and seen.repeats_bitwise:
        return replace(ends, status=EndsStatus.SEPARATED, criterion=Criterion.EXACT, reason="the bits differ")
    return replace(ends, status=EndsStatus.UNCLEAR, reason="the ends do not separate")


def _runs_of_next_look(
    good: Sequence[Observation], bad: Sequence[Observation], seen: _Replicates, *, max_seeds: int
) -> tuple[EndRun, ...]:
    num = min(len(seen.good), len(seen.bad))
    next_look = next((look for look in (SECOND_LOOK, 8, max_seeds) if num < look <= max_seeds), None)
    if next_look is None:
        return ()
    num_copies = max(len(seen.good_digests) - len(seen.good), len(seen.bad_digests) - len(seen.bad))
    return _missing_runs(good, bad, num_seeds=min(next_look + num_copies, 2 * max_seeds))


def _look_p(low: list[float], high: list[float], spread: float) -> float | None:
    """Return the p value if a look at these values separates them (high is worse), else None."""
    num = min(len(low), len(high))
    gap = summarise(high).mean - summarise(low).mean
    if num >= FIRST_LOOK:
        if spread == 0.0 and gap > 0:
            return 0.0
        statistic = gap / (spread * (1 / len(low) + 1 / len(high)) ** 0.5) if spread else 0.0
        p_value = t_upper_tail(statistic, len(low) + len(high) - 2)
        if gap >= FAR_GAP_SD * spread > 0 and p_value <= FAR_LEVEL:
            return p_value
    if num < SECOND_LOOK:
        return None
    level = LEVEL_OF_LOOK[5] if num < 8 else LEVEL_OF_LOOK[8]
    p_value = permutation_p(low[:8], high[:8]) if num <= 8 else permutation_p(low[:10], high[:10])
    return p_value if p_value <= level else None


def _bound_of(seen: _Replicates) -> float | None:
    shared = sorted(seen.good.keys() & seen.bad.keys())
    if len(shared) < 2:
        return None
    return upper_bound_paired([seen.good[idx] for idx in shared], [seen.bad[idx] for idx in shared])


def _ends_of(seen: _Replicates, rules: EndRules) -> Ends:
    """Return the open state with everything that the values seen so far give."""
    good, bad = summarise(list(seen.good.values())), summarise(list(seen.bad.values()))
    spread, _ = pooled_sd([list(seen.good.values()), list(seen.bad.values())])
    # default: one seed standard deviation of the good end
    min_effect = rules.min_effect if rules.min_effect is not None else good.sd
    return Ends(
        EndsStatus.OPEN,
        criterion=Criterion.STATISTICAL,
        repeats_bitwise=seen.repeats_bitwise,
        good=_unsigned(good, rules.metric),
        bad=_unsigned(bad, rules.metric),
        spread=spread,
        gap=bad.mean - good.mean,
        min_effect=min_effect,
        good_digests=seen.good_digests,
        bad_digests=seen.bad_digests,
        are_seeds_inert=seen.are_seeds_inert,
    )


def _unsigned(summary: Summary, metric: Metric) -> Summary:
    return Summary(worsening(summary.mean, metric), summary.sd, summary.num)
