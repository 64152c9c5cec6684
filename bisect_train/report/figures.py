"""The two pictures of the HTML page, by plotly: curves of the runs, and the belief over the changes.

plotly is a library made for this, zooms, and writes its figures as escaped JSON; its script is 4.8 MB and lies in the page, so
that the page needs no network. Loaded only when a page is written. Colours (Okabe and Ito, 2008) are told apart by people who
see few colours; every line has its own dash as well.
"""

from __future__ import annotations

import html
import math
from typing import Any

import plotly.io
import plotly.offline

from bisect_train.report.parts import CurvePart, ReportData, StripPart
from bisect_train.report.words import say_share

# colour, width, dash: wide soft lines for the ends, thin broken ones above them for the culprit's two sides; the style sheet
# draws these in the colour of the text, which plotly cannot know
STYLES: dict[str, tuple[str, float, str]] = {
    "good": ("rgba(45,143,213,0.7)", 7, "solid"),
    "bad": ("rgba(213,94,0,0.6)", 7, "solid"),
    "parent": ("#777777", 2.5, "dash"),
    "culprit": ("#777777", 2.5, "dot"),
}
BAR_COLOUR, CULPRIT_COLOUR = "#56B4E9", "#D55E00"
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"]}
FONT = {"family": "system-ui, sans-serif", "size": 13}


def script_of_plotly() -> str:
    """Return plotly's script, to be put into the page once."""
    return str(plotly.offline.get_plotlyjs())


def curves_figure(report: ReportData) -> str:
    """Return the curves as HTML, "" without any."""
    if not report.curves:
        return ""
    traces = [_trace(curve) for curve in report.curves]
    return _to_html(traces, name="curves", x_title="step", y_title=report.metric.name)


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
    return html.escape(f"{part.number}: {part.label} - {say_share(part.probability)}")


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
    return str(
        plotly.io.to_html(
            {"data": traces, "layout": layout},
            config=CONFIG,
            include_plotlyjs=False,
            full_html=False,
            validate=False,
            div_id=name,
        )
    )
