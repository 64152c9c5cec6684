"""Where a printed rate decided: whether a step itself takes longer, by the times that the same pairs of runs recorded."""

from __future__ import annotations

from statistics import fmean

from scipy import stats

from bisect_train.core.changes import Point
from bisect_train.report.case import Case, Run
from bisect_train.report.words import say_number
from bisect_train.verdict.outcome import reduce_values
from bisect_train.verdict.step_costs import MAX_DEFAULT_PERCENT, TIME_METRICS, percent_above, step_times

MIN_RUNS = 3
NAMES = {"step_cuda_s": "the GPU's time of a step", "step_cpu_s": "CPU time of a step"}


def say_step_beside(case: Case) -> tuple[str, ...]:
    """Return one sentence about the time of a step, none where the metric is a time, or where too few pairs tell."""
    metric = case.question.metric
    if not metric.is_paired or metric.name in TIME_METRICS:
        return ()
    for name, said in NAMES.items():
        good, bad = ([value for run in case.at(point) if (value := _percent(run, name)) is not None] for point in _ends(case))
        if min(len(good), len(bad)) < MIN_RUNS:
            continue
        gap = fmean(bad) - fmean(good)
        interval = stats.ttest_ind(bad, good, equal_var=False).confidence_interval(0.95)
        low, high = float(interval.low), float(interval.high)
        span = f"{_signed(gap)} % at the bad end (95 %: {_signed(low)} to {_signed(high)} %, {len(good)} + {len(bad)} pairs)"
        if low > -MAX_DEFAULT_PERCENT and high < MAX_DEFAULT_PERCENT:
            return (
                f"A step takes as long as before: {said} ({name}) {span}. What {metric.name} says has changed, not the speed.",
            )
        return (f"Beside it, {said} ({name}): {span}.",)
    return ()


def _ends(case: Case) -> tuple[Point, Point]:
    return case.good_point, case.bad_point


def _percent(run: Run, name: str) -> float | None:
    """Return by how many percent a run's steps take longer than those of the good end's run beside it."""
    reference = run.fingerprint.reference
    if reference is None:
        return None
    own, beside = step_times(run.fingerprint.ranks, name), step_times(reference.ranks, name)
    if not own or not beside:
        return None
    how = TIME_METRICS[name].reduce
    return percent_above(reduce_values(own, how), reduce_values(beside, how))


def _signed(value: float) -> str:
    return say_number(round(value, 1), signed=True)
