"""Looking at bisections: lists, one of them, where it stands, its changes, its probes, its report."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse

from bisect_train.core.question import Question
from bisect_train.core.secrets import mask_text
from bisect_train.report import render_html, report_to_json
from bisect_train.report.wire import clean_json
from bisect_train.service.overview import STATUSES
from bisect_train.service.parts import find, whole_of
from bisect_train.service.problems import problems
from bisect_train.service.routes.shared import Has, Id, Limit, Offset, Who
from bisect_train.service.views import change_view, entry_view, live_view, question_view, state_view
from bisect_train.service.wire import NAME

router = APIRouter(tags=["look"])
Status = Literal[
    "created", "queued", "starting", "running", "stopped", "interrupted", "cancelled", "failed", "finished", "changed"
]
assert get_args(Status) == STATUSES


@router.get("/bisections", summary="List bisections, the newest first", responses=problems(422))
def list_bisections(
    parts: Has,
    who: Who,
    status: Annotated[list[Status] | None, Query(max_length=10)] = None,
    repository: Annotated[str | None, Query(pattern=NAME)] = None,
    user: Annotated[str | None, Query(max_length=64)] = None,
    with_parts: Annotated[bool, Query(description="Those inside a change that another one has named, too.")] = False,
    offset: Offset = 0,
    limit: Limit = 50,
) -> dict[str, Any]:
    """Return one page, and how many there are."""
    items = [
        item
        for item in parts.overview.items()
        if (not status or item.status in status)
        and (repository is None or item.repository == repository)
        and (user is None or item.user == user)
        and (with_parts or not item.part_of)
    ]
    return {"total": len(items), "items": [item.to_json() for item in items[offset : offset + limit]]}


@router.get("/bisections/{bisection_id}", summary="One bisection", responses=problems(404, 422))
def show_bisection(bisection_id: Id, parts: Has, who: Who) -> dict[str, Any]:
    """Return what was asked, its place in the queue, and its report once it is finished."""
    stored = find(parts, bisection_id)
    return {
        **parts.overview.item(stored).to_json(),
        "question": question_view(Question.of_json(stored.question), parts.settings),
        "queue": entry_view(parts.backend.queue.entry(stored.id)),
        "report": clean_json(stored.answer),
    }


@router.get("/bisections/{bisection_id}/state", summary="Where it stands", responses=problems(400, 404, 409, 422))
def show_state(bisection_id: Id, parts: Has, who: Who) -> dict[str, Any]:
    """Return phase, ends, belief over the changes and what each version showed, rebuilt from the observations."""
    return state_view(parts.openings.open(find(parts, bisection_id).id))


@router.get("/bisections/{bisection_id}/live", summary="Probes that run now", responses=problems(404, 422))
def show_live(bisection_id: Id, parts: Has, who: Who) -> dict[str, Any]:
    """Return running probes with their curves so far; `runs` is null where another service runs the bisection, or none does."""
    runs = parts.board.runs(whole_of(parts.backend.store, find(parts, bisection_id).id))
    return {"runs": None if runs is None else [live_view(run, with_curve=True) for run in runs]}


@router.get("/bisections/{bisection_id}/changes", summary="Its changes", responses=problems(400, 404, 409, 422))
def list_changes(bisection_id: Id, parts: Has, who: Who, offset: Offset = 0, limit: Limit = 100) -> dict[str, Any]:
    """Return the changes between the ends in the order in which they are searched, one page of them."""
    opened = parts.openings.open(find(parts, bisection_id).id)
    total = len(opened.space.changes)
    return {"total": total, "items": [change_view(opened, idx) for idx in range(offset, min(total, offset + limit))]}


@router.get("/bisections/{bisection_id}/results", summary="Its probes", responses=problems(400, 404, 409, 422))
def list_results(bisection_id: Id, parts: Has, who: Who, offset: Offset = 0, limit: Limit = 100) -> dict[str, Any]:
    """Return the finished probes in the order of finishing, one page of them: what ran, its value, its verdict."""
    _, report = parts.openings.report(find(parts, bisection_id).id)
    rows = report.probes[offset : offset + limit]
    items = [{**asdict(row), "log_tail": bool(row.log_tail)} for row in rows]
    return {"total": len(report.probes), "metric": asdict(report.metric), "items": clean_json(items)}


@router.get("/bisections/{bisection_id}/report", summary="Its report as JSON", responses=problems(400, 404, 409, 422))
def show_report(bisection_id: Id, parts: Has, who: Who) -> dict[str, Any]:
    """Return report.json; of an unfinished bisection as far as it goes."""
    _, report = parts.openings.report(find(parts, bisection_id).id)
    return report_to_json(report)


@router.get(
    "/bisections/{bisection_id}/report.html",
    summary="Its report as a page",
    response_class=HTMLResponse,
    responses=problems(400, 404, 409, 422),
)
def show_report_page(bisection_id: Id, parts: Has, who: Who) -> Response:
    """Return report.html, a page that loads nothing else."""
    _, report = parts.openings.report(find(parts, bisection_id).id)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    return HTMLResponse(
        render_html(replace(report, title=mask_text(report.title))),
        headers={"Content-Security-Policy": f"sandbox allow-scripts; {policy}"},
    )
