"""Templates to answers: everything escaped and printable, and a policy under which a browser runs nothing but our files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape
from starlette.requests import Request

from bisect_train.report.across import say_cell
from bisect_train.report.triage_text import name_of_process, say_samples, say_second
from bisect_train.report.triage_view import say_evidence, say_place
from bisect_train.report.words import KIND_NAMES, say_count, say_number, say_seconds, say_share, say_spread
from bisect_train.service.pages.clean import finalize, printable
from bisect_train.service.pages.contract import PageSetup
from bisect_train.service.pages.probe_page_view import hide_secrets
from bisect_train.service.pages.words import iso_time, say_time

POLICY = (
    # plotly draws with `style` attributes; no script of a stranger can run, and no address but ours is asked
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # not `no-referrer`: forms would then carry the origin `null`, and could not be told from a stranger's
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def render_page(request: Request, name: str, *, code: int = 200, **values: Any) -> HTMLResponse:
    """Return a page of a template; `values` are what it shows, `code` the HTTP status."""
    setup: PageSetup = request.app.state.pages
    user = setup.guard.user_of(request)
    shown = {
        "user": user or "",
        "csrf": setup.guard.csrf_of(request) if user is not None else "",
        "version": asset_version(),
        "base": request.scope.get("root_path", ""),
    }
    return HTMLResponse(_environment().get_template(name).render(**shown, **values), status_code=code, headers=HEADERS)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bisect_train.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters |= {
        "number": say_number,
        "seconds": say_seconds,
        "share": say_share,
        "count": say_count,
        "short": short_id,
        "cell": say_cell,
        "evidence": say_evidence,
        "place": say_place,
        "second": say_second,
        "samples": say_samples,
        "process": name_of_process,
        "time": say_time,
        "iso": iso_time,
        "json": htmlsafe_json_dumps,
        "sentence": sentence,
        "ticks": ticks,
        "masked": hide_secrets,
    }
    names: Mapping[str, str] = {kind.value: name for kind, name in KIND_NAMES.items()}
    environment.globals |= {"say_spread": say_spread, "kind_names": names}
    return environment


def short_id(text: str) -> str:
    """Return 8 digits of a commit, other ids whole."""
    is_commit = len(text) == 40 and all(letter in "0123456789abcdef" for letter in text)
    return text[:8] if is_commit else text


def sentence(text: str) -> str:
    """Return a text with a capital in front; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def ticks(text: str) -> Markup:
    """Return a sentence in which what stands between backticks is set as code."""
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:  # a lone backtick stays what it is
        return escape(printable(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if idx % 2 else escape(part) for idx, part in enumerate(parts))


STATIC = {
    "app.css": "text/css; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
    "strip.js": "text/javascript; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
}
PLOTLY = "plotly.js"


@lru_cache(maxsize=8)
def asset(name: str) -> tuple[bytes, str]:
    """Return one of our files, or plotly's as the reports have it, and its type. Raises KeyError for others."""
    if name == PLOTLY:
        vendored = resources.files("bisect_train.report").joinpath("vendor/plotly-basic.min.js")
        return vendored.read_bytes(), "text/javascript; charset=utf-8"
    kind = STATIC[name]  # before the name is part of a path
    return resources.files("bisect_train.service.pages").joinpath(f"static/{name}").read_bytes(), kind


@lru_cache(maxsize=1)
def asset_version() -> str:
    """Return a text that changes with the files, so that a browser may keep them for long."""
    digest = sha256()
    for name in (*STATIC, PLOTLY):
        digest.update(asset(name)[0])
    return digest.hexdigest()[:12]
