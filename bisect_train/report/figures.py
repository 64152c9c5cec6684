"""The two pictures of the HTML page, by plotly.js: curves of the runs, and the belief over the changes.

plotly.js is a library made for this, and zooms. Its script lies in the page, so that the page needs no network: the basic
bundle (lines and bars, 1.2 MB), since the full one that python's plotly ships makes a page of 4.9 MB. It lies in `vendor/` as
`npm pack plotly.js-basic-dist-min` gives it. Colours (Okabe and Ito, 2008) are told apart by people who see few colours; every
line has its own dash as well.
"""

from __future__ import annotations

import html
import math
from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2.utils import htmlsafe_json_dumps

from bisect_train.report.parts import CurvePart, ReportData, StripPart
from bisect_train.report.triage_parts import RankCurve, TriagePart
from bisect_train.report.words import say_share

SCRIPT = "vendor/plotly-basic.min.js"
# colour, width, dash: wide soft lines for the ends, thin broken ones above them for the culprit's two sides; the style sheet
# draws these in the colour of the text, which plotly cannot know
STYLES: dict[str, tuple[str, float, str]] = {
    "good": ("rgba(45,143,213,0.7)", 7, "solid"),
    "bad": ("rgba(213,94,0,0.6)", 7, "solid"),
    "parent": ("#777777", 2.5, "dash"),
    "culprit": ("#777777", 2.5, "dot"),
}
RANK_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#999999", "#8C6D31")
BAR_COLOUR, CULPRIT_COLOUR = "#56B4E9", "#D55E00"
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"]}
FONT = {"family": "system-ui, sans-serif", "size": 13}


@lru_cache(maxsize=1)
def script_of_plotly() -> str:
    """Return plotly's script, to be put into the page once."""
    return resources.files("bisect_train.report").joinpath(SCRIPT).read_text(encoding="utf-8")


def curves_figure(report: ReportData) -> str:
    """Return the curves as HTML, "" without any."""
    if not report.curves:
        return ""
    traces = [_trace(curve) for curve in report.curves]
    return _to_html(traces, name="curves", x_title="step", y_title=report.curves[0].metric)


def _trace(curve: CurvePart) -> dict[str, Any]:
    colour, width, dash = STYLES[curve.role]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(curve.label),
        "x": list(curve.steps),
        "y": [value if math.isfinite(value) else None for value in curve.values],
        "line": {"color": colour, "width": width, "dash": dash},
    }


def rank_figures(part: TriagePart) -> tuple[tuple[str, str], ...]:
    """Return (title, HTML) of the small curves of the ranks: losses, gradient norms; () where no rank has two steps."""
    figures = []
    for title, name, read in (
        ("Loss, rank by rank", "rank-losses", _losses_of),
        ("Gradient norm, rank by rank", "rank-norms", _norms_of),
    ):
        traces = [_rank_trace(curve, read(curve)) for curve in part.curves if any(v is not None for v in read(curve))]
        if traces:
            figures.append(
                (title, _to_html(traces, name=name, x_title="step", y_title=title.split(",")[0].lower(), height=240))
            )
    return tuple(figures)


def _losses_of(curve: RankCurve) -> tuple[float | None, ...]:
    return curve.losses


def _norms_of(curve: RankCurve) -> tuple[float | None, ...]:
    return curve.grad_norms


def _rank_trace(curve: RankCurve, values: tuple[float | None, ...]) -> dict[str, Any]:
    is_run = curve.side == "run"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"rank {curve.rank}, {'with it' if is_run else 'baseline'}",
        "x": list(curve.steps),
        "y": [value if value is not None and math.isfinite(value) else None for value in values],
        "line": {
            "color": RANK_COLOURS[curve.rank % len(RANK_COLOURS)],
            "width": 2 if is_run else 4,
            "dash": "solid" if is_run else "dot",
        },
    }


def strip_figure(report: ReportData) -> str:
    """Return the belief over the changes as HTML, "" before the search."""
    if not report.strip:
        return ""
    trace = {
        "type": "bar",
        "x": [part.number for part in report.strip],
        "y": [part.probability for part in report.strip],
        "marker": {"color": [CULPRIT_COLOUR if part.is_culprit else BAR_COLOUR for part in report.strip]},
        "hovertext": [_hover(part) for part in report.strip],
        "hoverinfo": "text",
        "showlegend": False,
    }
    titles = {"x_title": "change, oldest first", "y_title": "probability"}
    return _to_html([trace], name="posterior", y_range=[0, 1.02], height=240, **titles)


def _hover(part: StripPart) -> str:
    unread = ", not read by the program" if part.is_unread else ""
    return html.escape(f"{part.number}: {part.label} - {say_share(part.probability)}{unread}")


def _to_html(
    traces: list[dict[str, Any]],
    *,
    name: str,
    x_title: str,
    y_title: str,
    y_range: list[float] | None = None,
    height: int = 380,
) -> str:
    axis = {"zeroline": False, "automargin": True}
    layout = {
        "height": height,
        "margin": {"l": 60, "r": 16, "t": 12, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": FONT,
        "hovermode": "x unified" if name == "curves" else "closest",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "bargap": 0.1,
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "xaxis": {**axis, "title": {"text": html.escape(x_title)}},
        "yaxis": {**axis, "title": {"text": html.escape(y_title)}, **({"range": y_range} if y_range else {})},
    }
    arguments = ", ".join(htmlsafe_json_dumps(value) for value in (name, traces, layout, CONFIG))
    return f'<div id="{name}" style="height: {height}px"></div>\n<script>Plotly.newPlot({arguments})</script>'
