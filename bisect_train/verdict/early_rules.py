"""When a run of the search may be stopped early, from the runs that proved the ends. Pure.

By bits, where the ends repeat themselves: through the *decisive step*. That the ends' bits part says little: a harmless change
of rounding may part them at step 3 while the regression acts at step 15, and a run that is like the good end until step 5 is
not cleared. So the decisive step is the first one from which on the ends' curves on this seed stay at least half their final
gap apart. Where any difference counts (criterion EXACT) it is the first step at which the bits part.

By the curve, over at least 3 + 3 seeds: mean curves, the shift between them smoothed over 15 steps, and the noise about them as
AR(1). Its coefficient is estimated from the runs; within 4 / K of 1, where a random walk's estimate lies, it is taken as 1. The
noise must then be white (lags 1 to 3) and without spikes, else neither model fits and nothing is stopped.
The shift must be worth d' >= 7 over the whole run: below about 6 the test is wrong in 1 to 20 % of runs (measured, simulation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bisect_train.core.early import (
    PER_STEP_METRICS,
    BitRule,
    CurveRule,
    EarlyRules,
    Shown,
    digest_step,
    steps_of,
    value_of_step,
)
from bisect_train.core.fingerprint import RankRecord, StepRecord
from bisect_train.core.question import Metric, Question
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.evidence import OFFSET_SD

FloatArray = NDArray[np.float64]

DECISIVE_SHARE = 0.5  # of the final gap
MIN_CURVES = 3  # runs of each end
MIN_STEPS = 30  # of a curve that is smoothed over SMOOTH_STEPS
SMOOTH_STEPS = 15
NOISE_STEPS = 31  # over which the noise is taken to be one
MIN_DPRIME = 7.0
WALK_STEPS = 4.0  # K (1 - rho) of a random walk: its estimate lies below 1 by about this much or less
MAX_CORRELATION = 0.05  # of the whitened noise, beyond 3 standard errors
SPIKE_SD, MAX_SPIKES = 4.5, 0.005  # share of the whitened noise that may lie further out
MAX_UNREST = 1.8  # of the means over SMOOTH_STEPS from run to run, in units of what white noise gives; above, it counts
ALIKE_RATIO = 1.5  # of the two ends' noise


@dataclass(frozen=True, slots=True)
class EndCurve:
    """A whole run of an end: what each rank recorded, and what it showed."""

    ranks: tuple[RankRecord, ...]
    shown: Shown


def why_not_early(question: Question) -> str:
    """Return why no run of a bisection may be stopped early, "" where some may be."""
    settings, name = question.settings, question.metric.name
    if not question.limits.early:
        return "--no-early"
    if settings.judge or question.symptom or question.criterion in (Criterion.JUDGE, Criterion.SYMPTOM):
        return "how a run ends decides, or what it leaves behind"
    if settings.restart is not None:
        return "a run that is killed and resumed is about its second part"
    if question.rung.steps is None:
        return "the whole program was asked for: what comes after its last step counts too"
    if name not in PER_STEP_METRICS or any(item.name == name for item in settings.patterns):
        return f"{name} is not what the recorder shows of every step: {', '.join(PER_STEP_METRICS)} are"
    return ""


def make_early_rules(
    good: Mapping[int, EndCurve], bad: Mapping[int, EndCurve], ends: Ends, metric: Metric, *, seed_idx: int
) -> EarlyRules | None:
    """Return when a run with this seed index may be stopped, None where nothing is known that could stop it.

    Args:
        good, bad: whole runs of the ends by seed index, repeats and copies left out.
        ends: their proof.
        metric: one of PER_STEP_METRICS decides.
    """
    runs = [*good.values(), *bad.values()]
    num_ranks = {len(run.ranks) for run in runs}
    if ends.status is not EndsStatus.SEPARATED or len(num_ranks) != 1 or num_ranks == {0}:
        return None
    if ends.criterion not in (Criterion.EXACT, Criterion.STATISTICAL):
        return None
    tables = [{seed: steps_of(run.ranks) for seed, run in side.items()} for side in (good, bad)]
    steps = tuple(sorted(set.intersection(*(set(table) for side in tables for table in side.values()))))
    if len(steps) < 2:
        return None
    of_seed = 0 if ends.are_seeds_inert else seed_idx
    bits = None
    if ends.repeats_bitwise and of_seed in good and of_seed in bad:
        pair = (tables[0][of_seed], tables[1][of_seed])
        bits = _make_bit_rule(pair, (good[of_seed].shown, bad[of_seed].shown), steps, ends, metric)
    curve = _make_curve_rule([list(side.values()) for side in tables], steps, ends, metric)
    return None if bits is None and curve is None else EarlyRules(metric.name, num_ranks.pop(), steps, bits, curve)


Table = Mapping[int, Sequence[StepRecord]]


# ---- bits -----------------------------------------------------------------------------------------------------------


def _make_bit_rule(
    pair: tuple[Table, Table], shown: tuple[Shown, Shown], steps: Sequence[int], ends: Ends, metric: Metric
) -> BitRule | None:
    if not all(run.digest for run in shown) or shown[0].digest == shown[1].digest:
        return None
    digests = [[digest_step(table[step]) for step in steps] for table in pair]
    parted = next((idx for idx, (one, other) in enumerate(zip(*digests, strict=True)) if one != other), None)
    if parted is None:
        return None
    decisive = parted
    if ends.criterion is not Criterion.EXACT:
        curves = [[value_of_step(table[step], metric.name) for step in steps] for table in pair]
        found = decisive_idx(curves[0], curves[1], final_gap=shown[1].value - shown[0].value)
        if found is None:
            return None
        decisive = max(parted, found)
    good, bad = (tuple(side[: decisive + 1]) for side in digests)
    return BitRule(good, bad, *shown)


def decisive_idx(good: Sequence[float | None], bad: Sequence[float | None], *, final_gap: float) -> int | None:
    """Return the first index from which on two curves stay at least half the final gap apart, the way the gap goes.

    Steps without a value (parameter norms are taken at some only) are passed over; None where they never stay apart.
    """
    found = None
    for idx, (low, high) in enumerate(zip(good, bad, strict=True)):
        if low is None or high is None:
            continue
        is_apart = final_gap != 0.0 and (high - low) / final_gap >= DECISIVE_SHARE
        found = (idx if found is None else found) if is_apart else None
    return found


# ---- curve ----------------------------------------------------------------------------------------------------------


def _make_curve_rule(tables: Sequence[Sequence[Table]], steps: Sequence[int], ends: Ends, metric: Metric) -> CurveRule | None:
    if ends.criterion is not Criterion.STATISTICAL or min(map(len, tables)) < MIN_CURVES or len(steps) < MIN_STEPS:
        return None
    curves = [[[value_of_step(table[step], metric.name) for step in steps] for table in side] for side in tables]
    if any(value is None or not math.isfinite(value) for side in curves for curve in side for value in curve):
        return None
    spread = ends.paired_spread or ends.spread
    # the smallest effect that counts is a share of the shift, too: half of it must not look like the shift
    offset = max(OFFSET_SD * spread, ends.min_effect / 2.0) / abs(ends.gap) if ends.gap else math.inf
    return fit_curves(np.array(curves[0], dtype=float), np.array(curves[1], dtype=float), offset=offset)


def fit_curves(good_RK: FloatArray, bad_RK: FloatArray, *, offset: float) -> CurveRule | None:
    """Return the test that the curves of both ends give, None where it would not be safe.

    Args:
        good_RK, bad_RK: values by run and step, at least MIN_CURVES runs and MIN_STEPS steps each.
        offset: standard deviation of a variant's own offset, as a share of the shift.
    """
    sides = (good_RK, bad_RK)
    mean_K = [side.mean(axis=0) for side in sides]
    rest = [(side - mean) * math.sqrt(len(side) / (len(side) - 1)) for side, mean in zip(sides, mean_K, strict=True)]
    if any(not np.any(side) for side in rest):
        return None
    rho = fit_rho(np.concatenate(rest))
    noise = [side[:, 1:] - rho * side[:, :-1] for side in rest]
    sizes = [float(np.sqrt(np.mean(side**2))) for side in noise]
    # ends that are not alike are both judged by the noisier one: that weighs each step too little, never too much
    groups = [np.concatenate(noise)] if max(sizes) <= ALIKE_RATIO * min(sizes) else noise
    sds = [_sd_of(group) for group in groups]
    if any(sd.min() <= 0.0 or not _is_white(group / sd) for group, sd in zip(groups, sds, strict=True)):
        return None
    sd = np.max(sds, axis=0) * np.sqrt(
        np.max([_inflation_of(group / sd) for group, sd in zip(groups, sds, strict=True)], axis=0)
    )
    difference = mean_K[1] - mean_K[0]
    shift = smooth_with_edges(difference[1:] - rho * difference[:-1])
    inverse = 1.0 / len(good_RK) + 1.0 / len(bad_RK)
    worth = float(np.sum((shift / sd) ** 2)) - len(shift) * inverse / SMOOTH_STEPS  # without what the noise adds to it
    if worth < MIN_DPRIME**2:
        return None
    sd = sd * math.sqrt(1.0 + inverse / 4.0)  # the middle of the two means is not known exactly either
    middle = (mean_K[0] + mean_K[1]) / 2.0
    return CurveRule(
        middle=tuple(middle.tolist()),
        shift=(0.0, *shift.tolist()),
        sd=(float(sd[0]), *sd.tolist()),
        rho=rho,
        offset=offset,
    )


def fit_rho(rest_RK: FloatArray) -> float:
    """Return how much of a step's noise the next one keeps, 0 to 1; 1 where a random walk fits."""
    before, after = rest_RK[:, :-1], rest_RK[:, 1:]
    rho = float(np.sum(before * after) / np.sum(before**2))
    return 1.0 if rest_RK.shape[1] * (1.0 - rho) <= WALK_STEPS else max(0.0, rho)


def _is_white(scaled_RK: FloatArray) -> bool:
    """Return whether what is left, in standard deviations, is noise: each step's by itself, and without spikes."""
    if np.mean(np.abs(scaled_RK) > SPIKE_SD) > MAX_SPIKES:
        return False
    total = float(np.sum(scaled_RK**2))
    num = scaled_RK.size * (1.0 - 1.0 / MIN_CURVES)  # means were taken off: so many values are free
    limit = MAX_CORRELATION + 3.0 / math.sqrt(num)
    return all(abs(float(np.sum(scaled_RK[:, lag:] * scaled_RK[:, :-lag]))) <= limit * total for lag in (1, 2, 3))


def _inflation_of(scaled_RK: FloatArray) -> FloatArray:
    """Return by how much the means over SMOOTH_STEPS vary more from run to run than white noise does, by step; at least 1.

    Where runs fall fast at their start, say, they keep apart for a while: such steps tell less than their number says.
    """
    num = scaled_RK.shape[1]
    means = np.array([smooth(row, SMOOTH_STEPS) for row in scaled_RK])
    idx, half = np.arange(num), SMOOTH_STEPS // 2
    width = np.minimum(num, idx + half + 1) - np.maximum(0, idx - half)
    found = smooth((means**2).mean(axis=0) * width, NOISE_STEPS)
    return np.where(found > MAX_UNREST, found, 1.0)


def _sd_of(noise_RK: FloatArray) -> FloatArray:
    """Return the standard deviation of the noise by step, that of the steps around it."""
    return np.asarray(np.sqrt(np.maximum(smooth((noise_RK**2).mean(axis=0), NOISE_STEPS), 0.0)))


def smooth_with_edges(values_K: FloatArray) -> FloatArray:
    """Return the means over SMOOTH_STEPS values on either side, the calmer side first, so that a sudden departure stays sudden.

    A centred mean would spread it to the steps before, where good and bad runs are alike: they would be told apart by chance.
    """
    num, least = len(values_K), SMOOTH_STEPS // 3
    means_SK, calm_SK = np.zeros((2, num)), np.zeros((2, num))  # sides: before, after
    floor = 1e-6 * float(values_K.var()) + 1e-300
    for idx in range(num):
        for side, row in enumerate((values_K[max(0, idx - SMOOTH_STEPS + 1) : idx + 1], values_K[idx : idx + SMOOTH_STEPS])):
            means_SK[side, idx] = row.mean()
            calm_SK[side, idx] = (floor / max(float(row.var()), floor)) ** 2 if len(row) >= least else 0.0
    return np.asarray((means_SK * calm_SK).sum(axis=0) / calm_SK.sum(axis=0))


def smooth(values_K: FloatArray, width: int) -> FloatArray:
    """Return the centred means over `width` values (odd), over fewer at both edges."""
    sums = np.concatenate([[0.0], np.cumsum(values_K)])
    idx, half = np.arange(len(values_K)), width // 2
    low, high = np.maximum(0, idx - half), np.minimum(len(values_K), idx + half + 1)
    return np.asarray((sums[high] - sums[low]) / (high - low))
