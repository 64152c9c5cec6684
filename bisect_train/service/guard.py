"""The first look at a request, before it is read: its size, its time, its Host and Origin; headers of all answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bisect_train.service.auth import SAFE_METHODS
from bisect_train.service.problems import answer_problem
from bisect_train.service.settings import LOCAL_NAMES, Settings, is_loopback

POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, a browser sends our own forms with the origin `null`
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware.

    Args:
        app: what answers.
        settings: limits, and where it listens.
        is_open: whether nobody needs a token now; then the Host must be a name of this machine.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, is_open: Callable[[], bool]) -> None:
        self._app = app
        self._settings = settings
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = await self._refusal(scope, headers)
        if refusal is not None:
            status, error = refusal
            await answer_problem(status, error, headers={"Connection": "close"})(scope, receive, _with_headers(send))
            return
        reader = _BodyReader(receive, limit=self._settings.max_body_bytes, timeout_s=self._settings.body_timeout_s)
        await self._app(scope, reader, _with_headers(send))

    async def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > 18:
            return 400, "the header Content-Length is no number"
        if int(length) > self._settings.max_body_bytes:
            return 413, f"the request is larger than {self._settings.max_body_bytes:,} bytes"
        host = headers.get("host", "")
        if is_loopback(self._settings.host) and not is_local_host(host) and await asyncio.to_thread(self._is_open):
            return 421, "this service answers to the name of this machine only"
        if scope["method"] not in SAFE_METHODS and is_foreign(headers):
            return 403, "this request comes from a page of another site"
        return None


def is_local_host(host: str) -> bool:
    """Return whether a Host header names this machine: `localhost:8765`, `127.0.0.1`, `[::1]:80`."""
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    return name.lower() in LOCAL_NAMES or is_loopback(name)


def is_foreign(headers: Headers) -> bool:
    """Return whether a browser says that a request was made by a page of another origin."""
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()


class _BodyReader:
    """Counts the bytes of a body and the time until the last of them; raises HTTPException, which FastAPI passes on."""

    def __init__(self, receive: Receive, *, limit: int, timeout_s: float) -> None:
        self._receive = receive
        self._left = limit
        self._timeout_s = timeout_s
        self._until_t: float | None = None
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()  # whether the other side is still there; that may take for ever
        now = asyncio.get_running_loop().time()
        self._until_t = now + self._timeout_s if self._until_t is None else self._until_t
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._until_t - now))
        except asyncio.TimeoutError:
            raise HTTPException(408, "the body of the request came too slowly", {"Connection": "close"}) from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._left < 0:
                raise HTTPException(413, "the request is too large", {"Connection": "close"})
        return message


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SAFE_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
