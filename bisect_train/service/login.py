"""The page on which a browser logs in with a token."""

from __future__ import annotations

import asyncio
from html import escape
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from bisect_train.service.auth import is_same_origin
from bisect_train.service.parts import parts_of
from bisect_train.service.problems import Refused
from bisect_train.service.routes.session import set_cookie

router = APIRouter(include_in_schema=False)
LOGIN = "/login"
MAX_FORM_BYTES = 4096
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in - bisect-train</title><link rel="icon" href="data:,">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:26rem;margin:15vh auto;
padding:0 1rem}}
code{{display:inline-block}}
input,button{{font:inherit;padding:.5rem .7rem;width:100%;box-sizing:border-box;margin-top:.4rem}}</style></head>
<body><main><h1>bisect-train</h1><form method="post" action="{action}"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button></form><p role="status">{said}</p>
<p>Whoever runs this service gives tokens: <code>bisect-train serve user add NAME</code></p></main></body></html>
"""


def _page(request: Request, said: str, *, status: int = 200) -> HTMLResponse:
    action = escape(f"{request.scope.get('root_path', '')}{LOGIN}", quote=True)
    return HTMLResponse(_PAGE.format(action=action, said=escape(said)), status_code=status)


@router.get(LOGIN)
async def show_login(request: Request) -> HTMLResponse:
    """Return the form."""
    return _page(request, "")


@router.post(LOGIN)
async def log_in(request: Request) -> Response:
    """Take the token of the form, set the cookie, go to the list."""
    if not is_same_origin(request.headers):
        raise Refused(403, "this form does not come from a page of this service")
    body = await request.body()
    try:
        form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4) if len(body) <= MAX_FORM_BYTES else {}
    except ValueError:
        raise Refused(400, "this form has too many fields") from None
    token = form.get("token", [""])[0].strip()
    doorman = parts_of(request).doorman
    session_id = await asyncio.to_thread(doorman.open_session, token) if token else None
    if session_id is None:
        return _page(request, "Nobody has this token.", status=401)
    answer = RedirectResponse(f"{request.scope.get('root_path', '')}/", status_code=303)
    set_cookie(answer, session_id, is_secure=request.url.scheme == "https")
    return answer
