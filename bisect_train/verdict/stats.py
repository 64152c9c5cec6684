"""Small statistics: summaries, exact permutation tests, bounds. All one-sided, in the direction `worse is larger`.

Sources: exact test of two rates, Fisher 1934; permutation test, Fisher 1935 (all C(n+m, n) relabelings, no normality); t
bounds, Student 1908; Shapiro-Wilk 1965.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy import special

MAX_RELABELINGS = 200_000
MAX_FLIPS = 20
OUTLIER_RATIO = 3.0
MIN_FOR_MEDIAN = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, standard deviation (n - 1; 0 for one value) and number of values."""

    mean: float
    sd: float
    num: int


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, sd and number of at least one value."""
    # equal values must have no spread at all, whatever the division rounds to
    mean = min(max(math.fsum(values) / len(values), min(values)), max(values))
    if len(values) < 2:
        return Summary(mean, 0.0, len(values))
    return Summary(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)), len(values))


def typical_sd(values: Sequence[float]) -> float:
    """Return the standard deviation, or the one that the median deviation gives where a few of many lie far outside it."""
    if len(values) < MIN_FOR_MEDIAN:  # two of three values are often close by chance
        return summarise(values).sd
    by_median = 1.4826 * median(abs(value - median(values)) for value in values)
    sd = summarise(values).sd
    return by_median if 0.0 < OUTLIER_RATIO * by_median < sd else sd


def pooled_sd(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled standard deviation of groups with their own means, and its degrees of freedom."""
    squares = math.fsum(math.fsum((v - summarise(group).mean) ** 2 for v in group) for group in groups)
    dof = sum(len(group) - 1 for group in groups)
    return (math.sqrt(squares / dof) if dof > 0 else 0.0, dof)


def fisher_p(high: tuple[int, int], low: tuple[int, int]) -> float:
    """Return the one-sided p of `high` failing more often than `low`; both are (failures, passes). Exact."""
    num_high, num_low, num_failed = sum(high), sum(low), high[0] + low[0]
    total = special.comb(num_high + num_low, num_failed, exact=True)
    worse = range(high[0], min(num_high, num_failed) + 1)
    ways = sum(
        special.comb(num_high, failed, exact=True) * special.comb(num_low, num_failed - failed, exact=True) for failed in worse
    )
    return float(ways / total)


def permutation_p(low: Sequence[float], high: Sequence[float]) -> float:
    """Return the one-sided p of `high` being larger than `low` in the mean: share of relabelings at least as large.

    Exact up to 200,000 relabelings (10 + 10 values). Beyond that a fixed sample of relabelings is drawn, the observed one
    among them, which keeps the test valid: P(p <= a) <= a under the null hypothesis.

    Args:
        low, high: exchangeable under the null hypothesis; at least one value each.
    Source: Fisher 1935; Phipson and Smyth 2010 for the sampled test.
    """
    return _permutation_p(tuple(low), tuple(high))


@lru_cache(maxsize=256)
def _permutation_p(low: tuple[float, ...], high: tuple[float, ...]) -> float:
    values = np.asarray([*low, *high], dtype=float)
    slack = 1e-12 * max(1.0, float(np.abs(values).sum()))
    sums = values[_relabelings(len(values), len(high))].sum(axis=1)
    at_least = int(np.count_nonzero(sums >= math.fsum(high) - slack))
    if math.comb(len(values), len(high)) <= MAX_RELABELINGS:
        return at_least / len(sums)
    return (at_least + 1) / (len(sums) + 1)


@lru_cache(maxsize=16)
def _relabelings(num_values: int, num_high: int) -> NDArray[np.int8]:
    """Return which values are called high, one relabeling per row: all of them, or a fixed sample of 20,000."""
    if math.comb(num_values, num_high) <= MAX_RELABELINGS:
        chosen = chain.from_iterable(combinations(range(num_values), num_high))
        return np.fromiter(chosen, dtype=np.int8).reshape(-1, num_high)
    order = np.tile(np.arange(num_values, dtype=np.int8), (20_000, 1))
    shuffled = np.random.default_rng(0).permuted(order, axis=1)
    return np.asarray(shuffled[:, :num_high], dtype=np.int8)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the one-sided p of paired differences being larger than 0: share of sign patterns with at least their sum. Exact.

    Raises:
        ValueError: more than 20 differences.
    """
    if len(differences) > MAX_FLIPS:
        raise ValueError(f"at most {MAX_FLIPS} differences, got {len(differences)}")
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    total = math.fsum(differences)
    return float(np.mean(sums >= total - 1e-12 * max(1.0, float(np.abs(sums).max()))))


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation of pairs, 0 where one side has no spread."""
    sides = [np.asarray(values) - np.mean(values) for values in (first, second)]
    scale = math.sqrt(float(sides[0] @ sides[0]) * float(sides[1] @ sides[1]))
    return float(sides[0] @ sides[1]) / scale if scale > 0 else 0.0


def smallest_group_for(level: float) -> int:
    """Return the smallest n for which an n + n permutation test can reach `level`: C(2n, n) >= 1 / level."""
    num = 2
    while math.comb(2 * num, num) < 1.0 / level:
        num += 1
    return num


def t_upper_tail(statistic: float, dof: int) -> float:
    """Return P(T >= statistic) of Student's t."""
    return float(special.stdtr(dof, -statistic))


def t_density(statistic: float, dof: float) -> float:
    """Return the density of Student's t, by its formula: it is needed for every probe at every plan."""
    # Gamma((nu+1)/2) / (sqrt(nu pi) Gamma(nu/2)) (1 + t^2/nu)^(-(nu+1)/2)
    log_scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - 0.5 * math.log(dof * math.pi)
    return math.exp(log_scale - (dof + 1) / 2 * math.log1p(statistic * statistic / dof))


def upper_bound_paired(good: Sequence[float], bad: Sequence[float], *, level: float = 0.95) -> float:
    """Return the upper confidence bound of the mean of bad - good over pairs, in the metric's unit.

    Args:
        good, bad: values of the same seeds, in the same order; at least two pairs.
    """
    differences = [b - g for g, b in zip(good, bad, strict=True)]
    summary = summarise(differences)
    quantile = float(special.stdtrit(summary.num - 1, level))
    return summary.mean + quantile * summary.sd / math.sqrt(summary.num)


def is_near_normal(groups: Sequence[Sequence[float]], *, min_num: int = 16, level: float = 0.05) -> bool:
    """Return whether the residuals of all groups together pass a Shapiro-Wilk test.

    Fewer than `min_num` residuals cannot show normality and give False. Residuals are scaled by sqrt(n / (n - 1)).
    """
    residuals = []
    for group in groups:
        if len(group) >= 2:
            mean = summarise(group).mean
            residuals += [(v - mean) * math.sqrt(len(group) / (len(group) - 1)) for v in group]
    if len(residuals) < min_num or max(residuals) == min(residuals):
        return False
    return _shapiro_p(tuple(residuals)) > level


@lru_cache(maxsize=256)
def _shapiro_p(residuals: tuple[float, ...]) -> float:
    """Return the p value of Shapiro and Wilk's test; remembered, since a plan asks for the same ones after every run."""
    from scipy.stats import shapiro  # half a second to import, and needed in a proof only

    return float(shapiro(residuals).pvalue)
