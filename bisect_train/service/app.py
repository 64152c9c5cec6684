"""The application: guards outside, routes inside, the dispatcher beside them for as long as it serves."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bisect_train import __version__
from bisect_train.service import login, pages, problems
from bisect_train.service.auth import Doorman
from bisect_train.service.backend import Backend
from bisect_train.service.feed import Feed
from bisect_train.service.guard import Guard
from bisect_train.service.live import LiveBoard
from bisect_train.service.metrics import Meters
from bisect_train.service.opening import Openings
from bisect_train.service.overview import Overview
from bisect_train.service.page_backend import ServiceGuard, ServicePages
from bisect_train.service.pages.contract import PageSetup, WatchedBranch
from bisect_train.service.parts import Parts, Seats
from bisect_train.service.routes import health, router
from bisect_train.service.settings import Settings, is_loopback

OPENAPI = "/api/v1/openapi.json"


class Runner(Protocol):
    """What runs bisections while the application serves: the dispatcher, or nothing in a test."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which it works."""

    def wake(self) -> None:
        """Look at the queue at once."""

    def problem(self) -> str:
        """Return why no bisection can be started now, or ""."""


class Idle:
    """A runner that runs nothing."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing."""
        yield

    def wake(self) -> None:
        """Do nothing."""

    def problem(self) -> str:
        """Return nothing."""
        return ""


def create_app(
    settings: Settings,
    backend: Backend,
    *,
    board: LiveBoard | None = None,
    runner: Runner | None = None,
    branches: Callable[[], Sequence[WatchedBranch]] = tuple,
) -> FastAPI:
    """Return the application.

    Args:
        settings: what the operator decided.
        backend: stored bisections and what can be done with them; the caller closes it.
        board: where the runner reports running probes.
        runner: runs bisections; nothing unless given.
        branches: nightly histories for the page.
    """
    parts = _make_parts(settings, backend, board or LiveBoard(), runner or Idle())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (runner or Idle()).running():
            yield
            await parts.feed.close()

    app = FastAPI(
        title="bisect-train",
        version=__version__,
        description="Which change made my training run worse? Submit questions, watch them, act on them.",
        openapi_url=OPENAPI,
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        middleware=[
            Middleware(_Measured, meters=parts.meters),
            Middleware(Guard, settings=settings, is_open=parts.doorman.is_open),
        ],
    )
    app.state.parts = parts
    app.state.pages = PageSetup(ServicePages(parts, branches), ServiceGuard(parts), login.LOGIN)
    problems.install(app)
    app.include_router(router)
    app.include_router(health.router)
    app.include_router(login.router)
    app.include_router(pages.router)
    return app


def _make_parts(settings: Settings, backend: Backend, board: LiveBoard, runner: Runner) -> Parts:
    seats, overview, meters = Seats(settings), Overview(backend, settings), Meters()
    meters.watch_store(backend, overview, lambda: seats.num_taken)
    return Parts(
        settings=settings,
        backend=backend,
        doorman=Doorman(backend.queue, tokens=settings.tokens, is_local=is_loopback(settings.host)),
        board=board,
        feed=Feed(backend, board, poll_s=settings.poll_s, heartbeat_s=settings.heartbeat_s),
        overview=overview,
        openings=Openings(backend),
        seats=seats,
        meters=meters,
        wake_dispatcher=runner.wake,
        dispatcher_problem=runner.problem,
    )


class _Measured:
    """ASGI middleware that counts requests by the pattern of their address."""

    def __init__(self, app: ASGIApp, *, meters: Meters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request once its answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_t = time.monotonic()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meters.count(scope["method"], _pattern_of(scope), message["status"], time.monotonic() - started_t)
            await send(message)

        await self._app(scope, receive, sending)


def _pattern_of(scope: Scope) -> str:
    """Return the pattern of the route that answers, "other" for none."""
    route = scope.get("route")
    return str(getattr(route, "path", "other")) if route is not None else "other"
