"""Search where a run fails by chance: pass or fail per run, with a rate of failures per side that nobody knows.

Version k (0..N) holds the first k changes. Hypothesis c (1..N): versions below c fail with the rate of the GOOD side, the
others with that of the BAD side. Both rates are integrated out (f failures and s passes of a side under c):

    ln P(D | c) = ln B(a_g + f_g, b_g + s_g) + ln B(a_b + f_b, b_b + s_b)            up to a constant
    P(failure | c, side, D) = (a + f) / (a + b + f + s)

The next version is the one whose outcome tells most about c (mutual information). Never the median: with unknown rates it
keeps probing one side and never learns the rate of the other. A batch is chosen greedily, by the joint information of its
outcomes. Hypotheses between two neighbouring versions of interest are counted together, which is exact for the choice among
these.

Sources: Beta-binomial marginal likelihood; information gain as in git-bayesect; both measured in tests/benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bisect_train.search.belief import FloatArray
from bisect_train.search.propose import prices_of
from bisect_train.verdict.evidence import BAD_RATE_PRIOR, GOOD_RATE_PRIOR

MAX_JOINT = 8  # outcomes of a batch that are looked at together, ones in flight included
NUM_CUTS = 256  # versions of interest beside those that were run
MIN_GAIN_NATS = 1e-6

Counts = Mapping[int, tuple[int, int]]
"""Failures and passes by version 0..N; the ends' runs count as versions 0 and N."""


@dataclass(frozen=True, slots=True)
class _Segments:
    """Stretches of hypotheses c that the data cannot tell apart: `starts` (first c) and the sides' counts under each."""

    starts: NDArray[np.int_]
    good: FloatArray  # (segments, 2): failures and passes below c
    bad: FloatArray


def _segments_of(num_changes: int, counts: Counts) -> _Segments:
    versions = np.array(sorted(version for version in counts if 0 <= version <= num_changes), dtype=int)
    table = np.array([counts[int(version)] for version in versions], dtype=np.float64).reshape(-1, 2)
    # hypothesis c has the versions < c on its good side: its counts change where c passes a version
    inner = [int(version) + 1 for version in versions if 0 < version < num_changes]
    starts = np.array([1, *inner], dtype=int)
    cumulative = np.vstack([np.zeros((1, 2)), np.cumsum(table, axis=0)])
    good = cumulative[np.searchsorted(versions, starts, side="left")]
    return _Segments(starts, good, cumulative[-1] - good)


def _log_likelihoods(segments: _Segments) -> FloatArray:
    good = special.betaln(GOOD_RATE_PRIOR[0] + segments.good[:, 0], GOOD_RATE_PRIOR[1] + segments.good[:, 1])
    bad = special.betaln(BAD_RATE_PRIOR[0] + segments.bad[:, 0], BAD_RATE_PRIOR[1] + segments.bad[:, 1])
    return np.asarray(good + bad, dtype=np.float64)


def _lengths(segments: _Segments, num_changes: int) -> NDArray[np.int_]:
    return np.diff(np.append(segments.starts, num_changes + 1))


def posterior_with_rates(num_changes: int, counts: Counts, *, nats_of_change: Mapping[int, float] | None = None) -> FloatArray:
    """Return the probability that change c is the culprit, for c = 1..N (index c - 1).

    Args:
        num_changes: N >= 1.
        counts: failures and passes by version, the ends included.
        nats_of_change: what else is known for or against a change, by index c - 1.
    Returns:
        Array of N probabilities that sum to 1.
    """
    segments = _segments_of(num_changes, counts)
    log_weights = np.repeat(_log_likelihoods(segments), _lengths(segments, num_changes))
    for idx, value in (nats_of_change or {}).items():
        log_weights[idx] += value
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _predictive(segments: _Segments) -> tuple[FloatArray, FloatArray]:
    """Return P(next run fails) on either side, by segment."""
    rates = []
    for (fails, passes), seen in ((GOOD_RATE_PRIOR, segments.good), (BAD_RATE_PRIOR, segments.bad)):
        rates.append(np.asarray((fails + seen[:, 0]) / (fails + passes + seen.sum(axis=1)), dtype=np.float64))
    return rates[0], rates[1]


def propose_with_rates(
    num_changes: int,
    counts: Counts,
    posterior: FloatArray,
    worth: FloatArray,
    *,
    num: int,
    in_flight: Sequence[int] = (),
    cost: FloatArray | None = None,
) -> list[int]:
    """Return at most `num` versions to run next, best first; a version may come several times.

    Args:
        num_changes: N.
        counts: as for `posterior_with_rates`.
        posterior: its result.
        worth: factor on the information by version 0..N: probability of being testable, 0 for what must not be run.
        num: workers that are free.
        in_flight: versions that are running, once per run.
        cost: as for `propose_versions`.
    """
    bins = _Bins(num_changes, counts, posterior, worth, in_flight, prices_of(num_changes, cost))
    joint = _Joint(bins.mass)
    for version in list(in_flight)[:MAX_JOINT]:
        joint.add(bins.failure_given_bin(version))
    chosen: list[int] = []
    for _ in range(num):
        if joint.num_outcomes >= MAX_JOINT:  # beyond that the batch begins anew: a second run of the best is worth most
            joint = _Joint(bins.mass)
        best = bins.best(joint)
        if best is None:
            break
        chosen.append(best)
        joint.add(bins.failure_given_bin(best))
    return chosen


class _Bins:
    """Hypotheses in bins whose edges are the versions that could be chosen, and P(failure) of these under each bin."""

    def __init__(
        self,
        num_changes: int,
        counts: Counts,
        posterior: FloatArray,
        worth: FloatArray,
        in_flight: Sequence[int],
        price: FloatArray,
    ) -> None:
        segments = _segments_of(num_changes, counts)
        below = np.concatenate([[0.0], np.cumsum(posterior)])
        cheap = np.flatnonzero(price < 1.0).tolist()
        chosen = _versions_of_interest(num_changes, below, worth, [*counts, *in_flight, *cheap])
        self.edges = np.unique(np.concatenate([[0], chosen, [num_changes]]))
        self.mass = np.maximum(np.diff(below[self.edges]), 0.0)
        segment = np.searchsorted(segments.starts, self.edges[:-1] + 1, side="right") - 1
        good, bad = _predictive(segments)
        self._worth = worth[self.edges]
        self._price = price[self.edges]
        # bin j holds the hypotheses edges[j] < c <= edges[j + 1]; version edges[i] is bad under the bins j < i
        is_bad = np.arange(len(self.mass))[None, :] < np.arange(len(self.edges))[:, None]
        self._failure = np.where(is_bad, bad[segment], good[segment])

    def failure_given_bin(self, version: int) -> FloatArray:
        """Return P(a run of a version fails) under each bin."""
        idx = int(np.searchsorted(self.edges, version))
        return np.asarray(self._failure[idx], dtype=np.float64)

    def best(self, joint: _Joint) -> int | None:
        """Return the version that adds most to the batch for its price, the middle of equals; None if none is worth a run."""
        gains = self._worth * joint.added_information(self._failure)
        if float(gains.max(initial=0.0)) < MIN_GAIN_NATS:
            return None
        scores = np.where(gains >= MIN_GAIN_NATS, gains / self._price, 0.0)
        ties = np.flatnonzero(scores >= float(scores.max()) - 1e-12)
        return int(self.edges[ties[len(ties) // 2]])


class _Joint:
    """Distribution over bins and the outcomes of the runs chosen so far."""

    def __init__(self, mass: FloatArray) -> None:
        self._table = mass[None, :]  # (outcomes of the batch, bins)
        self.num_outcomes = 0

    def added_information(self, failure: FloatArray) -> FloatArray:
        """Return, per version, the mutual information (nats) that its outcome adds: H(Y | batch) - H(Y | batch, c)."""
        fails = self._table @ failure.T  # (outcomes, versions)
        totals = self._table.sum(axis=1, keepdims=True)
        expected = _entropy_of_split(fails, totals - fails, totals).sum(axis=0)
        given = self._table.sum(axis=0) @ _binary_entropy(failure).T
        return np.asarray(np.maximum(expected - given, 0.0), dtype=np.float64)

    def add(self, failure: FloatArray) -> None:
        """Take one more run into the batch."""
        self._table = np.vstack([self._table * failure, self._table * (1.0 - failure)])
        self.num_outcomes += 1


def _entropy_of_split(left: FloatArray, right: FloatArray, total: FloatArray) -> FloatArray:
    """Return total * h(left / total), 0 where there is nothing."""
    return -_x_ln_x(left) - _x_ln_x(right) + _x_ln_x(total)


def _binary_entropy(p: FloatArray) -> FloatArray:
    return -_x_ln_x(p) - _x_ln_x(1.0 - p)


def _x_ln_x(values: FloatArray) -> FloatArray:
    kept = np.maximum(values, 0.0)
    return np.asarray(kept * np.log(np.maximum(kept, 1e-300)), dtype=np.float64)


def _versions_of_interest(num_changes: int, below: FloatArray, worth: FloatArray, run: Sequence[int]) -> NDArray[np.int_]:
    """Return the versions to choose among: all of a short line; of a long one those already run and quantiles of the belief."""
    usable = np.flatnonzero(worth > 0.0)
    forced = np.array([version for version in run if 0 <= version <= num_changes], dtype=int)
    if num_changes <= 2 * NUM_CUTS or not len(usable):
        return np.concatenate([usable, forced])
    wanted = np.searchsorted(below, (np.arange(NUM_CUTS) + 0.5) / NUM_CUTS)
    around = np.concatenate([wanted - 1, wanted, wanted + 1])
    near = usable[np.clip(np.searchsorted(usable, around), 0, len(usable) - 1)]
    return np.concatenate([near, forced])
