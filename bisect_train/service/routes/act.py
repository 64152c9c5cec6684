"""Acting on a bisection: cancel it, let it go on, say what a version is, take something back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bisect_train.core.errors import InputError
from bisect_train.service.auth import Caller
from bisect_train.service.overview import KINDS
from bisect_train.service.parts import Parts, find, refuse_others
from bisect_train.service.problems import Refused, problems
from bisect_train.service.routes.shared import Has, Id, Who
from bisect_train.service.routes.submit import enqueue, ensure_caller
from bisect_train.service.wire import Mark, Resume, Undo
from bisect_train.store.contract import StoredBisection

router = APIRouter(tags=["act"])


@router.post("/bisections/{bisection_id}/cancel", summary="Stop it", responses=problems(404, 409, 422))
def cancel(bisection_id: Id, parts: Has, who: Who) -> dict[str, Any]:
    """Take a bisection out of the queue, or ask its coordinator to stop; everything observed is kept."""
    cancel_for(bisection_id, parts, who)
    return parts.overview.item(find(parts, bisection_id)).to_json()


@router.post("/bisections/{bisection_id}/resume", summary="Let it go on", responses=problems(400, 404, 408, 409, 422, 429))
def resume(bisection_id: Id, parts: Has, who: Who, limits: Resume | None = None) -> dict[str, Any]:
    """Put a bisection back into the queue, with other limits if they are given; no finished probe is run again."""
    resume_for(bisection_id, parts, who, limits or Resume())
    return parts.overview.item(find(parts, bisection_id)).to_json()


@router.post(
    "/bisections/{bisection_id}/marks", status_code=201, summary="Mark a version", responses=problems(400, 404, 408, 409, 422)
)
def mark(bisection_id: Id, wanted: Mark, parts: Has, who: Who) -> dict[str, Any]:
    """Say what the state up to a revision is, in place of its runs; `clear` takes that back. It must not be running."""
    mark_for(bisection_id, wanted, parts, who)
    return parts.overview.item(find(parts, bisection_id)).to_json()


@router.post("/bisections/{bisection_id}/undo", summary="Take something back", responses=problems(400, 404, 408, 409, 422))
def undo(bisection_id: Id, parts: Has, who: Who, wanted: Undo | None = None) -> dict[str, Any]:
    """Take back the newest observations or marks; they do not count any more. It must not be running."""
    _stopped(bisection_id, parts, who)
    num = parts.backend.undo(bisection_id, (wanted or Undo()).last)
    parts.overview.forget()
    return {**parts.overview.item(find(parts, bisection_id)).to_json(), "taken_back": num}


def cancel_for(bisection_id: str, parts: Parts, who: Caller) -> None:
    """Cancel a bisection for a caller. Raises Refused with status 403, 404 or 409."""
    stored = find(parts, bisection_id)
    refuse_others(parts, stored.id, who)
    queue, store = parts.backend.queue, parts.backend.store
    entry = queue.entry(stored.id)
    if entry is not None and not entry.state.is_over:
        try:
            queue.cancel(stored.id, reason=f"cancelled by {who.name}")
        except InputError as error:
            raise Refused(409, error.message, hint=error.hint) from None
    elif store.is_running(stored.id):  # by somebody's command line
        store.request_cancel(stored.id)
    else:
        raise Refused(409, f"bisection {stored.id} is neither waiting nor running")
    parts.overview.forget()
    parts.wake_dispatcher()


def resume_for(bisection_id: str, parts: Parts, who: Caller, limits: Resume) -> None:
    """Put a bisection back into the queue for a caller. Raises Refused with status 403, 404, 409 or 429."""
    stored = _stopped(bisection_id, parts, who)
    if stored.question.get("part_of"):
        raise Refused(409, f"bisection {stored.id} is a part of {stored.question['part_of']}", hint="resume that one")
    if limits.max_probes is not None or limits.budget_gpu_hours is not None:
        parts.backend.change_limits(stored.id, max_probes=limits.max_probes, gpu_hours=limits.budget_gpu_hours)
    ensure_caller(parts, who)
    entry = parts.backend.queue.entry(stored.id)
    enqueue(parts, stored.id, entry.user if entry is not None else who.name)


def mark_for(bisection_id: str, wanted: Mark, parts: Parts, who: Caller) -> None:
    """Mark a version for a caller. Raises Refused with status 403, 404 or 409."""
    _stopped(bisection_id, parts, who)
    parts.backend.mark(bisection_id, wanted.revision, wanted.verdict)
    parts.overview.forget()


def _stopped(bisection_id: str, parts: Parts, who: Caller) -> StoredBisection:
    """Return a bisection of this caller's that does not run."""
    stored = find(parts, bisection_id)
    refuse_others(parts, stored.id, who)
    if stored.question["kind"] not in KINDS:
        raise Refused(409, f"{stored.id} is a {stored.question['kind']}, not a bisection")
    if parts.backend.store.is_running(stored.id):
        raise Refused(409, f"bisection {stored.id} is running", hint="cancel it first")
    return stored
