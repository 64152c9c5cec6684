"""Where the numbers come from: which file, how finely written, and whether they say what the recorder saw."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Fingerprint, MetricOrigin, MetricSeries, RankRecord, StepRecord
from bisect_train.core.metric_names import recorded_name
from bisect_train.report.case import Case
from bisect_train.report.words import say_count, say_number
from bisect_train.verdict.outcome import OutcomeKind, metric_origin

ALL_DIGITS = 15
"""Significant digits from which a printed float64 is printed in full."""

_SAID_BITS = {24: "as float32", 53: "as float64"}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where a written metric is not what the recorder saw.

    Attributes:
        name, recorded: of the metric, and of what the recorder has.
        step: 0-based, the first one at which they differ.
        largest: largest difference, in the metric's unit.
        written, seen: both values at the first such step.
    """

    name: str
    recorded: str
    step: int
    largest: float
    written: float
    seen: float


def say_origin(case: Case) -> str:
    """Return where the primary metric was read, ` (read from the log with 2 decimals)`; "" where the recorder has it."""
    name = case.question.metric.name
    origins = [metric_origin(run.fingerprint, name) for run in case.runs]
    known = [origin for origin in origins if origin.source != "recorder" and not (origin.decimals is origin.bits is None)]
    if not known:
        return ""
    origin = known[0]
    return f" (read from {origin.file or 'the log'} {say_precision(origin)})"


def say_precision(origin: MetricOrigin) -> str:
    """Return how finely values are written, `with 2 decimals`."""
    if origin.bits is not None:
        return _SAID_BITS.get(origin.bits, f"with {origin.bits} bits")
    if (origin.digits or 0) >= ALL_DIGITS:
        return "with all digits"
    decimals = origin.decimals or 0
    return f"with {say_count(decimals, 'decimal')}" if decimals > 0 else "in whole numbers"


def warn_of_sources(case: Case) -> list[str]:
    """Return a warning per metric that the program writes and the recorder sees otherwise, notes of the readers, and gaps."""
    found: dict[str, list[Disagreement]] = {}
    notes: dict[str, None] = {}
    for run in case.runs:
        for series in run.fingerprint.metrics:
            if series.values and series.origin.note:
                notes[f"{series.name} was read {series.origin.note}"] = None
            if differs := find_disagreement(run.fingerprint, series):
                found.setdefault(series.name, []).append(differs)
    return [*map(_say, found.values()), *notes, *_warn_of_gaps(case)]


def _warn_of_gaps(case: Case) -> list[str]:
    """Return which versions showed no value of the metric though they ran well, where others did."""
    kinds = {run.seen.outcome.kind for run in case.runs}
    if not kinds >= {OutcomeKind.MEASURED, OutcomeKind.NO_METRIC}:
        return []
    blind = [run.seen for run in case.runs if run.seen.outcome.kind is OutcomeKind.NO_METRIC]
    points: dict[str, set[Point]] = {}
    for seen in blind:
        points.setdefault(seen.outcome.reason, set()).add(seen.point)
    return [f"{say_count(len(at), 'version')} could not be tested: {reason}" for reason, at in points.items()]


def _say(items: list[Disagreement]) -> str:
    first = items[0]
    largest = max(item.largest for item in items)
    return (
        f"{first.name} as the program writes it is not the {first.recorded} that the recorder saw, by up to "
        f"{say_number(largest)} in {say_count(len(items), 'run')}; first at step {first.step}: {first.written:.7g} is written, "
        f"{first.seen:.7g} was seen. It may be smoothed, averaged over steps or ranks, or one micro-batch's; "
        f"what the recipe names decides"
    )


def find_disagreement(fingerprint: Fingerprint, series: MetricSeries) -> Disagreement | None:
    """Return where a written metric differs from the recorder's beyond the digits that are written; None where it does not.

    Steps may be counted from 0 or from 1: the count that fits better is taken. None, too, where steps cannot be matched.
    """
    recorded = recorded_name(series.name)
    if not recorded or not series.values or not fingerprint.ranks:
        return None
    num_steps = min(len(rank.steps) for rank in fingerprint.ranks)
    if len(series.steps) == len(series.values):
        tries = [[step - first for step in series.steps] for first in (0, 1)]
    elif len(series.values) == num_steps:
        tries = [list(range(num_steps))]
    else:
        return None
    compared = [_compare(fingerprint.ranks, series, recorded, steps) for steps in tries]
    best = min((item for item in compared if item[0]), key=lambda item: len(item[1]) / item[0], default=None)
    if best is None or not best[1]:
        return None
    step, written, seen = best[1][0]
    largest = max(abs(one - other) for _, one, other in best[1])
    return Disagreement(series.name, recorded, step, largest, written, seen)


def _compare(
    ranks: tuple[RankRecord, ...], series: MetricSeries, recorded: str, steps: list[int]
) -> tuple[int, list[tuple[int, float, float]]]:
    """Return how many values have a recorded step, and (step, written, seen) of those that differ from it."""
    tables = [{step.step: step for step in rank.steps} for rank in ranks]
    num, differing = 0, []
    for step, value in zip(steps, series.values, strict=True):
        seen = [shown for table in tables if (shown := _value_at(table.get(step), recorded)) is not None]
        if not seen or not all(map(math.isfinite, (value, *seen))):
            continue
        num += 1
        mean = math.fsum(seen) / len(seen)
        # a float32 that was printed, or summed in another order, may be off by its own last bits
        slack = series.origin.unit_at(value) + 1e-6 * abs(value)
        if min(abs(value - mean), abs(value - seen[0])) > slack:
            differing.append((step, value, mean))
    return num, differing


def _value_at(step: StepRecord | None, name: str) -> float | None:
    if step is None:
        return None
    if name == "lr":
        return step.lr[0] if step.lr else None
    if name == "grad_norm":
        return step.clip_norm if step.clip_norm is not None else step.grad_norm
    return step.loss
