"""Pairs: where the same seed moves every variant alike (the same start, the same order of the data), its effect is taken off.

    y(variant, seed) = mean(variant) + effect(seed) + noise
    effect(seed) ~ the mean over both ends of (run on this seed - mean of the end)

With d = bad - good per seed, var(noise) = var(d) / 2, and a run whose seed's effect is estimated from two ends has 1.5 times
that. It helps only where the ends' runs go together, so it is used from a correlation of 0.7 on, and not where the ends lie so
far apart that the seeds do not matter. Whether to pair is decided by the proof of the ends, before any run that it is used on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bisect_train.core.question import Metric
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.replicates import worsening
from bisect_train.verdict.stats import Summary, correlation, summarise

MIN_PAIRS = 5
MIN_CORRELATION = 0.7
MAX_GAP_SD = 6.0


def differences_of(good: Mapping[int, float], bad: Mapping[int, float]) -> list[float]:
    """Return bad - good on the seeds that both ends ran, in order, if they go together; else []."""
    shared = sorted(good.keys() & bad.keys())
    if len(shared) < MIN_PAIRS:
        return []
    if correlation([good[idx] for idx in shared], [bad[idx] for idx in shared]) < MIN_CORRELATION:
        return []
    return [bad[idx] - good[idx] for idx in shared]


def with_pairs(ends: Ends, metric: Metric) -> Ends:
    """Return the ends with the effects of their seeds, where pairing helps; then only seeds that both ends ran count."""
    differences = differences_of(ends.good_values, ends.bad_values)
    if not differences or ends.are_seeds_inert or not 0 < abs(ends.gap) < MAX_GAP_SD * ends.spread:
        return ends
    return paired(ends, metric)


def paired(ends: Ends, metric: Metric) -> Ends:
    """Return the ends with the effects, means and gap of the seeds that both ran."""
    shared = sorted(ends.good_values.keys() & ends.bad_values.keys())
    differences = [ends.bad_values[idx] - ends.good_values[idx] for idx in shared]
    means = [summarise([side[idx] for idx in shared]).mean for side in (ends.good_values, ends.bad_values)]
    effects = {idx: (ends.good_values[idx] - means[0] + ends.bad_values[idx] - means[1]) / 2.0 for idx in shared}
    spread = math.sqrt(0.75) * summarise(differences).sd
    if spread == 0.0:
        return ends
    assert ends.good is not None and ends.bad is not None
    return replace(
        ends,
        seed_effects=effects,
        paired_spread=spread,
        good=replace(ends.good, mean=worsening(means[0], metric)),
        bad=replace(ends.bad, mean=worsening(means[1], metric)),
        gap=means[1] - means[0],
    )


def without_seed_effects(runs: Sequence[Observation], ends: Ends, metric: Metric) -> tuple[list[float], Ends]:
    """Return the values of runs, signed so that larger is worse, and the ends to compare them with.

    With pairs: of the runs whose seed both ends ran, less the seed's effect, and ends with the spread that is left.
    """
    paired = [run for run in runs if run.seed_idx in ends.seed_effects]
    if not paired:
        return [worsening(run.outcome.value or 0.0, metric) for run in runs], ends
    values = [worsening(run.outcome.value or 0.0, metric) - ends.seed_effects[run.seed_idx] for run in paired]
    assert ends.good is not None and ends.bad is not None
    good, bad = (Summary(side.mean, ends.paired_spread, side.num) for side in (ends.good, ends.bad))
    return values, replace(ends, spread=ends.paired_spread, good=good, bad=bad)
