"""Errors as answers: one JSON shape {error, hint}, whatever went wrong; nothing of the inside of the program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from bisect_train.core.errors import BisectTrainError, InputError, MachineError
from bisect_train.core.secrets import mask_text
from bisect_train.core.shown import one_line

_LOG = logging.getLogger("bisect_train.service")
_WORDS = {
    400: "the body of the request cannot be read as JSON",
    404: "there is no such page",
    405: "this address does not take this method",
}


class Problem(BaseModel):
    """Why a request was refused, and what to do."""

    error: str
    hint: str = ""


class Refused(Exception):
    """A request that is refused with a status of its own.

    Args:
        status: HTTP status, 4xx or 5xx.
        error: one line: what is wrong.
        hint: what to do, or "".
        headers: of the answer.
    """

    def __init__(self, status: int, error: str, *, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = dict(headers or {})


def answer_problem(status: int, error: str, *, hint: str = "", headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return a problem as an answer."""
    body = {"error": mask_text(error), "hint": mask_text(hint)}
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what a route's OpenAPI entry says of its refusals; those that every route has are there anyway."""
    content = {"application/json": {"schema": Problem.model_json_schema()}}
    known = sorted({400, 401, 403, 413, 421, 503, *statuses})
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in known}


def install(app: FastAPI) -> None:
    """Make the application answer with problems."""

    @app.exception_handler(Refused)
    async def _refused(request: Request, error: Refused) -> JSONResponse:
        return answer_problem(error.status, error.error, hint=error.hint, headers=error.headers)

    @app.exception_handler(BisectTrainError)
    async def _known(request: Request, error: BisectTrainError) -> JSONResponse:
        if isinstance(error, MachineError):  # it names places on this machine, and the caller may be anybody
            _LOG.error("%s %s: %s", request.method, one_line(request.url.path), mask_text(error.message))
            return answer_problem(503, "the service cannot do this now", hint="ask again later; the service's log says why")
        return answer_problem(400 if isinstance(error, InputError) else 409, error.message, hint=error.hint)

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()[:3]
        said = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in found)
        return answer_problem(422, f"the request is malformed: {said}"[:500], hint="/api/v1/openapi.json describes it")

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        return answer_problem(error.status_code, _WORDS.get(error.status_code, str(error.detail)), headers=error.headers)

    @app.exception_handler(Exception)
    async def _fault(request: Request, error: Exception) -> JSONResponse:
        _LOG.error("%s %s: %s", request.method, one_line(request.url.path), type(error).__name__, exc_info=error)
        return answer_problem(500, "this is a fault of bisect-train", hint="the service's log says more")
