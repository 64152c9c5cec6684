"""Has the metric drifted over the nights? An exact test of the whole history, for steps too small to be seen one by one.

Each night's newest commit was run on the same seeds. Where nothing has changed the metric's level, the nights could have come
in any order: the rows of the table (nights x seeds) are exchangeable, whatever the distribution, and whatever a seed or a
commit does to the value. So the statistic is compared with what it is for shuffled nights. It is the larger of

    a step    max over k of (mean of the nights after k - mean of those up to k) / its spread under shuffling
    a trend   the correlation of the nights' means with their order, on the same footing

and the nights have drifted if its p value is at most ALPHA *and* the change is as large as the smallest effect that counts.

Rate of false alarms: at most ALPHA in each night, so the first one comes after 1 / (2 ALPHA) = 500 nights on average at the
earliest, whatever the noise: P(one of the first n nights alarms) <= n ALPHA, and E[T] = sum over n of P(T > n). Measured by
`tests/benchmarks/bench_nightly.py`.

Source: permutation test, Fisher 1935; sampled relabelings, Phipson and Smyth 2010; union bound over the nights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bisect_train.nightly.terms import Level

ALPHA = 0.001
NUM_SHUFFLES = 19_999  # p values down to 1 / 20,000
NUM_FIRST, SURELY_NONE = 999, 0.05
MIN_NIGHTS = 7  # 7! = 5,040 orders: fewer cannot reach ALPHA
MAX_NIGHTS = 90
MIN_SEEDS = 3
MIN_SIDE = 2  # nights on each side of a step

# array names: N nights, S shuffles, K places of a step


@dataclass(frozen=True, slots=True)
class Drift:
    """What the history shows.

    Attributes:
        p_value: share of orders of the nights whose statistic is at least as large.
        size: worsening over the history, in the metric's unit.
        num_nights: nights with a value of their own that it rests on.
        num_seeds: seeds that they have in common.
        first: commit of the first of them.
        after: commit of the last night before the step, where it is one rather than a trend; else "".
        is_alarm: whether the metric has drifted.
    """

    p_value: float
    size: float
    num_nights: int
    num_seeds: int
    first: str
    after: str
    is_alarm: bool


def find_drift(levels: Sequence[Level]) -> Drift | None:
    """Return what the levels of the nights show, None where they are too few.

    Args:
        levels: in order, on one scale. Of commits with the same bits the first counts: a copy tells nothing new.
    """
    kept = distinct_levels(levels)[-MAX_NIGHTS:]
    if len(kept) < MIN_NIGHTS:
        return None
    seeds = sorted(set.intersection(*(set(level.values) for level in kept)))
    if len(seeds) < MIN_SEEDS:
        return None
    means_N = np.array([kept[0].sign * math.fsum(level.values[idx] for idx in seeds) / len(seeds) for level in kept])
    step_at, p_value = order_p(means_N)
    size = _size(means_N, step_at)
    is_alarm = p_value <= ALPHA and size >= kept[-1].min_effect and size > 0.0
    after = kept[step_at - 1].commit if step_at else ""
    return Drift(p_value, size, len(kept), len(seeds), kept[0].commit, after, is_alarm)


def distinct_levels(levels: Sequence[Level]) -> list[Level]:
    """Return the levels without copies: those that have the bits, or without bits the values, of an earlier one."""
    kept: list[Level] = []
    for level in levels:
        if not any(_is_copy(level, other) for other in kept):
            kept.append(level)
    return kept


def _is_copy(level: Level, other: Level) -> bool:
    shared = level.bits.keys() & other.bits.keys()
    if shared and all(level.bits[idx] and other.bits[idx] for idx in shared):
        return all(level.bits[idx] == other.bits[idx] for idx in shared)
    return all(level.values[idx] == other.values[idx] for idx in level.values.keys() & other.values.keys())


def order_p(means_N: NDArray[np.float64]) -> tuple[int, float]:
    """Return where the largest step is (0 for a trend) and the p value of the order of the nights; larger is worse.

    Args:
        means_N: one mean a night, at least `MIN_NIGHTS`.
    """
    centred_N = means_N - means_N.mean()
    if not np.any(centred_N):
        return 0, 1.0
    step_at, seen = _statistic(centred_N[None, :])
    needed = float(seen[0]) - 1e-12 * float(np.abs(centred_N).sum())
    shuffles_SN = _shuffles(len(means_N))
    for num in (NUM_FIRST, NUM_SHUFFLES):  # a look at the first ones ends it where no alarm is near
        _, drawn_S = _statistic(centred_N[shuffles_SN[:num]])
        p_value = (int(np.count_nonzero(drawn_S >= needed)) + 1) / (num + 1)
        if p_value > SURELY_NONE:
            break
    return int(step_at[0]), p_value


@lru_cache(maxsize=128)
def _shuffles(num_nights: int) -> NDArray[np.int8]:
    """Return a fixed sample of orders of so many nights, one a row."""
    order = np.tile(np.arange(num_nights, dtype=np.int8), (NUM_SHUFFLES, 1))
    return np.asarray(np.random.default_rng(num_nights).permuted(order, axis=1), dtype=np.int8)


def _statistic(centred_SN: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for each row where its largest step is (0 for a trend), and the statistic.

    Both are in units of the rows' own standard deviation, which shuffling leaves alone, so it is left out.
    """
    num = centred_SN.shape[1]
    sizes_K = np.arange(MIN_SIDE, num - MIN_SIDE + 1)
    # step: (sum after k) / sqrt(k (N - k) / N); the sum of all is 0, so the sum after k is minus that up to k
    steps_SK = -np.cumsum(centred_SN, axis=1)[:, sizes_K - 1] / np.sqrt(sizes_K * (num - sizes_K) / num)
    times_N = np.arange(num) - (num - 1) / 2.0
    trend_S = centred_SN @ times_N / math.sqrt(float(times_N @ times_N))
    best_S = steps_SK.argmax(axis=1)
    step_S = steps_SK[np.arange(len(steps_SK)), best_S]
    is_trend_S = trend_S >= step_S
    return np.where(is_trend_S, 0, sizes_K[best_S]), np.maximum(trend_S, step_S)


def _size(means_N: NDArray[np.float64], step_at: int) -> float:
    """Return by how much it has become worse: the step, or the slope times the nights."""
    if step_at:
        return float(means_N[step_at:].mean() - means_N[:step_at].mean())
    return float(np.polyfit(np.arange(len(means_N)), means_N, 1)[0] * (len(means_N) - 1))
