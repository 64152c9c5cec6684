"""Pictures as values: what is drawn, never how. The browser draws them with plotly in the colours of the page.

Every figure has a table or a sentence beside it that says the same. Names are escaped here, since plotly reads a little HTML.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.core.fingerprint import Fingerprint, RankRecord, StepRecord
from bisect_train.report.parts import ReportData
from bisect_train.report.triage_parts import RankCurve, TriagePart
from bisect_train.report.words import say_number
from bisect_train.service.pages.clean import one_line
from bisect_train.verdict.divergence import norm_before_clipping

MAX_POINTS = 600  # of a curve; more cannot be seen
MAX_RANKS = 8
NAME_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture.

    Attributes:
        id: unique on its page.
        title: what it shows, in a few words.
        alt: the same in a sentence with numbers, for those who do not see it.
        data: for the browser: `x`, `y` (titles) and `traces`.
        height: pixels.
    """

    id: str
    title: str
    alt: str
    data: dict[str, Any]
    height: int = 340


def trace(
    name: str, xs: Sequence[float], ys: Sequence[float | None], *, colour: str, dash: str = "solid", width: float = 2.0
) -> dict[str, Any]:
    """Return one line. `colour` is a name that the style sheet knows: good, bad, ink, or c0 .. c7."""
    every = max(1, math.ceil(len(xs) / MAX_POINTS))
    # the last point is always shown
    kept = sorted({*range(0, len(xs), every), len(xs) - 1}) if xs else []
    return {
        "name": label(name),
        "x": [xs[idx] for idx in kept],
        "y": [finite(ys[idx]) for idx in kept],
        "colour": colour,
        "dash": dash,
        "width": width,
    }


def label(text: str) -> str:
    """Return a name as plotly may read it: one short line without markup."""
    line = one_line(text)
    return html.escape(line if len(line) <= NAME_WIDTH else line[: NAME_WIDTH - 3] + "...")


def finite(value: float | None) -> float | None:
    """Return the number, None where strict JSON has none."""
    return value if value is not None and math.isfinite(value) else None


def figure_of_curves(report: ReportData) -> Figure | None:
    """Return the metric of the ends and of the culprit's two sides, step by step."""
    if not report.curves:
        return None
    looks = {
        "good": ("good", "solid", 6.0),
        "bad": ("bad", "solid", 6.0),
        "parent": ("ink", "dash", 2.0),
        "culprit": ("ink", "dot", 2.5),
    }
    traces = []
    for curve in report.curves:
        colour, dash, width = looks[curve.role]
        traces.append(trace(curve.label, curve.steps, curve.values, colour=colour, dash=dash, width=width))
    ends = "; ".join(f"{curve.label} ends at {say_number(curve.values[-1])}" for curve in report.curves)
    alt = f"{one_line(report.curves[0].metric)} over steps, on the same seed: {ends}"
    return Figure("curves", f"{report.curves[0].metric}, step by step", alt, _xy("step", report.curves[0].metric, traces))


def figures_of_ranks(part: TriagePart) -> tuple[Figure, ...]:
    """Return losses and gradient norms of the ranks, of the run and of the one that it is compared with."""
    figures = []
    for name, title, is_loss in (
        ("rank-losses", "Loss, rank by rank", True),
        ("rank-norms", "Gradient norm, rank by rank", False),
    ):
        traces = [_rank_trace(curve, curve.losses if is_loss else curve.grad_norms) for curve in part.curves]
        traces = [item for item in traces if any(value is not None for value in item["y"])]
        if traces:
            alt = f"{title}: {len(part.ranks)} ranks; the numbers are in the table of ranks"
            dotted = "; dotted: before it" if any(item["unlisted"] for item in traces) else ""
            figures.append(Figure(name, f"{title}{dotted}", alt, _xy("step", title.split(",")[0].lower(), traces), 260))
    return tuple(figures)


def _rank_trace(curve: RankCurve, values: Sequence[float | None]) -> dict[str, Any]:
    is_run = curve.side == "run"
    name = f"rank {curve.rank}, {'with it' if is_run else 'before it'}"
    dash, width = ("solid", 2.0) if is_run else ("dot", 4.0)
    # the run before it has the colours of the run with it, dotted: the legend names them once
    return trace(name, curve.steps, values, colour=f"c{curve.rank % 8}", dash=dash, width=width) | {"unlisted": not is_run}


def figures_of_run(fingerprint: Fingerprint) -> tuple[Figure, ...]:
    """Return loss and gradient norm of each rank of a run, and the metrics of its log."""
    figures = []
    for name, title, read in (("losses", "Loss", _loss), ("norms", "Gradient norm before clipping", norm_before_clipping)):
        traces = [_trace_of_rank(record, read) for record in fingerprint.ranks[:MAX_RANKS]]
        traces = [item for item in traces if sum(value is not None for value in item["y"]) > 1]
        if traces:
            data = _xy("step", title.lower().removesuffix(" before clipping"), traces)
            figures.append(Figure(name, f"{title}, rank by rank", _say_traces(title, traces), data, 280))
    for idx, series in enumerate(fingerprint.metrics[:4]):
        if len(series.values) > 1:
            steps = series.steps if len(series.steps) == len(series.values) else range(len(series.values))
            traces = [trace(series.name, list(steps), series.values, colour="c0")]
            title = f"{one_line(series.name)}, as the program says"
            figures.append(Figure(f"metric-{idx}", title, _say_traces(title, traces), _xy("step", series.name, traces), 280))
    return tuple(figures)


def _loss(step: StepRecord) -> float | None:
    return step.loss


def _trace_of_rank(record: RankRecord, read: Any) -> dict[str, Any]:
    steps = [step.step for step in record.steps]
    dashes = ("solid", "dash", "dot", "dashdot")
    dash = dashes[record.rank % len(dashes)]
    return trace(f"rank {record.rank}", steps, [read(step) for step in record.steps], colour=f"c{record.rank % 8}", dash=dash)


def figure_of_pair(left: Fingerprint, right: Fingerprint, *, names: tuple[str, str], metric: str = "loss") -> Figure | None:
    """Return the losses of two runs over one another; None where neither has two steps."""
    traces = []
    for fingerprint, name, colour, dash, width in (
        (left, f"A: {names[0]}", "c0", "solid", 5.0),
        (right, f"B: {names[1]}", "c1", "dash", 2.5),
    ):
        steps = fingerprint.ranks[0].steps if fingerprint.ranks else ()
        traces.append(
            trace(name, [step.step for step in steps], [step.loss for step in steps], colour=colour, dash=dash, width=width)
        )
    traces = [item for item in traces if sum(value is not None for value in item["y"]) > 1]
    if not traces:
        return None
    return Figure("pair", "Loss on rank 0", _say_traces("Loss on rank 0", traces), _xy("step", metric, traces))


def _say_traces(title: str, traces: Iterable[dict[str, Any]]) -> str:
    ends = []
    for item in traces:
        values = [value for value in item["y"] if value is not None]
        ends.append(f"{html.unescape(item['name'])} from {say_number(values[0])} to {say_number(values[-1])}")
    return f"{title} over steps: {'; '.join(ends)}"


def _xy(x: str, y: str, traces: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "lines", "x": label(x), "y": label(y), "traces": traces}
