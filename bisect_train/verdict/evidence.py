"""What the runs of one variant say about it, in nats: ln P(runs | BAD) - ln P(runs | GOOD).

Values: the mean of a variant's n runs is compared with what a GOOD and a BAD variant would show,

    y | side ~ (1 - e) t_nu(m_side, s_side^2 / n + s_side^2 / n_side + tau^2) + e Uniform(range)

with the unknown mean of the side integrated out (s^2 / n_side), an offset of the variant's own that repeating it cannot
average away (tau), and a share e of outliers, so that a value unlike both ends says nothing (OTHER).

Where runs repeat bitwise, a run equal to one end on the same seed counts as ln 1000. No single run weighs more than that.
A run equal to neither end is judged by the seed spread, never by which end is nearer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats as scipy_stats

from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion, Evidence, VerdictKind
from bisect_train.verdict.ends import Ends, worsening
from bisect_train.verdict.outcome import Observation, OutcomeKind
from bisect_train.verdict.stats import summarise

MAX_NATS = math.log(1000.0)
DECISIVE_NATS = math.log(20.0)
OUTLIER_SHARE = 0.02
OFFSET_SD = 0.5  # tau in units of the seed standard deviation
SYMPTOM_NATS = math.log(100.0)


def judge_variant(runs: Sequence[Observation], ends: Ends, metric: Metric) -> Evidence:
    """Return what all runs of one variant say.

    Args:
        runs: at least one observation of the same variant.
        ends: the proof of the ends, SEPARATED.
        metric: the primary metric.
    """
    if ends.criterion in (Criterion.SYMPTOM, Criterion.JUDGE):
        return _judge_by_symptom(runs, ends)
    measured = [run for run in runs if run.outcome.kind is OutcomeKind.MEASURED]
    if not measured:
        return Evidence(VerdictKind.UNTESTABLE, reason=runs[0].outcome.reason, num_runs=len(runs))
    exact = [nats for run in measured if (nats := _exact_nats(run, ends)) != 0.0]
    if exact:
        total = math.fsum(exact)
        kind = VerdictKind.INCONCLUSIVE if total == 0 else VerdictKind.BAD if total > 0 else VerdictKind.GOOD
        end = "bad" if total > 0 else "good"
        return Evidence(kind, total, len(measured), f"bitwise equal to the {end} end")
    if ends.criterion is Criterion.EXACT:
        return Evidence(VerdictKind.OTHER, 0.0, len(measured), "bitwise equal to neither end")
    return _judge_by_value([worsening(run.outcome.value or 0.0, metric) for run in measured], ends, metric)


def _exact_nats(run: Observation, ends: Ends) -> float:
    digest = run.outcome.digest
    if not ends.repeats_bitwise or not digest:
        return 0.0
    seed_idx = 0 if ends.are_seeds_inert else run.seed_idx
    is_good = digest == ends.good_digests.get(seed_idx)
    is_bad = digest == ends.bad_digests.get(seed_idx)
    return 0.0 if is_good == is_bad else MAX_NATS if is_bad else -MAX_NATS


def _judge_by_symptom(runs: Sequence[Observation], ends: Ends) -> Evidence:
    num_bad = sum(run.outcome.signature == ends.signature for run in runs)
    num_good = sum(run.outcome.kind in (OutcomeKind.MEASURED, OutcomeKind.NO_METRIC) for run in runs)
    if num_bad + num_good == 0:
        return Evidence(VerdictKind.UNTESTABLE, reason=runs[0].outcome.reason, num_runs=len(runs))
    nats = SYMPTOM_NATS * (num_bad - num_good)
    if nats == 0:
        return Evidence(VerdictKind.INCONCLUSIVE, 0.0, len(runs), f"fails in {num_bad} of {num_bad + num_good} runs")
    kind = VerdictKind.BAD if nats > 0 else VerdictKind.GOOD
    reason = "ends as the bad end does" if nats > 0 else "does not fail"
    return Evidence(kind, nats, num_bad + num_good, reason)


def _judge_by_value(values: list[float], ends: Ends, metric: Metric) -> Evidence:
    mean, num = summarise(values).mean, len(values)
    densities = [_density_of_side(mean, num, ends, metric, is_bad=is_bad) for is_bad in (True, False)]
    nats = math.log(densities[0]) - math.log(densities[1])
    nats = max(-MAX_NATS * num, min(MAX_NATS * num, nats))
    shown = worsening(mean, metric)
    if abs(nats) >= DECISIVE_NATS:
        kind = VerdictKind.BAD if nats > 0 else VerdictKind.GOOD
        return Evidence(kind, nats, num, f"{metric.name} {shown:.6g} is what a {kind.value} run shows")
    is_unlike_both = max(densities) < 2.0 * OUTLIER_SHARE / _range_of(ends)
    kind = VerdictKind.OTHER if is_unlike_both else VerdictKind.INCONCLUSIVE
    return Evidence(kind, nats, num, f"{metric.name} {shown:.6g} decides nothing")


def _density_of_side(mean: float, num: int, ends: Ends, metric: Metric, *, is_bad: bool) -> float:
    """Return the predictive density of a variant's mean value if it belongs to one side."""
    side = ends.bad if is_bad else ends.good
    assert side is not None
    sd = _sd_of_side(side.sd, side.num, ends)
    tau = max(OFFSET_SD * ends.spread, ends.min_effect / 2.0)
    scale = math.sqrt(sd * sd * (1.0 / num + 1.0 / side.num) + tau * tau) or 1e-12
    dof = min(30, max(3, (ends.good.num if ends.good else 1) + (ends.bad.num if ends.bad else 1) - 2))
    inlier = float(scipy_stats.t.pdf((mean - worsening(side.mean, metric)) / scale, dof)) / scale
    return (1.0 - OUTLIER_SHARE) * inlier + OUTLIER_SHARE / _range_of(ends)


def _sd_of_side(sd: float, num: int, ends: Ends) -> float:
    """Return the side's own spread, shrunk towards the pooled one as if four more runs had shown that."""
    weight = 4.0
    return math.sqrt((weight * ends.spread**2 + (num - 1) * sd**2) / (weight + num - 1)) or ends.spread


def _range_of(ends: Ends) -> float:
    """Return the width over which an outlier could lie: several gaps, several spreads."""
    return 4.0 * abs(ends.gap) + 20.0 * ends.spread or 1e-9


def expected_error(ends: Ends) -> float:
    """Return how often one run is expected to point to the wrong side, 0.001 to 0.4: Phi(-d'/2) for values."""
    if ends.criterion in (Criterion.SYMPTOM, Criterion.JUDGE):
        return math.exp(-SYMPTOM_NATS)
    if ends.criterion is Criterion.EXACT:
        return 0.001
    spread = math.hypot(ends.spread, max(OFFSET_SD * ends.spread, ends.min_effect / 2.0)) or 1e-12
    return float(min(0.4, max(0.001, scipy_stats.norm.sf(abs(ends.gap) / spread / 2.0))))
