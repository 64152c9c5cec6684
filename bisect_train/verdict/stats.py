"""Small statistics: summaries, exact permutation tests, bounds. All one-sided, in the direction `worse is larger`.

Sources: permutation test, Fisher 1935 (all C(n+m, n) relabelings, no normality); t bounds, Student 1908; Shapiro-Wilk 1965.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy import stats as scipy_stats

MAX_RELABELINGS = 200_000


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, standard deviation (n - 1; 0 for one value) and number of values."""

    mean: float
    sd: float
    num: int


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, sd and number of at least one value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Summary(mean, 0.0, len(values))
    return Summary(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)), len(values))


def pooled_sd(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled standard deviation of groups with their own means, and its degrees of freedom."""
    squares = math.fsum(math.fsum((v - summarise(group).mean) ** 2 for v in group) for group in groups)
    dof = sum(len(group) - 1 for group in groups)
    return (math.sqrt(squares / dof) if dof > 0 else 0.0, dof)


def permutation_p(low: Sequence[float], high: Sequence[float]) -> float:
    """Return the exact one-sided p of `high` being larger than `low` in the mean: share of relabelings at least as large.

    Args:
        low, high: exchangeable under the null hypothesis; 1 to about 10 values each.
    Raises:
        ValueError: more than 200,000 relabelings.
    """
    return _permutation_p(tuple(low), tuple(high))


@lru_cache(maxsize=256)
def _permutation_p(low: tuple[float, ...], high: tuple[float, ...]) -> float:
    values = np.asarray([*low, *high], dtype=float)
    num_relabelings = math.comb(len(values), len(high))
    if num_relabelings > MAX_RELABELINGS:
        raise ValueError(f"{len(low)} + {len(high)} values need {num_relabelings} relabelings")
    slack = 1e-12 * max(1.0, float(np.abs(values).sum()))
    chosen = np.array(list(combinations(range(len(values)), len(high))))
    sums = values[chosen].sum(axis=1)
    return float(np.mean(sums >= math.fsum(high) - slack))


def smallest_group_for(level: float) -> int:
    """Return the smallest n for which an n + n permutation test can reach `level`: C(2n, n) >= 1 / level."""
    num = 2
    while math.comb(2 * num, num) < 1.0 / level:
        num += 1
    return num


def t_upper_tail(statistic: float, dof: int) -> float:
    """Return P(T >= statistic) of Student's t."""
    return float(scipy_stats.t.sf(statistic, dof))


def upper_bound_paired(good: Sequence[float], bad: Sequence[float], *, level: float = 0.95) -> float:
    """Return the upper confidence bound of the mean of bad - good over pairs, in the metric's unit.

    Args:
        good, bad: values of the same seeds, in the same order; at least two pairs.
    """
    differences = [b - g for g, b in zip(good, bad, strict=True)]
    summary = summarise(differences)
    quantile = float(scipy_stats.t.ppf(level, summary.num - 1))
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
    return float(scipy_stats.shapiro(residuals).pvalue) > level
