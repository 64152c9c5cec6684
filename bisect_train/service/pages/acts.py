"""Forms of the pages: submit, cancel, resume, mark. Each carries a token of its page; what was refused is said on the page."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends
from fastapi.responses import RedirectResponse
from starlette.requests import Request
from starlette.responses import Response

from bisect_train.core.errors import InputError
from bisect_train.service.pages.bisection_view import check_id
from bisect_train.service.pages.contract import Asked
from bisect_train.service.pages.desk import PageDesk, desk_of, guarded, refuse

router = APIRouter(include_in_schema=False)

MAX_FORM_BYTES = 64 * 1024
MAX_FIELDS = 40
OPTION_FIELDS = (
    *("kind", "config", "other_config", "settings", "steps", "ranks", "gpus", "seeds", "metric", "min_effect", "criterion"),
    *("any_change", "parallel", "max_probes", "budget_gpu_hours", "timeout_s", "deterministic"),
)
"""Fields of the form that are passed on as options, those that were filled in."""


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, each once. Raises InputError for one that is too large or malformed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return {"": "the form is too large"}
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        return {"": "the form is malformed"}
    return dict(pairs)


Form = Annotated[dict[str, str], Depends(read_form)]


def _checked(request: Request, form: dict[str, str]) -> PageDesk | Response:
    """Return the desk of a user whose form is one of ours, else the refusal."""
    desk = desk_of(request)
    if (away := desk.turn_away(request)) is not None:
        return away
    if form.get(""):
        return refuse(request, 400, form[""])
    if not desk.setup.guard.is_ours(request, form.get("csrf", "")):
        return refuse(
            request, 403, "this form is too old or not from this page", hint="go back, load the page again and repeat"
        )
    return desk


def _go(request: Request, place: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{place}", status_code=303)


@router.post("/submit")
@guarded
def submit(request: Request, form: Form) -> Response:
    """Ask what made it worse, or whether a change is safe, and go to the bisection's page."""
    desk = _checked(request, form)
    if isinstance(desk, Response):
        return desk
    good, kind = form.get("good", "").strip(), form.get("kind", "") or "run"
    if not good and kind == "run":
        raise InputError("name a good revision", hint="a commit, tag or branch where the training was still fine")
    asked = Asked(
        repository=form.get("repository", ""),
        recipe=form.get("recipe", ""),
        good=good,
        bad=form.get("bad", "").strip() or "HEAD",
        options={name: form[name].strip() for name in OPTION_FIELDS if form.get(name, "").strip()},
    )
    bisection_id = desk.backend.submit(asked, desk.user(request))
    desk.shelf.forget()
    return _go(request, f"/b/{check_id(bisection_id)}")


@router.post("/b/{bisection_id}/cancel")
@guarded
def cancel(request: Request, bisection_id: str, form: Form) -> Response:
    """Stop a bisection."""
    desk = _checked(request, form)
    if isinstance(desk, Response):
        return desk
    desk.backend.cancel(check_id(bisection_id), desk.user(request))
    return _done(request, desk, bisection_id)


@router.post("/b/{bisection_id}/resume")
@guarded
def resume(request: Request, bisection_id: str, form: Form) -> Response:
    """Let a stopped bisection go on."""
    desk = _checked(request, form)
    if isinstance(desk, Response):
        return desk
    desk.backend.resume(check_id(bisection_id), desk.user(request))
    return _done(request, desk, bisection_id)


@router.post("/b/{bisection_id}/mark")
@guarded
def mark(request: Request, bisection_id: str, form: Form) -> Response:
    """Say what a version is."""
    desk = _checked(request, form)
    if isinstance(desk, Response):
        return desk
    rev, verdict = form.get("rev", "").strip(), form.get("verdict", "")
    if not rev or verdict not in ("good", "bad", "untestable", "clear"):
        raise InputError("a mark needs a revision or key, and good, bad, untestable or clear")
    desk.backend.mark(check_id(bisection_id), rev, verdict, desk.user(request))
    return _done(request, desk, bisection_id)


def _done(request: Request, desk: PageDesk, bisection_id: str) -> Response:
    desk.cache.forget(bisection_id)
    desk.shelf.forget()
    return _go(request, f"/b/{bisection_id}")
