"""The report as one HTML page that needs no network: text and tables by jinja2 (everything escaped), pictures by plotly.js."""

from __future__ import annotations

from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from bisect_train.core.shown import printable
from bisect_train.report.across import say_cell
from bisect_train.report.figures import curves_figure, rank_figures, script_of_plotly, strip_figure
from bisect_train.report.inside import printable_patch, smallest_patch
from bisect_train.report.parts import ReportData
from bisect_train.report.triage_text import is_told, name_of_process, say_samples, say_second
from bisect_train.report.triage_view import say_evidence, say_place
from bisect_train.report.words import KIND_NAMES, say_count, say_number, say_pruned, say_seconds, say_share, say_spread


def render_html(report: ReportData) -> str:
    """Return the page."""
    curves, strip = curves_figure(report), strip_figure(report)
    ranks = rank_figures(report.triage) if is_told(report.triage) else ()
    return _template().render(
        report=report,
        curves=Markup(curves),
        strip=Markup(strip),
        num_unread=sum(part.is_unread for part in report.strip),
        rank_figures=[(title, Markup(figure)) for title, figure in ranks],
        script=Markup(script_of_plotly()) if curves or strip or ranks else "",
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("bisect_train.report"),
        autoescape=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": say_number,
        "seconds": say_seconds,
        "share": say_share,
        "count": say_count,
        "pruned": say_pruned,
        "short": _short_id,
        "cell": say_cell,
        "evidence": say_evidence,
        "place": say_place,
        "second": say_second,
        "samples": say_samples,
        "process": name_of_process,
        "patch": lambda report: printable_patch(smallest_patch(report)),
    }
    environment.globals |= {
        "say_spread": say_spread,
        "is_told": is_told,
        "kind_names": {kind.value: name for kind, name in KIND_NAMES.items()},
    }
    return environment.get_template("report.html.j2")


def _short_id(text: str) -> str:
    """Return 8 digits of a commit, other ids whole."""
    is_commit = len(text) == 40 and all(letter in "0123456789abcdef" for letter in text)
    return text[:8] if is_commit else text
