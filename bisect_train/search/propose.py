"""Which versions to run next: the batch that splits the belief best for the workers that are free.

Noise-free probes at a set of versions split the changes into intervals; the batch maximises the entropy of that split (for one
worker the median, for k workers the (k+1)-quantiles), each version weighted by its probability of being testable. Versions that
are already running count as split. With noisy probes a version may be tried again on another seed: its own offset makes that
worth less, so repeats come after new versions of equal gain; they are not given up for it, though, while the belief is open.
Where versions differ in cost the gain per cost decides, and what is known already comes first. Ties go to the middle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from bisect_train.search.belief import FloatArray

REPEAT_WORTH = 0.6
MIN_GAIN_NATS = 0.05  # beside an untestable stretch (goal G3): 12.6 probes, 31 at 0.003, for the same 2.7 suspects left
NEGLIGIBLE_MASS = 0.005  # a cut that leaves less than this on one side gains at most h(0.005) = 0.0315 < MIN_GAIN_NATS
LEAST_COST = 0.01  # of a typical run: a result that is there already is weighed as if it took this much
NUM_SWEEPS = 3


def propose_versions(
    posterior: FloatArray,
    testable: FloatArray,
    *,
    num: int,
    in_flight: Collection[int] = (),
    num_runs: Mapping[int, int] | None = None,
    max_runs: int = 6,
    cost: FloatArray | None = None,
) -> list[int]:
    """Return at most `num` versions to run next, best first; [] when no version promises anything.

    Args:
        posterior: probability per change c = 1..N (index c - 1).
        testable: probability of being testable per version 0..N.
        num: workers that are free.
        in_flight: versions that are running.
        num_runs: runs that a version already has, in flight ones included.
        max_runs: runs per version, at most.
        cost: of one run per version 0..N, in units of a typical run; 0 where the result is there already. None: all alike.
    """
    num_changes = len(posterior)
    worth, price = testable.copy(), prices_of(num_changes, cost)
    worth[0] = worth[num_changes] = 0.0
    for version, count in (num_runs or {}).items():
        if 0 < version < num_changes:
            worth[version] *= count < max_runs
            price[version] /= REPEAT_WORTH**count
    split = _Split(posterior, worth, price)
    chosen: list[int] = []
    for _ in range(num):
        best, gain = split.best_cut([*in_flight, *chosen])
        if gain < MIN_GAIN_NATS:
            break
        chosen.append(best)
    return _refine(split, list(in_flight), chosen)


def prices_of(num_changes: int, cost: FloatArray | None) -> FloatArray:
    """Return what a run of each version 0..N is weighed with: its cost, but not nothing."""
    return np.ones(num_changes + 1) if cost is None else np.asarray(np.maximum(cost, LEAST_COST), dtype=np.float64)


def _refine(split: _Split, in_flight: list[int], chosen: list[int]) -> list[int]:
    """Move each chosen version to its best place given the others, so that a batch lies at the quantiles."""
    for _ in range(NUM_SWEEPS if len(chosen) > 1 else 0):
        before = list(chosen)
        for idx in range(len(chosen)):
            best, gain = split.best_cut(in_flight + chosen[:idx] + chosen[idx + 1 :])
            if gain >= MIN_GAIN_NATS:
                chosen[idx] = best
        if chosen == before:
            break
    return chosen


class _Split:
    """The belief as a line that probes cut; only the versions are looked at whose cut could promise anything.

    Attributes:
        below: below[k] = P(c <= k) for versions k = 0..N.
        first, past: the window of versions that are looked at, [first, past).
    """

    def __init__(self, posterior: FloatArray, worth: FloatArray, price: FloatArray) -> None:
        self.below = np.concatenate([[0.0], np.cumsum(posterior)])
        self.first = int(np.searchsorted(self.below, NEGLIGIBLE_MASS, side="left"))
        self.past = max(self.first, int(np.searchsorted(self.below, 1.0 - NEGLIGIBLE_MASS, side="right")))
        self._worth = worth[self.first : self.past]
        self._price = price[self.first : self.past]

    def best_cut(self, cuts: list[int]) -> tuple[int, float]:
        """Return the version whose cut adds most entropy for its price to the split at `cuts`, and what it adds in nats."""
        if self.first == self.past:
            return 0, 0.0
        gains = self._worth * self._added_entropy(cuts)
        for cut in cuts:
            if self.first <= cut < self.past:
                gains[cut - self.first] = 0.0
        scores = np.where(gains >= MIN_GAIN_NATS, gains / self._price, 0.0)
        ties = np.flatnonzero(scores >= float(scores.max()) - 1e-9)
        middle = (ties[0] + ties[-1]) / 2.0
        best = int(ties[np.argmin(np.abs(ties - middle))])
        return best + self.first, float(gains[best])

    def _added_entropy(self, cuts: list[int]) -> FloatArray:
        """Return, per version of the window, the entropy (nats) that a cut there adds to the split at `cuts`."""
        edges = np.array([0, *sorted(set(cuts)), len(self.below) - 1])
        lengths = np.diff(np.clip(edges, self.first, self.past))
        lengths[-1] += self.past - self.first - lengths.sum()  # the last version closes the last segment
        low, high = self.below[edges[:-1]], self.below[edges[1:]]
        inside = self.below[self.first : self.past]
        left, right = np.maximum(inside - np.repeat(low, lengths), 0.0), np.maximum(np.repeat(high, lengths) - inside, 0.0)
        # mass * h(left / mass) = mass ln mass - left ln left - right ln right
        added = np.repeat(_x_ln_x(np.maximum(high - low, 0.0)), lengths) - _x_ln_x(left) - _x_ln_x(right)
        return np.asarray(np.maximum(added, 0.0), dtype=np.float64)


def _x_ln_x(values: FloatArray) -> FloatArray:
    return np.asarray(values * np.log(np.maximum(values, 1e-300)), dtype=np.float64)
