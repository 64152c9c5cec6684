"""How big a culprit's effect is: its parent against itself by the proof's fresh runs, alone and as a share of the ends' gap.

The share of the gap between the ends that a change explains is a ratio of two differences of means,

    share = J / G,   J = mean(sick) - mean(healthy) of the proof's fresh runs,   G = mean(bad end) - mean(good end) of all runs
    var(share) = s^2 (1/n_sick + 1/n_healthy + share^2 (1/n_bad + 1/n_good)) / G^2

with s the spread pooled over the four groups, and its 95 % interval is share +- t(0.975, dof) sqrt(var): the delta method for
a ratio (Cochran, Sampling Techniques, 1977, section 6.3). The groups are taken as independent: where the same seed moves all of
them together the interval is rather too wide. Where each fresh pair shows exactly the values of its ends (bitwise
equality), or where seeds change nothing, the share is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import special

from bisect_train.core.changes import Point
from bisect_train.report.case import Case, Run
from bisect_train.report.parts import EffectPart
from bisect_train.search.terms import Culprit
from bisect_train.verdict.proof import Claim, ClaimKind
from bisect_train.verdict.replicates import worsening
from bisect_train.verdict.stats import Summary, pooled_sd, summarise


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the gap (1 is all of it) and the bounds of its 95 % interval; None where unknown."""

    value: float | None
    low: float | None
    high: float | None


def measure_effect(case: Case, culprit: Culprit) -> EffectPart | None:
    """Return the effect of a culprit, None if its proof has no runs."""
    claim = next((item.claim for item in culprit.claims if item.claim.kind is ClaimKind.PARENT), None)
    if claim is None:
        return None
    attempt = case.proof_attempt(culprit.changes)
    healthy, sick = (case.at(point, attempt=attempt) for point in (claim.healthy, claim.sick))
    if not healthy or not sick or attempt == 0:
        return None
    if case.is_symptom:
        return _effect_of_symptom(case, healthy, sick)
    return _effect_of_values(case, claim, attempt)


def _effect_of_symptom(case: Case, healthy: Sequence[Run], sick: Sequence[Run]) -> EffectPart:
    """Return the effect of a failure: the share of the fresh runs that fail."""
    rates = [_failing_rate(runs, case.ends.signature) for runs in (healthy, sick)]
    jump = rates[1].mean - rates[0].mean
    return EffectPart(
        metric="failing runs",
        unit="share of runs",
        good=rates[0].mean,
        bad=rates[1].mean,
        good_sd=rates[0].sd,
        bad_sd=rates[1].sd,
        num_good=rates[0].num,
        num_bad=rates[1].num,
        share=jump,
        share_low=None,
        share_high=None,
        spread_from="fresh runs",
    )


def _failing_rate(runs: Sequence[Run], signature: str) -> Summary:
    return summarise([float(run.seen.outcome.signature == signature) for run in runs])


def _effect_of_values(case: Case, claim: Claim, attempt: int) -> EffectPart | None:
    values = {
        point: _values_by_seed(case, point, attempt) for point in (claim.healthy, claim.sick, case.good_point, case.bad_point)
    }
    if not values[claim.healthy] or not values[claim.sick]:
        return None
    good, bad = (summarise(list(values[point].values())) for point in (claim.healthy, claim.sick))
    share = _share(case, values, claim)
    is_single = min(good.num, bad.num) < 2
    good_sd, bad_sd = (_sd_of_end(case.ends.good), _sd_of_end(case.ends.bad)) if is_single else (good.sd, bad.sd)
    return EffectPart(
        metric=case.question.metric.name,
        unit=case.unit,
        good=good.mean,
        bad=bad.mean,
        good_sd=good_sd,
        bad_sd=bad_sd,
        num_good=good.num,
        num_bad=bad.num,
        share=share.value,
        share_low=share.low,
        share_high=share.high,
        spread_from="the ends' seeds" if is_single else "fresh runs",
    )


def _sd_of_end(summary: Summary | None) -> float | None:
    return summary.sd if summary is not None and summary.num > 1 else None


def _values_by_seed(case: Case, point: Point, attempt: int) -> dict[int, float]:
    runs = case.at(point, attempt=attempt)
    return {run.seen.seed_idx: run.seen.outcome.value for run in runs if run.seen.outcome.value is not None}


def _share(case: Case, values: Mapping[Point, Mapping[int, float]], claim: Claim) -> Share:
    """Return the share of the gap; all None where it cannot be told."""
    metric = case.question.metric
    fresh = [{i: worsening(value, metric) for i, value in values[point].items()} for point in (claim.healthy, claim.sick)]
    ends = [{i: worsening(value, metric) for i, value in values[point].items()} for point in (case.good_point, case.bad_point)]
    if _jumps_as_ends(fresh, ends):
        return Share(1.0, 1.0, 1.0)
    groups = [list(group.values()) for group in fresh]
    for point in (case.good_point, case.bad_point):
        groups.append([worsening(value, metric) for value in _distinct_values(case, point)])
    share = share_of_gap(*groups)
    return Share(share.value, share.value, share.value) if case.ends.are_seeds_inert else share


def _jumps_as_ends(fresh: Sequence[Mapping[int, float]], ends: Sequence[Mapping[int, float]]) -> bool:
    """Return whether on every fresh seed both sides have exactly the value of their end."""
    seeds = fresh[0].keys() & fresh[1].keys()
    return bool(seeds) and all(ends[side].get(i) == fresh[side][i] for i in seeds for side in (0, 1))


def _distinct_values(case: Case, point: Point) -> list[float]:
    """Return the values of a point's runs, search and proof; repeats and copies of another seed count once."""
    kept: dict[str, float] = {}
    for run in case.at(point):
        outcome = run.seen.outcome
        if outcome.value is not None and run.seen.repeat == 0:
            kept.setdefault(outcome.digest or run.probe.key, outcome.value)
    return list(kept.values())


def share_of_gap(healthy: Sequence[float], sick: Sequence[float], good: Sequence[float], bad: Sequence[float]) -> Share:
    """Return the share of the gap with its 95 % interval, by the formula of this module.

    Args:
        healthy, sick: fresh values of the culprit's parent and the culprit, larger is worse, metric's unit; at least one each.
        good, bad: values of the ends, at least one each.
    """
    groups = (healthy, sick, good, bad)
    if not all(groups):
        return Share(None, None, None)
    means = [math.fsum(group) / len(group) for group in groups]
    gap = means[3] - means[2]
    if gap == 0.0:
        return Share(None, None, None)
    share = (means[1] - means[0]) / gap
    spread, dof = pooled_sd(groups)
    if dof == 0:
        return Share(share, None, None)
    variance = 1 / len(sick) + 1 / len(healthy) + share**2 * (1 / len(bad) + 1 / len(good))
    half = float(special.stdtrit(dof, 0.975)) * spread * math.sqrt(variance) / abs(gap)
    return Share(share, share - half, share + half)
