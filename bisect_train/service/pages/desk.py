"""What every page route works with: the service's setup, the views kept so far, and how errors become pages."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from fastapi.responses import RedirectResponse
from starlette.requests import Request
from starlette.responses import Response

from bisect_train.core.errors import BisectTrainError, InputError, MachineError
from bisect_train.core.secrets import mask_text
from bisect_train.core.shown import one_line
from bisect_train.service.pages.bisection_view import ViewCache
from bisect_train.service.pages.contract import PageBackend, PageSetup
from bisect_train.service.pages.list_view import Shelf
from bisect_train.service.pages.live import Watch
from bisect_train.service.pages.rendering import render_page

P = ParamSpec("P")
_LOG = logging.getLogger("bisect_train.service")


@dataclass(frozen=True, slots=True)
class PageDesk:
    """Setup, views, watchers and the list of one application."""

    setup: PageSetup
    cache: ViewCache
    watch: Watch
    shelf: Shelf

    @property
    def backend(self) -> PageBackend:
        """Reads and acts."""
        return self.setup.backend

    def user(self, request: Request) -> str:
        """Return who looks, "" where nobody needs a name."""
        return self.setup.guard.user_of(request) or ""

    def turn_away(self, request: Request) -> Response | None:
        """Return where a request goes that has no user, None for one that may come in."""
        if self.setup.guard.user_of(request) is not None:
            return None
        if self.setup.login and request.method == "GET":
            return RedirectResponse(f"{request.scope.get('root_path', '')}{self.setup.login}", status_code=303)
        return refuse(request, 401, "this service needs a token", hint="log in first")


def desk_of(request: Request) -> PageDesk:
    """Return the desk of the application that a request came to."""
    state = request.app.state
    desk: PageDesk | None = getattr(state, "page_desk", None)
    if desk is None or desk.setup is not state.pages:
        cache = ViewCache(state.pages.backend)
        desk = state.page_desk = PageDesk(state.pages, cache, Watch(state.pages.backend, cache), Shelf(state.pages.backend))
    return desk


def refuse(request: Request, status: int, error: str, *, hint: str = "") -> Response:
    """Return a page that says why not, and what to do."""
    return render_page(request, "refused.html.j2", code=status, error=mask_text(error), hint=mask_text(hint))


def _code_of(error: BisectTrainError, method: str) -> int:
    if isinstance(error, InputError):
        return 404 if method == "GET" else 400
    return 409


def guarded(route: Callable[P, Response]) -> Callable[P, Response]:
    """Make a route say on a page what it cannot do."""

    @functools.wraps(route)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
        request = kwargs["request"]
        assert isinstance(request, Request)
        try:
            return route(*args, **kwargs)
        except MachineError as error:  # it names places on this machine, and whoever looks may be anybody
            _LOG.error("%s %s: %s", request.method, one_line(request.url.path), mask_text(error.message))
            return refuse(request, 503, "the service cannot do this now", hint="try again later; the service's log says why")
        except BisectTrainError as error:
            return refuse(request, _code_of(error, request.method), error.message, hint=error.hint)

    return answer
