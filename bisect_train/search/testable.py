"""How likely an untried version is to be testable, given which of its neighbours were.

Two-state Markov chain along the list with unknown rate p of untestable versions and mean run length l, averaged over a grid
and weighted by the likelihood of what was seen:

    T(x, y, d) = pi_y + ([x == y] - pi_y) rho^d,   rho = max(0, 1 - 1/l - (1/l) p/(1-p)),   pi = (p, 1 - p)
    q_k = sum_grid w T(left, 1, d_left) T(1, right, d_right) / sum_y T(left, y, d_left) T(y, right, d_right)

Between two known neighbours at distance D the denominator is T(left, right, D) (Chapman-Kolmogorov) and the numerator a
constant, a term in rho^d_left, and one in rho^d_right: one table of powers serves every stretch, and far inside a long
stretch nothing but the constant is left.

Source: two-state Markov chains of runs, measured against git's skip heuristic in tests/benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RATES = (0.02, 0.05, 0.15, 0.3, 0.5)
RUN_LENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
NEGLIGIBLE_WEIGHT = 1e-4
NEGLIGIBLE_POWER = 1e-17

FloatArray = NDArray[np.float64]


def testable_probability(num_changes: int, is_testable: Mapping[int, bool]) -> FloatArray:
    """Return the probability that each version 0..N can be tested; 1 or 0 where it is known.

    Args:
        num_changes: N.
        is_testable: what is known, by version; both ends count as testable.
    """
    known = {0: True, num_changes: True, **is_testable}
    versions = np.array(sorted(known))
    states = np.array([known[int(version)] for version in versions], dtype=int)
    rate_G1, rho_G1, power_GD = _grid(RATES, RUN_LENGTHS, _table_size(num_changes))
    left_S, right_S, length_S = states[:-1], states[1:], np.diff(versions)
    end_decay_GS = _powers(rho_G1, length_S)
    share_GS = np.where(right_S == 1, 1.0 - rate_G1, rate_G1)
    step_GS = share_GS + ((left_S == right_S) - share_GS) * end_decay_GS  # T(left, right, D)
    log_weight_G = np.log(np.maximum(step_GS, 1e-12)).sum(axis=1)
    weight_G = np.exp(log_weight_G - log_weight_G.max())
    weight_G[weight_G < NEGLIGIBLE_WEIGHT] = 0.0
    weight_GS = (weight_G / weight_G.sum())[:, None] / np.maximum(step_GS, 1e-300)
    # T(left, 1, d) = one + from_left rho^d;   T(1, right, D - d) = share + to_right rho^(D - d)
    one_G1 = 1.0 - rate_G1
    from_left_GS, to_right_GS = left_S - one_G1, right_S - share_GS
    steady_S = (weight_GS * (one_G1 * share_GS + from_left_GS * to_right_GS * end_decay_GS)).sum(axis=0)
    near_left_SG, near_right_SG = (weight_GS * from_left_GS * share_GS).T, (weight_GS * one_G1 * to_right_GS).T
    result = np.repeat(np.append(steady_S, 1.0), np.append(length_S, 1))
    for idx, (start, end) in enumerate(zip(versions[:-1].tolist(), versions[1:].tolist(), strict=True)):
        reach = min(end - start, power_GD.shape[1])
        if reach > 1:
            result[start : start + reach] += near_left_SG[idx] @ power_GD[:, :reach]
            result[end - reach + 1 : end + 1] += (near_right_SG[idx] @ power_GD[:, :reach])[::-1]
    result[versions] = states
    return np.asarray(np.clip(result, 0.0, 1.0), dtype=np.float64)


def _table_size(num_changes: int) -> int:
    """Return how many powers a list of N changes may need, rounded up so that few different tables are made."""
    return int(1 << max(4, num_changes.bit_length()))


@lru_cache(maxsize=8)
def _grid(rates: tuple[float, ...], run_lengths: tuple[float, ...], size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rate p and correlation rho of every grid cell (one column), and rho^d for d = 0, 1, ... while any matters."""
    cells = [(rate, _correlation(rate, run_length)) for rate in rates for run_length in run_lengths]
    rate_G1, rho_G1 = (np.array(column, dtype=np.float64)[:, None] for column in zip(*cells, strict=True))
    longest = float(rho_G1.max())
    reach = math.ceil(math.log(NEGLIGIBLE_POWER) / math.log(longest)) if longest > 0.0 else 1
    return rate_G1, rho_G1, _powers(rho_G1, np.arange(min(size, reach)))


def _correlation(rate: float, run_length: float) -> float:
    odds = rate / (1.0 - rate)
    return max(0.0, 1.0 - 1.0 / run_length - odds / run_length) if run_length > 1 else 0.0


def _powers(rho_G1: FloatArray, distance: NDArray[np.int_]) -> FloatArray:
    """Return rho^d, a row for each cell; by exp, which is several times faster than a power on long arrays."""
    log_rho_G1 = np.log(np.maximum(rho_G1, 1e-300))
    return np.asarray(np.where(rho_G1 > 0.0, np.exp(log_rho_G1 * distance), distance == 0), dtype=np.float64)
