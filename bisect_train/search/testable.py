"""How likely an untried version is to be testable, given which of its neighbours were.

Two-state Markov chain along the list with unknown rate p of untestable versions and mean run length l, averaged over a grid
and weighted by the likelihood of what was seen:

    T(x, y, d) = pi_y + ([x == y] - pi_y) rho^d,   rho = max(0, 1 - 1/l - (1/l) p/(1-p)),   pi = (p, 1 - p)
    q_k = sum_grid w T(left, 1, d_left) T(1, right, d_right) / sum_y T(left, y, d_left) T(y, right, d_right)

Source: two-state Markov chains of runs, measured against git's skip heuristic in tests/benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

RATES = (0.02, 0.05, 0.15, 0.3, 0.5)
RUN_LENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
NEGLIGIBLE_WEIGHT = 1e-4

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
    chains = [_Chain(rate, run_length) for rate in RATES for run_length in RUN_LENGTHS]
    steps = [chain.move(states[:-1], states[1:], chain.decay(np.diff(versions))) for chain in chains]
    log_weights = np.array([float(np.log(np.maximum(step, 1e-12)).sum()) for step in steps])
    weights = np.exp(log_weights - log_weights.max())
    result = np.zeros(num_changes + 1)
    kept = weights >= NEGLIGIBLE_WEIGHT
    for chain, weight in zip(chains, weights, strict=True):
        if weight >= NEGLIGIBLE_WEIGHT:
            result += weight * chain.between(states[left], states[right], *distances)
    result /= weights[kept].sum()
    result[versions] = states
    return result


class _Chain:
    """Transition probabilities of one grid cell; states are 0 (untestable) and 1."""

    def __init__(self, rate: float, run_length: float) -> None:
        self.stationary = np.array([rate, 1.0 - rate])
        odds = rate / (1.0 - rate)
        self.correlation = max(0.0, 1.0 - 1.0 / run_length - odds / run_length) if run_length > 1 else 0.0

    def decay(self, distance: NDArray[np.int_]) -> FloatArray:
        """Return rho^d; by exp, which is several times faster than a power on long arrays."""
        if self.correlation == 0.0:
            return np.asarray(distance == 0, dtype=np.float64)
        return np.asarray(np.exp(math.log(self.correlation) * distance), dtype=np.float64)

    def move(self, start: NDArray[np.int_], end: NDArray[np.int_] | int, decay: FloatArray) -> FloatArray:
        share = self.stationary[end]
        return np.asarray(share + ((start == end) - share) * decay, dtype=np.float64)

    def between(
        self, left: NDArray[np.int_], right: NDArray[np.int_], d_left: NDArray[np.int_], d_right: NDArray[np.int_]
    ) -> FloatArray:
        """Return the probability of state 1 between two known neighbours at the given distances."""
        from_left, decay = self.move(left, 1, self.decay(d_left)), self.decay(d_right)
        share = self.stationary[right]
        leaving = share * (1.0 - decay)  # T(1 - right, right, d)
        staying = leaving + decay  # T(right, right, d)
        one = from_left * np.where(right == 1, staying, leaving)
        zero = (1.0 - from_left) * np.where(right == 1, leaving, staying)
        return np.asarray(one / np.maximum(one + zero, 1e-300), dtype=np.float64)
