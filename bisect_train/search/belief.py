"""Belief over which change is the culprit, on an ordered list of N changes.

Version k (0..N) holds the first k changes. Hypothesis c (1..N): change c is the last transition from GOOD to BAD before the
bad end. Every version k >= c is BAD. Versions below c begin GOOD and may pass through bad islands: a two-state chain that
turns bad with rate eps and good again with rate delta per version, and is good at c - 1:

    P(c | D) = prior_c  f_{c-1}(GOOD)  prod_{k>=c} e^{L_k}  e^{R_c}                    (up to a constant)
    f_k = f_{k-1} [[1 - eps, eps], [delta, 1 - delta]],  then f_k(BAD) *= e^{L_k}

with L_k = ln P(runs of version k | BAD) - ln P(runs of version k | GOOD), and R_c <= 0 what fresh runs said against c alone
(the bad end stays bad without it). An untestable version has no L_k: it narrows nothing. The prior is uniform.

Source: forward algorithm of hidden Markov chains (Baum 1970).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

ISLAND_PRIOR = 0.02  # probability that the history below the culprit has a bad island at all
ISLAND_SHARE_OF_RANGE = 0.25  # mean length of an island

FloatArray = NDArray[np.float64]


def posterior_over_changes(
    num_changes: int, nats_of_version: Mapping[int, float], *, nats_of_change: Mapping[int, float] | None = None
) -> FloatArray:
    """Return the probability that change c is the culprit, for c = 1..N (index c - 1).

    Args:
        num_changes: N >= 1.
        nats_of_version: L_k by version k, 0 < k < N; the ends are proved and carry no evidence here.
        nats_of_change: R_c by index c - 1.
    Returns:
        Array of N probabilities that sum to 1.
    """
    nats = np.zeros(num_changes + 1)
    for version, value in nats_of_version.items():
        nats[version] = value
    sum_above = nats.sum() - np.cumsum(nats) + nats  # over versions k..N
    log_weights = _log_good_below(num_changes, nats) + sum_above[1:]
    for idx, value in (nats_of_change or {}).items():
        log_weights[idx] += value
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _log_good_below(num_changes: int, nats: FloatArray) -> FloatArray:
    """Return ln f_{c-1}(GOOD) for c = 1..N."""
    eps = ISLAND_PRIOR / max(num_changes, 2)
    delta = min(0.5, 1.0 / (ISLAND_SHARE_OF_RANGE * max(num_changes, 4)))
    share_good, decay = delta / (eps + delta), 1.0 - eps - delta
    result = np.zeros(num_changes)
    good, bad, log_scale = 1.0, 0.0, 0.0
    observed = [0, *(int(version) for version in np.flatnonzero(nats)), num_changes]
    for start, end in pairwise(observed):
        # over d versions without evidence: good_d = s + (good - s) decay^d, s = (good + bad) share_good
        total = good + bad
        steady = total * share_good
        distances = np.arange(end - start + 1)
        goods = steady + (good - steady) * decay**distances
        result[start:end] = np.log(np.maximum(goods[:-1], 1e-300)) + log_scale
        good, bad = float(goods[-1]), total - float(goods[-1])
        if end < num_changes:
            bad *= math.exp(min(float(nats[end]), 600.0))
        scale = good + bad
        good, bad, log_scale = good / scale, bad / scale, log_scale + math.log(scale)
    return result


def credible_changes(posterior: FloatArray, *, mass: float) -> list[int]:
    """Return the smallest set of changes (indices from 0) that holds `mass` of the posterior, in order."""
    order = np.argsort(-posterior, kind="stable")
    cumulative = np.cumsum(posterior[order])
    num = int(np.searchsorted(cumulative, mass - 1e-12) + 1)
    return sorted(int(idx) for idx in order[:num])
