"""Sessions of the page: a cookie in exchange for a token."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from bisect_train.service.auth import COOKIE, SESSION_S
from bisect_train.service.problems import Refused, problems
from bisect_train.service.routes.shared import Has, Who
from bisect_train.service.wire import Login

router = APIRouter(tags=["session"])


@router.get("/session", summary="Who am I?", responses=problems())
def who_am_i(who: Who) -> dict[str, Any]:
    """Return the caller's name, and whether it is an administrator."""
    return {"user": who.name, "is_admin": who.is_admin, "is_alone": who.is_alone}


@router.post("/session", status_code=204, summary="Log in", responses=problems(401, 408, 422))
def log_in(login: Login, request: Request, response: Response, parts: Has) -> None:
    """Take a token and set a cookie that scripts cannot read and other sites' pages do not send; it is good for 12 hours."""
    session_id = parts.doorman.open_session(login.token)
    if session_id is None:
        raise Refused(401, "nobody has this token")
    set_cookie(response, session_id, is_secure=request.url.scheme == "https")


@router.delete("/session", status_code=204, summary="Log out", responses=problems())
def log_out(request: Request, response: Response, parts: Has) -> None:
    """Forget the session of the cookie."""
    parts.doorman.close_session(request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE, path="/")


def set_cookie(response: Response, session_id: str, *, is_secure: bool) -> None:
    """Set the cookie of a session."""
    response.set_cookie(
        COOKIE, session_id, max_age=int(SESSION_S), path="/", httponly=True, samesite="strict", secure=is_secure
    )
