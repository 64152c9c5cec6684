"""The proof of the ends: do the good end and the bad end differ, in which way, and by how much more than chance?

Two kinds of replicate: the same seed again (does a run repeat bitwise?) and other seeds, the same at both ends (how wide is
the metric?). Looks and their error, together about 1 %; p counts twice where a change for the better counts too:

    every look    the gap is >= 10 pooled sd and t p <= 0.0005   "far more than any seed could explain"
    5 + 5 seeds   permutation p <= 1/252                         (complete separation)
    8 + 8 seeds   permutation p <= 0.0025, or, where seeds move both ends alike, sign-flip p of the pairs <= 1/256
    max seeds     permutation p <= 0.0025, when more than 8 were allowed

On a ladder of several rungs all of these levels are multiplied by the rung's share of the error, and every look but the first
takes one more seed for each halving, which is what complete separation, or pairs that all agree, need to reach it.

A look takes the first n seeds of each end, and the first look that decides is final: what comes in later, or in another
order, changes nothing. "No worsening" has an error of its own, 5 % over its looks (0.01 at 5 seeds, the rest at the last).

Where the bad end fails (crash, out-of-memory, timeout, non-finite metric) or a command judges, see `failing_ends`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import EndRules, EndRun, Ends, EndsStatus
from bisect_train.verdict.failing_ends import NUM_SYMPTOM_SEEDS, find_untestable, prove_failing
from bisect_train.verdict.outcome import Observation, OutcomeKind
from bisect_train.verdict.pairing import MIN_PAIRS, differences_of, paired, with_pairs
from bisect_train.verdict.replicates import Replicates, are_all_equal, order_of, replicates_of, run_of, worsening
from bisect_train.verdict.stats import (
    MAX_FLIPS,
    Summary,
    permutation_p,
    pooled_sd,
    sign_flip_p,
    summarise,
    t_upper_tail,
    typical_sd,
    upper_bound_paired,
)
from bisect_train.verdict.step_costs import MAX_DEFAULT_PERCENT, say_too_noisy

FAR_GAP_SD = 10.0  # "far more than any seed could explain": pooled sd that 3 + 3 seeds must lie apart
FAR_LEVEL = 0.0005
FIRST_LOOK, SECOND_LOOK, THIRD_LOOK = 3, 5, 8
SECOND_LEVEL, THIRD_LEVEL = 1.0 / 252.0 + 1e-9, 0.0025
PAIRED_LEVEL = 1.0 / 256.0 + 1e-9
SAME_ERROR, SAME_ERROR_EARLY = 0.05, 0.01  # of "no worsening that counts": in all, and at each look before the last
NUM_TRIES = 2  # seeds of a good end that must fail before it is given up
MAX_ACCIDENTS = 0.25  # of an end's runs that may fail while values decide; one always may
INERT_EFFECT_SHARE = 0.01  # without any seed spread, differences under 1 % of the good value count as harmless


def prove_ends(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    """Return what the runs of both ends show so far, and which runs are needed next.

    Args:
        good, bad: observations of the two ends outside any proof of an answer, in any order.
        rules: what was asked.
    """
    first_good, first_bad = run_of(good, 0, 0), run_of(bad, 0, 0)
    missing = [EndRun(is_bad, 0) for is_bad, run in ((False, first_good), (True, first_bad)) if run is None]
    if first_good is not None and (broken := _untestable_good(good, bad, rules)):
        return broken
    if first_bad is not None and first_bad.outcome.kind is OutcomeKind.UNTESTABLE:
        return Ends(EndsStatus.BAD_UNTESTABLE, reason=first_bad.outcome.reason)
    if first_good is None or first_bad is None:
        return Ends(EndsStatus.OPEN, wanted=(*missing, *_early_repeat(good, bad, rules)), reason="running both ends")
    kinds = (first_good.outcome.kind, first_bad.outcome.kind)
    if OutcomeKind.UNSEEN in kinds:
        return _report_no_metric(first_good, first_bad, rules)
    if rules.has_judge or rules.criterion is not Criterion.AUTO:
        is_failing = first_bad.outcome.kind is OutcomeKind.FAILED or rules.has_judge or rules.criterion is Criterion.SYMPTOM
        return prove_failing(good, bad, rules) if is_failing else _prove_metric(good, bad, rules)
    return _prove_either(good, bad, rules)


def _prove_metric(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    first_good, first_bad = run_of(good, 0, 0), run_of(bad, 0, 0)
    assert first_good is not None and first_bad is not None
    if OutcomeKind.NO_METRIC in (first_good.outcome.kind, first_bad.outcome.kind):
        return _report_no_metric(first_good, first_bad, rules)
    return _prove_values(good, bad, rules)


def _prove_either(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    """Nothing was asked for: a failure decides if the bad end's first run fails, else values; the other one if that fails."""
    num_failed = sum(run.outcome.kind is OutcomeKind.FAILED for run in bad)
    first_bad = run_of(bad, 0, 0)
    assert first_bad is not None
    if first_bad.outcome.kind is OutcomeKind.FAILED:
        ends = prove_failing(good, bad, rules)
        num_measured = min(sum(run.outcome.kind is OutcomeKind.MEASURED for run in runs) for runs in (good, bad))
        is_rare = not is_often(num_failed, len(bad)) and num_measured > FIRST_LOOK
        if ends.status is not EndsStatus.FLAKY or not is_rare:
            return ends
        by_value = _prove_values(good, bad, rules)  # an accident at the first seed must not hide that the values differ
        return by_value if by_value.status in (EndsStatus.OPEN, EndsStatus.SEPARATED, EndsStatus.BETTER) else ends
    ends = _prove_metric(good, bad, rules)
    if num_failed and ends.status in (EndsStatus.SAME, EndsStatus.UNCLEAR, EndsStatus.FLAKY):
        return prove_failing(good, bad, rules)
    return ends


def _untestable_good(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends | None:
    """Return the answer if the good end cannot be run, or is no good end: it fails, not only by chance."""
    first, first_bad = run_of(good, 0, 0), run_of(bad, 0, 0)
    assert first is not None
    kind, signature = first.outcome.kind, first.outcome.signature
    if kind is OutcomeKind.UNTESTABLE:
        return Ends(EndsStatus.GOOD_UNTESTABLE, reason=first.outcome.reason)
    if kind is not OutcomeKind.FAILED:
        return None
    said = "the judging command calls it bad" if rules.has_judge else first.outcome.reason
    broken = Ends(EndsStatus.GOOD_UNTESTABLE, signature=signature, reason=said)
    if first_bad is None:
        return Ends(EndsStatus.OPEN, wanted=(EndRun(True, 0),), signature=signature, reason="does the bad end fail too?")
    # an accident of the machine, or a failure that comes and goes, may have met the good end by chance
    is_alike = first_bad.outcome.signature == signature or rules.has_judge
    others = [run_of(good, seed_idx, 0) for seed_idx in range(1, NUM_SYMPTOM_SEEDS if is_alike else NUM_TRIES)]
    if not all(run is None or run.outcome.signature == signature for run in others):
        return None
    missing = tuple(EndRun(False, idx) for idx, run in enumerate(others, start=1) if run is None)
    return (
        Ends(EndsStatus.OPEN, wanted=missing, signature=signature, reason="does the good end always fail?")
        if missing
        else broken
    )


def is_often(num_failed: int, num_runs: int) -> bool:
    """Return whether so many runs of one variant failed that these are no accidents of the machine."""
    return num_failed > max(1.0, MAX_ACCIDENTS * num_runs)


def _report_no_metric(good: Observation, bad: Observation, rules: EndRules) -> Ends:
    """Return what it means that at least one end ran well without showing the metric, or without the recorder."""
    name = rules.metric.name
    blind = (OutcomeKind.NO_METRIC, OutcomeKind.UNSEEN)
    if good.outcome.kind in blind and bad.outcome.kind in blind:
        unseen = next((run.outcome.reason for run in (good, bad) if run.outcome.kind is OutcomeKind.UNSEEN), "")
        unseen = unseen or good.outcome.reason.partition(" was seen: ")[2]
        reason = f"no value of {name} was seen at either end"
        return Ends(EndsStatus.NO_METRIC, reason=f"{reason}: {unseen}" if unseen else reason)
    status, run, which = (
        (EndsStatus.GOOD_UNTESTABLE, good, "good") if good.outcome.kind in blind else (EndsStatus.BAD_UNTESTABLE, bad, "bad")
    )
    note = run.outcome.reason.partition(" was seen: ")[2]
    unseen = f"no value of {name} was seen at the {which} end{f': {note}' if note else ''}"
    said = run.outcome.reason if run.outcome.kind is OutcomeKind.UNSEEN else unseen
    return Ends(status, reason=said)


# ---- values decide ------------------------------------------------------------------------------------------------


def _prove_values(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    if broken := _find_broken(good, bad):
        return broken
    seen = replicates_of(good, bad, rules.metric)
    if rules.repeats_known and seen.repeats_bitwise is None:
        seen = replace(seen, repeats_bitwise=True)
    ends = replace(_ends_of(seen, rules), unit=max(run.outcome.unit for run in (*good, *bad)))
    wanted = _missing_runs(good, bad, rules, num_good=FIRST_LOOK, num_bad=FIRST_LOOK)
    if wanted:
        return replace(ends, wanted=wanted, reason="how wide is the metric?")
    if seen.repeats_bitwise and are_all_equal(seen):
        return replace(ends, status=EndsStatus.SAME, reason="both ends are bitwise equal on every seed", bound=0.0)
    if rules.criterion is Criterion.EXACT:
        return _prove_bits(ends)
    if seen.are_seeds_inert:
        return _prove_without_spread(seen, ends, rules)
    return _prove_by_looks(good, bad, seen, rules)


def _find_broken(good: Sequence[Observation], bad: Sequence[Observation]) -> Ends | None:
    """Return the answer when runs of an end fail too often to be left out as accidents of the machine."""
    if broken := find_untestable(good, bad):
        return broken
    for status, runs in ((EndsStatus.GOOD_UNTESTABLE, good), (EndsStatus.FLAKY, bad)):
        failed = [run for run in sorted(runs, key=order_of) if run.outcome.kind is not OutcomeKind.MEASURED]
        if is_often(len(failed), len(runs)):
            first = failed[0]
            return Ends(status, signature=first.outcome.signature, reason=f"seed {first.seed_idx}: {first.outcome.reason}")
    return None


def _missing_runs(
    good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules, *, num_good: int, num_bad: int
) -> tuple[EndRun, ...]:
    """Return what is missing of the first seeds of both ends and of the repeats of seed 0, seed by seed; costs never repeat."""
    repeats = [] if rules.repeats_known or rules.metric.is_paired else [(0, 1)]
    plan = [(0, 0), *repeats, *((idx, 0) for idx in range(1, max(num_good, num_bad)))]
    return tuple(
        EndRun(is_bad, seed_idx, repeat)
        for seed_idx, repeat in plan
        for is_bad, runs, num in ((False, good, num_good), (True, bad, num_bad))
        if seed_idx < num and run_of(runs, seed_idx, repeat) is None
    )


def _early_repeat(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> list[EndRun]:
    """Return the repeat of the end that has run, for a worker that would wait for the other end's first run otherwise."""
    if rules.repeats_known or rules.metric.is_paired or rules.has_judge or rules.criterion is Criterion.SYMPTOM:
        return []
    return [
        EndRun(is_bad, 0, 1)
        for is_bad, runs in ((False, good), (True, bad))
        if (first := run_of(runs, 0, 0)) and first.outcome.kind is OutcomeKind.MEASURED and run_of(runs, 0, 1) is None
    ]


def _prove_bits(ends: Ends) -> Ends:
    """Any difference in the bits is what counts: the ends differ on some seed, and each must repeat itself."""
    if not ends.repeats_bitwise:
        return replace(ends, status=EndsStatus.UNCLEAR, reason="the same run does not repeat bitwise, so bits decide nothing")
    return replace(ends, status=EndsStatus.SEPARATED, criterion=Criterion.EXACT, reason="the bits differ")


def _prove_without_spread(seen: Replicates, ends: Ends, rules: EndRules) -> Ends:
    """No seed changes anything: what no harmless change makes must be declared; chance cannot be told from an effect."""
    good_value = next(iter(seen.good.values()))
    smallest = rules.min_effect if rules.min_effect is not None else INERT_EFFECT_SHARE * abs(good_value)
    gap, spread = ends.gap, smallest / 2.0
    declared = f"seeds change nothing; differences under {smallest:.3g} are taken as harmless (--min-effect sets it)"
    ends = replace(ends, spread=spread, min_effect=smallest, bound=gap, reason=declared)
    if rules.any_change and seen.repeats_bitwise:
        return _prove_bits(ends)
    if rules.min_effect is None and gap >= smallest:
        reason = (
            f"every seed gives the same run, so chance cannot be told from an effect (the bad end is worse by {gap:.3g}): "
            "say with --min-effect X which worsening no harmless change makes"
        )
        return replace(ends, status=EndsStatus.UNCLEAR, reason=reason)
    if gap <= 0.0 or gap < smallest:
        is_better = gap < 0.0 and gap <= -smallest
        return replace(ends, status=EndsStatus.BETTER if is_better else EndsStatus.SAME)
    return replace(ends, status=EndsStatus.SEPARATED)


def _prove_by_looks(good: Sequence[Observation], bad: Sequence[Observation], seen: Replicates, rules: EndRules) -> Ends:
    looks = _looks_of(rules)
    for look in looks:
        wanted = _runs_of_look(good, bad, seen, look, rules, max_seeds=2 * looks[-1])
        if wanted:
            return replace(_ends_of(seen, rules), wanted=wanted, reason="more seeds are needed")
        ends = _look_at(seen.first(look), rules, same_error=_same_error(look, looks))
        if ends.status is not EndsStatus.OPEN:
            return ends
    if rules.any_change and ends.repeats_bitwise:
        return _prove_bits(ends)
    if rules.metric.is_paired:
        num_pairs = min(len(ends.good_values), len(ends.bad_values))
        reason = say_too_noisy(rules.metric, gap=ends.gap, spread=ends.spread, num_pairs=num_pairs, any_change=rules.any_change)
        return replace(ends, status=EndsStatus.UNCLEAR, reason=reason)
    return replace(ends, status=EndsStatus.UNCLEAR, reason="the ends do not separate")


def _looks_of(rules: EndRules) -> list[int]:
    more = _num_more(rules)
    max_seeds = max(FIRST_LOOK, rules.max_seeds + (more if rules.max_seeds >= THIRD_LOOK else 0))
    return sorted({max_seeds, *(look for look in (FIRST_LOOK, SECOND_LOOK + more, THIRD_LOOK + more) if look <= max_seeds)})


def _num_more(rules: EndRules) -> int:
    """Return how many more seeds a look takes on a rung that may spend only a share of the error: one for each halving."""
    return max(0, math.ceil(-math.log2(rules.level_share) - 1e-9))


def _same_error(look: int, looks: Sequence[int]) -> float:
    """Return the error that a look may spend on "no worsening that counts"; all looks together spend SAME_ERROR.

    Only the last rung of a ladder says so, so its rungs share nothing of it.
    """
    if look < looks[-1]:
        return SAME_ERROR_EARLY if look >= SECOND_LOOK else 0.0
    return SAME_ERROR - SAME_ERROR_EARLY * sum(early >= SECOND_LOOK for early in looks[:-1])


def _look_at(part: Replicates, rules: EndRules, *, same_error: float) -> Ends:
    """Return what the first seeds of both ends show; OPEN when they decide nothing."""
    ends = _ends_of(part, rules)
    sign = -1.0 if rules.any_change and ends.gap < 0 else 1.0
    low, high = ([sign * v for v in group.values()] for group in (part.good, part.bad))
    num_sides = 2 if rules.any_change else 1
    worse = sign * ends.gap
    differences = [sign * value for value in differences_of(part.good, part.bad)]
    look = partial(_look_p, spread=ends.spread, num_sides=num_sides, share=rules.level_share, num_more=_num_more(rules))
    p_value = look(low, high, differences=differences)
    if p_value is not None and worse > 0 and worse >= ends.min_effect:
        reason = f"{len(low)} + {len(high)} seeds lie {worse / ends.spread:.1f} seed sd apart" if ends.spread else "no overlap"
        return with_pairs(replace(ends, status=EndsStatus.SEPARATED, p_value=p_value, reason=reason), rules.metric)
    negated = [[-value for value in group] for group in (low, high, differences)]
    mirrored = look(negated[0], negated[1], differences=negated[2])
    if mirrored is not None and -worse >= ends.min_effect:
        return replace(ends, status=EndsStatus.BETTER, p_value=mirrored, reason="the bad end is better than the good end")
    if same_error == 0.0:
        return ends
    ends = replace(ends, bound=_bound_of(part, level=1.0 - same_error))
    if ends.bound is not None and ends.bound < ends.min_effect and not rules.any_change:
        return replace(ends, status=EndsStatus.SAME, reason="no worsening that counts")
    return ends


def _runs_of_look(
    good: Sequence[Observation], bad: Sequence[Observation], seen: Replicates, look: int, rules: EndRules, *, max_seeds: int
) -> tuple[EndRun, ...]:
    """Return the runs that a look still needs: copies are made up for, but an end without any spread has shown all it can."""
    nums = []
    for values, runs, is_inert in ((seen.good, good, seen.is_good_inert), (seen.bad, bad, seen.is_bad_inert)):
        num_without_value = len({run.seed_idx for run in runs}) - len(values)  # copies, and runs that failed
        nums.append(0 if is_inert or len(values) >= look else min(look + num_without_value, max_seeds))
    return _missing_runs(good, bad, rules, num_good=nums[0], num_bad=nums[1])


def _look_p(
    low: list[float],
    high: list[float],
    *,
    spread: float,
    num_sides: int,
    differences: list[float],
    share: float = 1.0,
    num_more: int = 0,
) -> float | None:
    """Return the p value if a look at these values separates them (high is worse), else None."""
    num = min(len(low), len(high))
    gap = summarise(high).mean - summarise(low).mean
    if gap >= FAR_GAP_SD * spread > 0:
        statistic = gap / (spread * (1 / len(low) + 1 / len(high)) ** 0.5)
        p_value = num_sides * t_upper_tail(statistic, len(low) + len(high) - 2)
        if p_value <= FAR_LEVEL * share:
            return p_value
    second, third = SECOND_LOOK + num_more, THIRD_LOOK + num_more
    if num < second:
        return None
    if num >= third and len(differences) == num <= MAX_FLIPS:
        p_value = num_sides * sign_flip_p(differences)
        return p_value if p_value <= share * (PAIRED_LEVEL if num == third else THIRD_LEVEL) else None
    p_value = num_sides * permutation_p(low, high)
    return p_value if p_value <= share * (SECOND_LEVEL if num < third else THIRD_LEVEL) else None


def _bound_of(seen: Replicates, *, level: float) -> float | None:
    shared = sorted(seen.good.keys() & seen.bad.keys())
    if len(shared) < 2:
        return None
    return upper_bound_paired([seen.good[idx] for idx in shared], [seen.bad[idx] for idx in shared], level=level)


def _ends_of(seen: Replicates, rules: EndRules) -> Ends:
    """Return the open state with everything that the values seen so far give."""
    good, bad = summarise(list(seen.good.values())), summarise(list(seen.bad.values()))
    spread, _ = pooled_sd([list(seen.good.values()), list(seen.bad.values())])
    # default: one seed standard deviation of the good end; an outlier must not make a large worsening count as harmless
    min_effect = rules.min_effect if rules.min_effect is not None else _default_effect(seen, rules.metric)
    return Ends(
        EndsStatus.OPEN,
        criterion=Criterion.STATISTICAL,
        repeats_bitwise=seen.repeats_bitwise,
        good=_unsigned(good, rules.metric),
        bad=_unsigned(bad, rules.metric),
        spread=spread,
        gap=bad.mean - good.mean,
        min_effect=min_effect,
        good_values=seen.good,
        bad_values=seen.bad,
        good_digests=seen.good_digests,
        bad_digests=seen.bad_digests,
        are_seeds_inert=seen.are_seeds_inert,
    )


def _default_effect(seen: Replicates, metric: Metric) -> float:
    """Return the smallest worsening that counts where none was given; a noisy machine does not make a slow step harmless."""
    sd = typical_sd(list(seen.good.values()))
    return min(sd, MAX_DEFAULT_PERCENT) if metric.is_paired else sd


def renewed_ends(ends: Ends, metric: Metric) -> Ends:
    """Return proved ends with means, spread and pairs by all of their values: three seeds that lay close say little of it."""
    if ends.are_seeds_inert:
        return ends
    groups = [list(ends.good_values.values()), list(ends.bad_values.values())]
    good, bad = (summarise(group) for group in groups)
    spread, _ = pooled_sd(groups)
    was_paired, could_not_tell = ends.are_paired, ends.good is not None and ends.good.num < MIN_PAIRS
    ends = replace(ends, good=_unsigned(good, metric), bad=_unsigned(bad, metric), spread=spread, gap=bad.mean - good.mean)
    if was_paired:
        return paired(ends, metric)
    return with_pairs(ends, metric) if could_not_tell else ends  # three seeds cannot tell whether they go together


def _unsigned(summary: Summary, metric: Metric) -> Summary:
    return Summary(worsening(summary.mean, metric), summary.sd, summary.num)
