"""What the runs of one variant say about it, in nats: ln P(runs | BAD) - ln P(runs | GOOD).

Values: the mean of a variant's n runs is compared with what a GOOD and a BAD variant would show,

    y | side ~ (1 - e) t_nu(m_side, s_side^2 / n + s_side^2 / n_side + tau^2) + e Uniform(range)

with the unknown mean of the side integrated out (s^2 / n_side), an offset of the variant's own that repeating it cannot
average away (tau), and a share e of outliers, so that a value unlike both ends says nothing (OTHER). Of three runs or more,
one that is far from its siblings is left out of the mean. A mean beyond an end (worse than the bad one, say) speaks for that
end: a later change may make up for part of it. Where seeds move all variants alike, their effects are taken off first.

Where runs repeat bitwise, a run equal to one end on the same seed counts as ln 1000. No single run weighs more than that.
Under the exact criterion a run whose other signals differ, but whose metric is that of one end to the last digit, counts as
ln 20, if the metric is fine enough: nearly every seed of each end, three at least, shows a value of its own.
A run equal to neither end is judged by the seed spread, never by which end is nearer.

A run that was stopped early by the test of its curve (`core.early`) counts as the nats that the test gave, beside the mean of
the others; all such runs of one variant together as ln 1000 at most, for they share its offset.

Failures weigh ln 100 a run where they always come back, else as beta-binomial counts with the rates that the ends showed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from scipy import special

from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion, Evidence, VerdictKind
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Observation, OutcomeKind, is_blind
from bisect_train.verdict.pairing import without_seed_effects
from bisect_train.verdict.replicates import worsening
from bisect_train.verdict.stats import summarise, t_density

MAX_NATS = math.log(1000.0)
DECISIVE_NATS = math.log(20.0)
OUTLIER_SHARE = 0.02
OUTLIER_SD = 5.0  # seed standard deviations from its siblings' median
OFFSET_SD = 0.5  # tau in units of the seed standard deviation
BEYOND_NATS = math.log(20.0)  # a variant beyond an end, if not too far: a later change makes up for part of it
BEYOND_GAPS, BEYOND_SD = 2.0, 10.0  # how far, the larger of both
SYMPTOM_NATS = math.log(100.0)
METRIC_NATS = math.log(20.0)
MIN_DISTINCT_VALUES = 3
MIN_DISTINCT_LEVELS = 20  # an equal value then comes by chance in 1 of 20 runs, which is what METRIC_NATS says of it
GOOD_RATE_PRIOR = (0.5, 3.0)  # Beta prior of the failure rate of the GOOD side: failures, passes
BAD_RATE_PRIOR = (1.5, 0.5)
DISTINCT_SHARE = 0.8  # of the seeds of an end that must show a value of their own


def judge_variant(runs: Sequence[Observation], ends: Ends, metric: Metric) -> Evidence:
    """Return what all runs of one variant say.

    Args:
        runs: at least one observation of the same variant.
        ends: the proof of the ends, SEPARATED.
        metric: the primary metric.
    """
    runs = sorted(runs, key=lambda run: (run.attempt, run.seed_idx, run.repeat))
    if ends.criterion in (Criterion.SYMPTOM, Criterion.JUDGE):
        return _judge_by_symptom(runs, ends)
    early = [run for run in runs if run.outcome.kind is OutcomeKind.EARLY]
    whole = [run for run in runs if run.outcome.kind is not OutcomeKind.EARLY]
    by_whole = _judge_whole(whole, ends, metric) if whole else None
    if early or by_whole is None:
        return _judge_with_curves(early, by_whole)
    return by_whole


def _judge_with_curves(early: Sequence[Observation], by_whole: Evidence | None) -> Evidence:
    """Return what runs that were stopped by their curves say, at least one, together with what the others do."""
    nats = math.fsum(max(-MAX_NATS, min(MAX_NATS, run.outcome.nats)) for run in early)
    num_runs, total = len(early), max(-MAX_NATS, min(MAX_NATS, nats))
    if by_whole is not None and by_whole.verdict is not VerdictKind.UNTESTABLE:
        num_runs, total = num_runs + by_whole.num_runs, total + by_whole.nats
    if abs(total) < DECISIVE_NATS:
        return Evidence(VerdictKind.INCONCLUSIVE, total, num_runs, "its runs contradict each other")
    kind = VerdictKind.BAD if total > 0 else VerdictKind.GOOD
    if by_whole is not None and by_whole.verdict is kind:
        return Evidence(kind, total, num_runs, by_whole.reason)
    return Evidence(kind, total, num_runs, f"its curve is the {kind.value} end's")


def _judge_whole(runs: Sequence[Observation], ends: Ends, metric: Metric) -> Evidence:
    """Return what runs that were not stopped by their curves say, at least one."""
    measured = [run for run in runs if run.outcome.kind is OutcomeKind.MEASURED]
    if not measured:
        return Evidence(VerdictKind.UNTESTABLE, reason=runs[0].outcome.reason, num_runs=len(runs))
    exact = [nats for run in measured if (nats := _exact_nats(run, ends)) != 0.0]
    rest = [run for run in measured if _exact_nats(run, ends) == 0.0]
    if ends.criterion is Criterion.EXACT:
        equal = [nats for run in rest if (nats := metric_nats(run, ends, metric)) != 0.0]
        what = "bitwise equal" if exact or not equal else f"its {metric.name} is equal to the last digit"
        return _judge_by_bits([*exact, *equal], len(measured), what=what)
    by_value = _judge_by_value(*without_seed_effects(rest, ends, metric), metric) if rest else None
    if not exact:
        assert by_value is not None
        return by_value
    # runs that are not bitwise equal to an end may contradict those that are (a stale cache lies): they count too
    return _judge_by_bits(exact, len(measured), nats_of_rest=by_value.nats if by_value else 0.0)


def _judge_by_bits(
    exact: Sequence[float], num_runs: int, *, nats_of_rest: float = 0.0, what: str = "bitwise equal"
) -> Evidence:
    if not exact:
        return Evidence(VerdictKind.OTHER, 0.0, num_runs, "bitwise equal to neither end")
    total = math.fsum([*exact, nats_of_rest])
    if abs(total) < DECISIVE_NATS:
        return Evidence(VerdictKind.INCONCLUSIVE, total, num_runs, "its runs contradict each other")
    kind = VerdictKind.BAD if total > 0 else VerdictKind.GOOD
    has_its_bits = math.fsum(exact) * total > 0
    reason = f"{what} to the {kind.value} end" if has_its_bits else "its values outweigh its bits"
    return Evidence(kind, total, num_runs, reason)


def _exact_nats(run: Observation, ends: Ends) -> float:
    digest = run.outcome.digest
    if not ends.repeats_bitwise or not digest:
        return 0.0
    seed_idx = 0 if ends.are_seeds_inert else run.seed_idx
    if seed_idx not in ends.good_digests or seed_idx not in ends.bad_digests:
        return 0.0  # on this seed the other end may show the same
    is_good, is_bad = digest == ends.good_digests[seed_idx], digest == ends.bad_digests[seed_idx]
    return 0.0 if is_good == is_bad else MAX_NATS if is_bad else -MAX_NATS


def metric_nats(run: Observation, ends: Ends, metric: Metric) -> float:
    """Return what equality of the metric alone says: +-ln 20 if it is that of one end on this seed and not the other's."""
    if run.outcome.value is None or not is_metric_fine(ends):
        return 0.0
    if run.seed_idx not in ends.good_values or run.seed_idx not in ends.bad_values:
        return 0.0
    value = worsening(run.outcome.value, metric)
    is_good, is_bad = value == ends.good_values[run.seed_idx], value == ends.bad_values[run.seed_idx]
    return 0.0 if is_good == is_bad else METRIC_NATS if is_bad else -METRIC_NATS


def is_metric_fine(ends: Ends) -> bool:
    """Return whether equal values of the metric mean something: hardly a value comes twice among the seeds of an end.

    Nor could one by rounding: the seeds lie MIN_DISTINCT_LEVELS of the smallest difference apart that can be written.
    """
    groups = (ends.good_values.values(), ends.bad_values.values())
    num_distinct = [len(set(group)) for group in groups]
    is_fine = all(num >= DISTINCT_SHARE * len(group) for num, group in zip(num_distinct, groups, strict=True))
    if not (ends.repeats_bitwise and is_fine and min(num_distinct) >= MIN_DISTINCT_VALUES):
        return False
    return all(max(group) - min(group) >= MIN_DISTINCT_LEVELS * ends.unit for group in groups)


def failures_and_passes(runs: Sequence[Observation], ends: Ends) -> tuple[int, int]:
    """Return how many runs end as the bad end does, and how many end well; others say nothing."""
    num_bad = sum(run.outcome.signature == ends.signature for run in runs)
    ran_well = [run.outcome for run in runs if run.outcome.kind in (OutcomeKind.MEASURED, OutcomeKind.NO_METRIC)]
    return num_bad, sum(not is_blind(outcome, ends.signature) for outcome in ran_well)


def _judge_by_symptom(runs: Sequence[Observation], ends: Ends) -> Evidence:
    num_bad, num_good = failures_and_passes(runs, ends)
    if num_bad + num_good == 0:
        return Evidence(VerdictKind.UNTESTABLE, reason=runs[0].outcome.reason, num_runs=len(runs))
    nats = _nats_of_rates(num_bad, num_good, ends) if ends.is_flaky else SYMPTOM_NATS * (num_bad - num_good)
    if abs(nats) < DECISIVE_NATS:
        return Evidence(VerdictKind.INCONCLUSIVE, 0.0, len(runs), f"fails in {num_bad} of {num_bad + num_good} runs")
    kind = VerdictKind.BAD if nats > 0 else VerdictKind.GOOD
    reason = "ends as the bad end does" if nats > 0 else "does not fail"
    if num_bad and num_good:
        reason = f"fails in {num_bad} of {num_bad + num_good} runs"
    return Evidence(kind, nats, num_bad + num_good, reason)


def _nats_of_rates(num_failed: int, num_passed: int, ends: Ends) -> float:
    """Return what failures and passes of one variant say, its own rate unknown but like those that the ends showed."""
    marginals = []
    for (fails, passes), prior in ((ends.bad_counts, BAD_RATE_PRIOR), (ends.good_counts, GOOD_RATE_PRIOR)):
        a, b = prior[0] + fails, prior[1] + passes
        marginals.append(float(special.betaln(a + num_failed, b + num_passed) - special.betaln(a, b)))
    limit = MAX_NATS * (num_failed + num_passed)
    return max(-limit, min(limit, marginals[0] - marginals[1]))


def _judge_by_value(values: list[float], ends: Ends, metric: Metric) -> Evidence:
    values = _without_outliers(values, ends)
    mean, num = summarise(values).mean, len(values)
    densities = [_density_of_side(mean, num, ends, metric, is_bad=is_bad) for is_bad in (True, False)]
    nats = math.log(densities[0]) - math.log(densities[1])
    nats = max(-MAX_NATS * num, min(MAX_NATS * num, nats))
    if beyond := _is_beyond(mean, ends, metric):
        nats = beyond * max(abs(nats), BEYOND_NATS)
    shown = worsening(mean, metric)
    if abs(nats) >= DECISIVE_NATS:
        kind = VerdictKind.BAD if nats > 0 else VerdictKind.GOOD
        is_far = abs(nats) <= BEYOND_NATS and beyond
        far = f"even {'worse' if kind is VerdictKind.BAD else 'better'} than at the {kind.value} end"
        said = far if is_far else f"what a {kind.value} run shows"
        return Evidence(kind, nats, num, f"{metric.name} {shown:.6g} is {said}")
    is_unlike_both = max(densities) < 2.0 * OUTLIER_SHARE / _range_of(ends)
    kind = VerdictKind.OTHER if is_unlike_both else VerdictKind.INCONCLUSIVE
    return Evidence(kind, nats, num, f"{metric.name} {shown:.6g} decides nothing")


def _is_beyond(mean: float, ends: Ends, metric: Metric) -> int:
    """Return 1 where a variant is worse than the bad end, -1 where it is better than the good end, as the ends lie; else 0."""
    assert ends.good is not None and ends.bad is not None
    good, bad = worsening(ends.good.mean, metric), worsening(ends.bad.mean, metric)
    sign = 1 if bad >= good else -1
    reach = max(BEYOND_GAPS * abs(bad - good), BEYOND_SD * ends.spread)
    return 1 if 0 <= sign * (mean - bad) <= reach else -1 if 0 <= sign * (good - mean) <= reach else 0


def _without_outliers(values: list[float], ends: Ends) -> list[float]:
    """Return the values near their own median: of three runs or more, one that lies far from its siblings is left out.

    Which end it resembles plays no part, so this favours neither side.
    """
    if len(values) < 3 or ends.spread == 0.0:
        return values
    assert ends.good is not None and ends.bad is not None
    reach = OUTLIER_SD * max(ends.spread, ends.good.sd, ends.bad.sd)
    middle = median(values)
    return [value for value in values if abs(value - middle) <= reach] or values


def _density_of_side(mean: float, num: int, ends: Ends, metric: Metric, *, is_bad: bool) -> float:
    """Return the predictive density of a variant's mean value if it belongs to one side."""
    side = ends.bad if is_bad else ends.good
    assert side is not None
    sd = _sd_of_side(side.sd, side.num, ends)
    tau = max(OFFSET_SD * ends.spread, ends.min_effect / 2.0)
    scale = math.sqrt(sd * sd * (1.0 / num + 1.0 / side.num) + tau * tau) or 1e-12
    dof = min(30, max(3, (ends.good.num if ends.good else 1) + (ends.bad.num if ends.bad else 1) - 2))
    inlier = t_density((mean - worsening(side.mean, metric)) / scale, dof) / scale
    return (1.0 - OUTLIER_SHARE) * inlier + OUTLIER_SHARE / _range_of(ends)


def _sd_of_side(sd: float, num: int, ends: Ends) -> float:
    """Return the side's own spread, shrunk towards the pooled one as if four more runs had shown that."""
    weight = 4.0
    return math.sqrt((weight * ends.spread**2 + (num - 1) * sd**2) / (weight + num - 1)) or ends.spread


def _range_of(ends: Ends) -> float:
    """Return the width over which an outlier could lie: several gaps, several spreads."""
    return 4.0 * abs(ends.gap) + 20.0 * ends.spread or 1e-9
