"""How likely an untried version is to be testable, given which of its neighbours were.

Two-state Markov chain along the list with unknown rate p of untestable versions and mean run length l, averaged over a grid
and weighted by the likelihood of what was seen:

    T(x, y, d) = pi_y + ([x == y] - pi_y) rho^d,   rho = max(0, 1 - 1/l - (1/l) p/(1-p)),   pi = (p, 1 - p)
    q_k = sum_grid w T(left, 1, d_left) T(1, right, d_right) / sum_y T(left, y, d_left) T(y, right, d_right)

Source: two-state Markov chains of runs, measured against git's skip heuristic in tests/benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

RATES = (0.02, 0.05, 0.15, 0.3, 0.5)
RUN_LENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)

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
    every = np.arange(num_changes + 1)
    left = np.clip(np.searchsorted(versions, every, side="right") - 1, 0, len(versions) - 1)
    right = np.clip(left + 1, 0, len(versions) - 1)
    distances = (every - versions[left], versions[right] - every)
    log_weights, per_grid = [], []
    for rate in RATES:
        for run_length in RUN_LENGTHS:
            chain = _Chain(rate, run_length)
            steps = chain.move(states[:-1], states[1:], np.diff(versions))
            log_weights.append(float(np.log(np.maximum(steps, 1e-12)).sum()))
            ways = [chain.through(states[left], y, states[right], distances) for y in (0, 1)]
            per_grid.append(ways[1] / np.maximum(ways[0] + ways[1], 1e-300))
    weights = np.exp(np.array(log_weights) - max(log_weights))
    result = np.asarray(weights @ np.array(per_grid) / weights.sum(), dtype=np.float64)
    result[versions] = states
    return result


class _Chain:
    """Transition probabilities of one grid cell."""

    def __init__(self, rate: float, run_length: float) -> None:
        self.stationary = np.array([rate, 1.0 - rate])
        odds = rate / (1.0 - rate)
        self.correlation = max(0.0, 1.0 - 1.0 / run_length - odds / run_length) if run_length > 1 else 0.0

    def move(self, start: NDArray[np.int_], end: NDArray[np.int_], distance: NDArray[np.int_]) -> FloatArray:
        share = self.stationary[end]
        return np.asarray(share + ((start == end) - share) * self.correlation**distance, dtype=np.float64)

    def through(
        self,
        left: NDArray[np.int_],
        state: int,
        right: NDArray[np.int_],
        distances: tuple[NDArray[np.int_], NDArray[np.int_]],
    ) -> FloatArray:
        middle = np.full_like(left, state)
        return self.move(left, middle, distances[0]) * self.move(middle, right, distances[1])
