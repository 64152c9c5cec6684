"""The REST interface under /api/v1, one file for each thing that can be done."""

from fastapi import APIRouter

from bisect_train.service.routes import act, bisections, probes, session, submit, watch

router = APIRouter(prefix="/api/v1")
for _part in (submit, bisections, watch, act, probes, session):
    router.include_router(_part.router)

__all__ = ["router"]
