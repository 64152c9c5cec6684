"""Stored bisection -> `ReportData` -> terminal, Markdown, HTML, JSON; the live view of a running one; `compare` of two runs."""

from bisect_train.report.compare import render_compare
from bisect_train.report.data import build_report
from bisect_train.report.html import render_html
from bisect_train.report.inside import Place, describe_descent, smallest_patch
from bisect_train.report.live import LiveView
from bisect_train.report.markdown import render_markdown, render_stored_markdown
from bisect_train.report.parts import ChangePart, Cost, DescentPart, ReportData
from bisect_train.report.text import render_text
from bisect_train.report.wire import report_to_json

__all__ = [
    "ChangePart",
    "Cost",
    "DescentPart",
    "LiveView",
    "Place",
    "ReportData",
    "build_report",
    "describe_descent",
    "render_compare",
    "render_html",
    "render_markdown",
    "render_stored_markdown",
    "render_text",
    "report_to_json",
    "smallest_patch",
]
