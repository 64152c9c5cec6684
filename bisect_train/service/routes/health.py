"""For whatever watches the service: is it alive, can it work, numbers for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from bisect_train.core.errors import BisectTrainError
from bisect_train.service.metrics import CONTENT_TYPE
from bisect_train.service.problems import Refused, problems
from bisect_train.service.routes.shared import Has, Who

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is it alive?")
async def healthz() -> dict[str, str]:
    """Return `ok` while requests are answered."""
    return {"status": "ok"}


@router.get("/readyz", summary="Can it work?", responses=problems())
def readyz(parts: Has) -> dict[str, str]:
    """Return `ok` where the database answers and bisections can be started, else status 503 and why."""
    try:
        parts.backend.queue.users()
    except BisectTrainError:
        raise Refused(503, "the database does not answer") from None
    if problem := parts.dispatcher_problem():
        raise Refused(503, problem)
    return {"status": "ok"}


@router.get("/metrics", summary="Numbers for Prometheus", response_class=PlainTextResponse, responses=problems())
def metrics(parts: Has, who: Who) -> Response:
    """Return numbers in Prometheus's text format; a token is needed where others can ask."""
    return Response(parts.meters.text(), media_type=CONTENT_TYPE)
