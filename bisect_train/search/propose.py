"""Which versions to run next: the batch that splits the belief best for the workers that are free.

Noise-free probes at a set of versions split the changes into intervals; the batch maximises the entropy of that split (for one
worker the median, for k workers the (k+1)-quantiles), each version weighted by its probability of being testable. Versions that
are already running count as split. With noisy probes a version may be tried again on another seed: its own offset makes that
worth less, so repeats come after new versions of equal gain. Ties go to the middle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from bisect_train.search.belief import FloatArray

REPEAT_WORTH = 0.6
MIN_GAIN_NATS = 0.05  # beside an untestable stretch (goal G3): 12.6 probes, 31 at 0.003, for the same 2.7 suspects left
NUM_SWEEPS = 3


def propose_versions(
    posterior: FloatArray,
    testable: FloatArray,
    *,
    num: int,
    in_flight: Collection[int] = (),
    num_runs: Mapping[int, int] | None = None,
    max_runs: int = 6,
) -> list[int]:
    """Return at most `num` versions to run next, best first; [] when no version promises anything.

    Args:
        posterior: probability per change c = 1..N (index c - 1).
        testable: probability of being testable per version 0..N.
        num: workers that are free.
        in_flight: versions that are running.
        num_runs: runs that a version already has, in flight ones included.
        max_runs: runs per version, at most.
    """
    num_changes = len(posterior)
    runs = num_runs or {}
    worth = testable.copy()
    worth[0] = worth[num_changes] = 0.0
    for version, count in runs.items():
        if 0 < version < num_changes:
            worth[version] *= REPEAT_WORTH**count if count < max_runs else 0.0
    below = np.concatenate([[0.0], np.cumsum(posterior)])  # below[k] = P(c <= k)
    chosen: list[int] = []
    for _ in range(num):
        best, gain = _best_split(below, worth, [*in_flight, *chosen])
        if gain < MIN_GAIN_NATS:
            break
        chosen.append(best)
    return _refine(below, worth, list(in_flight), chosen)


def _best_split(below: FloatArray, worth: FloatArray, cuts: list[int]) -> tuple[int, float]:
    """Return the version whose cut adds most entropy to the split at `cuts`, and that gain in nats."""
    gains = worth * _added_entropy(below, cuts)
    for cut in cuts:
        gains[cut] = 0.0
    top = float(gains.max())
    ties = np.flatnonzero(gains >= top - 1e-9)
    middle = (ties[0] + ties[-1]) / 2.0
    return int(ties[np.argmin(np.abs(ties - middle))]), top


def _added_entropy(below: FloatArray, cuts: list[int]) -> FloatArray:
    """Return, per version, the entropy (nats) that a cut there adds to the split at `cuts`."""
    edges = np.array([0, *sorted(set(cuts)), len(below) - 1])
    every = np.arange(len(below))
    segment = np.clip(np.searchsorted(edges, every, side="right") - 1, 0, len(edges) - 2)
    low, high = below[edges[segment]], below[edges[segment + 1]]
    mass = np.maximum(high - low, 0.0)
    left, right = np.maximum(below - low, 0.0), np.maximum(high - below, 0.0)
    # mass * h(left / mass) = mass ln mass - left ln left - right ln right
    return np.maximum(_x_ln_x(mass) - _x_ln_x(left) - _x_ln_x(right), 0.0)


def _x_ln_x(values: FloatArray) -> FloatArray:
    return np.asarray(values * np.log(np.maximum(values, 1e-300)), dtype=np.float64)


def _refine(below: FloatArray, worth: FloatArray, in_flight: list[int], chosen: list[int]) -> list[int]:
    """Move each chosen version to its best place given the others, so that a batch lies at the quantiles."""
    for _ in range(NUM_SWEEPS if len(chosen) > 1 else 0):
        for idx in range(len(chosen)):
            others = chosen[:idx] + chosen[idx + 1 :]
            best, gain = _best_split(below, worth, in_flight + others)
            if gain >= MIN_GAIN_NATS:
                chosen[idx] = best
    return chosen
