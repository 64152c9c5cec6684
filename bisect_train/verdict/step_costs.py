"""What a step costs: the times that count, and how a run compares with the good end's run beside it.

    a step's time    as recorded, less the recorder's own (CPU time comes without it)
    of a run         its first steps left out: a fifth of them, two at least (they compile, allocate and fill caches)
    wall time        by the fastest step: whatever else a machine does only adds to it
    CPU, CUDA time   by the median step
    of a pair        100 (run / good end's run beside it - 1), in percent

Measured with 14 + 14 runs of one attention layer under a load of 3.4 on 2 cores: the standard deviation of a run was 28 % by
its median wall time and 10 % by its fastest step, 2.5 % by the median CPU time; of a pair's ratio 45 %, 2.9 % and 3.6 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from bisect_train.core.fingerprint import RankRecord, StepRecord
from bisect_train.core.question import Metric

TIME_METRICS = {
    "step_s": Metric("step_s", reduce="min", unit="%", is_paired=True),
    "step_cpu_s": Metric("step_cpu_s", reduce="median", unit="%", is_paired=True),
    "step_cuda_s": Metric("step_cuda_s", reduce="median", unit="%", is_paired=True),
}
"""Times of a step as they are judged: against the good end beside it, in percent."""

MAX_DEFAULT_PERCENT = 5.0  # of the smallest worsening that counts, where none was given; chosen, not measured
WARM_UP_SHARE = 5  # one step in so many is left out
MIN_WARM_UP = 2
# two-sided 0.5 % with a power of 80 %, normal: (2.81 + 0.84)^2, twice for two groups
PAIRS_FACTOR = 26.6
MIN_PAIRS = 5
MAX_PAIRS = 200  # beyond that a quieter machine is the better advice


def num_warm_up(num_steps: int) -> int:
    """Return how many of the first steps do not count; one step at least does."""
    return min(max(MIN_WARM_UP, num_steps // WARM_UP_SHARE), max(0, num_steps - 1))


def step_times(ranks: Sequence[RankRecord], name: str) -> tuple[float, ...]:
    """Return the times of the steps that count, seconds: mean over the ranks that recorded them.

    Args:
        ranks: of one run.
        name: one of TIME_METRICS.
    """
    num_steps = min((len(rank.steps) for rank in ranks), default=0)
    own_s = [_own_s(rank) if name == "step_s" else 0.0 for rank in ranks]
    values = []
    for idx in range(num_warm_up(num_steps), num_steps):
        known = [(_time_of(rank.steps[idx], name), own) for rank, own in zip(ranks, own_s, strict=True)]
        times = [max(0.0, value - own) for value, own in known if value is not None]
        if times:
            values.append(math.fsum(times) / len(times))
    return tuple(values)


def _time_of(step: StepRecord, name: str) -> float | None:
    value = getattr(step, name)
    return None if value is None else float(value)


def _own_s(rank: RankRecord) -> float:
    """Return the recorder's own time in a typical step: that of a single one may belong to the step after it."""
    known = [step.self_s for step in rank.steps[num_warm_up(len(rank.steps)) :] if step.self_s is not None]
    return median(known) if known else 0.0


def percent_above(value: float, reference: float) -> float | None:
    """Return by how many percent a value is above the reference's, None where that is not positive."""
    return 100.0 * (value / reference - 1.0) if reference > 0.0 else None


def pairs_needed(gap: float, spread: float) -> int | None:
    """Return about how many pairs at each end would tell a gap of this size from chance; None if there is no gap.

    Args:
        gap: how much worse the bad end is, in the metric's unit.
        spread: standard deviation of one pair, in the same unit.
    """
    if gap <= 0.0 or spread <= 0.0:
        return None
    return max(MIN_PAIRS, math.ceil(PAIRS_FACTOR * (spread / gap) ** 2))


def say_too_noisy(metric: Metric, *, gap: float, spread: float, num_pairs: int, any_change: bool = False) -> str:
    """Return why a paired metric did not tell the ends apart: how far apart they lie, how wide the pairs are, what would help.

    Args:
        metric: a paired one.
        gap: how much worse the bad end looks, in percent.
        spread: standard deviation of one pair, in percent.
        num_pairs: pairs at each end.
        any_change: whether a change for the better counts, too.
    """
    needed = pairs_needed(abs(gap) if any_change else gap, spread)
    side = "worse" if gap > 0 else "better"
    said = f"this machine is too noisy to tell: by {metric.name} the bad end looks {side} by {_say_percent(abs(gap))} %"
    said += f", and pairs of runs spread by {_say_percent(spread)} % ({num_pairs} at each end)"
    helps = []
    if needed is not None and num_pairs < needed <= MAX_PAIRS:
        helps.append(f"about {needed} pairs at each end would be needed (--seeds {needed})")
    if metric.name == "step_s":
        helps.append("--metric step_cpu_s is less disturbed by what else runs here")
    return said + (f"; {', or '.join(helps)}" if helps else "")


def _say_percent(value: float) -> str:
    """Return two digits, and all of those before the point."""
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"
