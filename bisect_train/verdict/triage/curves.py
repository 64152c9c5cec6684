"""The loss as a curve: plateau, spikes, too good, too smooth; and evaluation that does not follow the training loss."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.rates import rates_of
from bisect_train.verdict.triage.run_view import RunView, is_usable
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say

FLAT_SHARE = 1e-3  # of the loss: a drop and a spread below it are flat; chosen, not measured
PLATEAU_SHARE = 0.1  # of the baseline's drop; chosen, not measured
CLEAR_SD = 3.0  # standard deviations that make a difference clear; the usual three sigma
SPIKE_WINDOW = 20  # steps before a step that say what is usual; chosen, not measured
SPIKE_SD = 6.0  # robust standard deviations above their median (a normal step in 1e9); chosen, not measured
SPIKE_SHARE = 0.1  # and at least this share above it; chosen, not measured
MIN_NEW_SPIKES = 2  # more than any healthy run shows; chosen, not measured
UPPER_RATIO = 3.0  # of the upper quantile of the excess; chosen, not measured
UPPER_QUANTILE = 0.99
MIN_SEEDS = 3  # healthy runs before their spread means anything
GOOD_SHARE = 0.5  # of the baseline's loss without a spread to compare with; chosen, not measured
GOOD_SD = 4.0  # seed standard deviations below the mean; chosen, not measured
GOOD_MIN_SHARE = 0.01  # and at least this share of it; chosen, not measured
SMOOTH_SHARE = 0.25  # of the baseline's step-to-step changes; seeds differ by less than a factor of 2 over 20 steps. Chosen
MIN_CURVE_STEPS = 20  # of a curve whose roughness is compared; chosen, not measured
EVAL_SHARE = 0.05  # of the baseline's evaluation without a spread to compare with; chosen, not measured
_EVAL_WORDS = frozenset({"val", "eval", "test", "valid", "validation", "evaluation"})  # whole: a value_loss is a training loss
_LOWER_WORDS = ("loss", "ppl", "perplexity", "error", "err", "nll", "bpb")
_HIGHER_WORDS = ("acc", "f1", "bleu", "auc", "score", "reward")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
MAD_TO_SD = 1.4826  # of a normal distribution

Curve = list[float]


def curve_of(run: RunView) -> Curve:
    """Return the finite losses, in order."""
    return [value for _, value in run.losses if is_usable(value)]


def curves_of_run(result: ProbeResult) -> dict[str, dict[int, float]]:
    """Return what a run shows by step, over its ranks: loss, gradient norm before clipping, rate of the first group."""
    run = RunView.of(result)
    return {
        "loss": dict(run.losses),
        "grad_norm": run.pre_clip_norms,
        "lr": {step: rates[0] for step, rates in rates_of(run).items()},
    }


def find_plateau(look: Look) -> Iterator[Finding]:
    """Tell of a loss that does not drop: within the sanity window, or against a baseline whose loss does."""
    if look.base is not None:
        yield from _flatter(look)
        return
    curve, window = curve_of(look.run), max(MIN_CURVE_STEPS, look.asked.sanity_window)
    if len(curve) < window or look.run.events("checkpoint_loaded") or _is_warming_up(look.run):
        return
    curve = curve[:window]
    level, fall, spread = abs(fmean(curve)), _drop(curve), stdev(curve)
    if level > 0.0 and fall < FLAT_SHARE * level and spread < FLAT_SHARE * level:
        evidence = [Evidence(f"drop of the loss in {window} steps", say(fall), f"at least {say(FLAT_SHARE * level)}", CHOSEN)]
        yield find("plateau", f"the loss stays at {say(fmean(curve))} for {window} steps", step=0, evidence=evidence)


def _is_warming_up(run: RunView) -> bool:
    """Return whether the learning rate still grows, or is 0, at the end."""
    rates = [max(values) for _, values in sorted(rates_of(run).items())]
    return bool(rates) and (rates[-1] <= 0.0 or rates[-1] > 1.01 * median(rates))


def _drop(curve: Sequence[float]) -> float:
    """Return the mean of the first tenth minus the median of the last quarter, which a spike or two do not move."""
    return fmean(curve[: max(1, len(curve) // 10)]) - median(curve[-max(1, len(curve) // 4) :])


def _flatter(look: Look) -> Iterator[Finding]:
    assert look.base is not None
    mine, theirs = _shared(look.run, look.base)
    if len(mine) < MIN_CURVE_STEPS:
        return
    fall, fall_base = _drop(mine), _drop(theirs)
    others = [_drop(curve_of(other)[: len(mine)]) for other in look.others if len(curve_of(other)) >= len(mine)]
    noise = CLEAR_SD * max(_roughness(theirs), _roughness(mine)) / math.sqrt(max(1, len(mine) // 10))
    if fall_base > noise and fall < PLATEAU_SHARE * min([fall_base, *others]):
        limit = f"at least {PLATEAU_SHARE:.0%} of {say(min([fall_base, *others]))}"
        evidence = [Evidence(f"drop of the loss in {len(mine)} steps", say(fall), limit, f"the baseline; {CHOSEN}")]
        summary = f"the loss drops by {say(fall)} in {len(mine)} steps; in the baseline by {say(fall_base)}"
        yield find("plateau", summary, step=0, evidence=evidence, needs_baseline=True)


def _shared(run: RunView, base: RunView) -> tuple[Curve, Curve]:
    """Return the two curves over the steps that both have with finite losses."""
    mine, theirs, steps = dict(run.losses), dict(base.losses), _shared_steps(run, base)
    return [mine[step] for step in steps], [theirs[step] for step in steps]


def _shared_steps(run: RunView, base: RunView) -> list[int]:
    mine, theirs = dict(run.losses), dict(base.losses)
    return [step for step in sorted(mine.keys() & theirs.keys()) if is_usable(mine[step]) and is_usable(theirs[step])]


def _roughness(curve: Sequence[float]) -> float:
    """Return the robust standard deviation of a step around the curve.

    Second differences leave out trend and slow bends; of independent noise they have the variance 1 + 4 + 1 = 6.
    """
    if len(curve) < 3:
        return 0.0
    bends = [before - 2.0 * here + after for before, here, after in zip(curve, curve[1:], curve[2:], strict=False)]
    return MAD_TO_SD * median(map(abs, bends)) / math.sqrt(6.0)


def spike_steps(curve: Sequence[float]) -> list[int]:
    """Return the places of spikes: far above the median of the steps before, by their robust spread."""
    found = []
    for idx in range(SPIKE_WINDOW // 2, len(curve)):
        before = curve[max(0, idx - SPIKE_WINDOW) : idx]
        middle = median(before)
        spread = MAD_TO_SD * median(abs(value - middle) for value in before)
        if curve[idx] > middle + max(SPIKE_SD * spread, SPIKE_SHARE * abs(middle)):
            found.append(idx)
    return found


def _upper_excess(curve: Sequence[float]) -> float:
    """Return the upper quantile of how far steps lie above the median of the steps before."""
    excess = sorted(
        value - median(curve[max(0, idx - SPIKE_WINDOW) : idx]) for idx, value in enumerate(curve) if idx >= SPIKE_WINDOW // 2
    )
    return max(0.0, excess[min(len(excess) - 1, int(UPPER_QUANTILE * len(excess)))]) if excess else 0.0


def find_spikes(look: Look) -> Iterator[Finding]:
    """Tell of more spikes than any healthy run has, or far larger ones."""
    if look.base is None:
        return
    (mine, theirs), steps = _shared(look.run, look.base), _shared_steps(look.run, look.base)
    healthy = [theirs, *(curve_of(other)[: len(mine)] for other in look.others)]
    places, most = spike_steps(mine), max(len(spike_steps(curve)) for curve in healthy)
    upper, upper_base = _upper_excess(mine), max(_upper_excess(curve) for curve in healthy)
    is_larger = len(places) >= most > 0 and upper > UPPER_RATIO * upper_base  # all have spikes, these are far larger
    if len(places) >= most + MIN_NEW_SPIKES or is_larger:
        evidence = [
            Evidence(
                "loss spikes", str(len(places)), f"at most {most}", f"the healthy runs and {MIN_NEW_SPIKES - 1} more; {CHOSEN}"
            ),
            Evidence(f"{UPPER_QUANTILE:.0%} quantile of the excess", say(upper), say(upper_base), "the healthy runs"),
        ]
        summary = f"{len(places)} loss spikes in {len(mine)} steps; at most {most} in the healthy runs"
        step = steps[places[0]] if places else None
        yield find("loss_spikes", summary, step=step, evidence=evidence, needs_baseline=True)


def find_too_good(look: Look) -> Iterator[Finding]:
    """Tell of a loss below what other seeds explain; without other seeds only of one below half of the baseline's."""
    if look.base is None:
        return
    mine, theirs = _shared(look.run, look.base)
    if len(mine) < 4:
        return
    level, level_base = _tail(mine), _tail(theirs)
    seeds = [_tail(curve) for other in look.others if len(curve := curve_of(other)[: len(mine)]) == len(mine)]
    limit, source = GOOD_SHARE * level_base, f"{GOOD_SHARE:.0%} of the baseline's, without other seeds; {CHOSEN}"
    more = f": less than {GOOD_SHARE:.0%} of it"
    if len(seeds) + 1 >= MIN_SEEDS:
        known = [level_base, *seeds]
        limit = min(fmean(known) - GOOD_SD * stdev(known), min(known) - GOOD_MIN_SHARE * abs(fmean(known)))
        source = f"{GOOD_SD:g} standard deviations below {len(known)} seeds, and {GOOD_MIN_SHARE:.0%} below the best; {CHOSEN}"
        more = ": better than its seeds explain"
    if level < limit and level_base > 0.0:
        evidence = [Evidence("loss, mean of the last quarter", say(level), f"at least {say(limit)}", source)]
        summary = f"the loss is {say(level)}; the baseline's is {say(level_base)}{more}"
        yield find("too_good", summary, evidence=evidence, needs_baseline=True)


def _tail(curve: Sequence[float]) -> float:
    return fmean(curve[-max(1, len(curve) // 4) :])


def find_too_smooth(look: Look) -> Iterator[Finding]:
    """Tell of a curve whose step-to-step changes are a fraction of the baseline's, in proportion to its level.

    One that stays above the baseline's does not learn, and is no curve that is too good.
    """
    if look.base is None:
        return
    mine, theirs = _shared(look.run, look.base)
    if len(mine) < MIN_CURVE_STEPS or abs(_tail(mine)) == 0.0 or abs(_tail(theirs)) == 0.0:
        return
    healthy = [
        theirs,
        *(curve for other in look.others if len(curve := curve_of(other)[: len(mine)]) == len(mine) and _tail(curve)),
    ]
    rough = _roughness(mine) / abs(_tail(mine))
    limit = SMOOTH_SHARE * min(_roughness(curve) / abs(_tail(curve)) for curve in healthy)
    is_above = _tail(mine) > _tail(theirs) + max(GOOD_MIN_SHARE * abs(_tail(theirs)), CLEAR_SD * _roughness(theirs))
    if rough < limit and not is_above:
        evidence = [
            Evidence(
                "step-to-step spread of the loss, share of its level",
                say(rough),
                f"at least {say(limit)}",
                f"{SMOOTH_SHARE:.0%} of the healthy runs'; {CHOSEN}",
            )
        ]
        num_equal = sum(repr(a) == repr(b) for a, b in pairwise(mine))
        evidence += [Evidence("steps that repeat the loss before", str(num_equal))] if num_equal else []
        summary = f"the loss fluctuates by {say(rough)} of its level, less than {SMOOTH_SHARE:.0%} of what the healthy runs do"
        yield find("too_smooth", summary, evidence=evidence, needs_baseline=True)


def find_bad_evaluation(look: Look) -> Iterator[Finding]:
    """Tell of an evaluation of the log that is worse than the baseline's while the training loss is not."""
    if look.base is None:
        return
    mine, theirs = _shared(look.run, look.base)
    if not mine or _tail(mine) > _tail(theirs) + max(GOOD_MIN_SHARE * abs(_tail(theirs)), _roughness(theirs)):
        return
    for name in (series.name for series in look.run.fingerprint.metrics):
        sign = _sign_of_worse(name, look)
        values = [_last(run.fingerprint, name) for run in (look.run, look.base, *look.others)]
        value, base, *rest = (None if item is None else sign * item for item in values)
        if sign == 0.0 or value is None or base is None:
            continue
        seeds = [base, *(item for item in rest if item is not None)]
        margin, source = EVAL_SHARE * abs(base), f"{EVAL_SHARE:.0%} of the baseline's, without other seeds; {CHOSEN}"
        if len(seeds) >= MIN_SEEDS:
            margin, source = (
                CLEAR_SD * stdev(seeds) + max(seeds) - base,
                f"{CLEAR_SD:g} standard deviations beyond {len(seeds)} seeds",
            )
        if value > base + margin and margin >= 0.0:
            evidence = [
                Evidence(name, say(sign * value), f"{say(sign * base)} within {say(margin)}", source),
                Evidence("training loss, mean of the last quarter", say(_tail(mine)), say(_tail(theirs)), "the baseline"),
            ]
            summary = f"{name} is {say(sign * value)} against {say(sign * base)}, though the training loss is not worse"
            yield find("bad_evaluation", summary, evidence=evidence, needs_baseline=True)
            return


def _sign_of_worse(name: str, look: Look) -> float:
    """Return 1 where larger values of an evaluation are worse, -1 where smaller ones are, 0 for what is no evaluation."""
    lowered = name.lower()
    if _EVAL_WORDS.isdisjoint(word.lower() for word in _WORD.findall(name)):
        return 0.0
    if name == look.asked.metric.name:
        return 1.0 if look.asked.metric.better == "lower" else -1.0
    if any(word in lowered for word in _LOWER_WORDS):
        return 1.0
    return -1.0 if any(word in lowered for word in _HIGHER_WORDS) else 0.0


def _last(fingerprint: Fingerprint, name: str) -> float | None:
    values = next((series.values for series in fingerprint.metrics if series.name == name), ())
    return values[-1] if values and is_usable(values[-1]) else None


def num_spikes(run: RunView) -> int:
    """Return the number of loss spikes."""
    return len(spike_steps(curve_of(run)))
