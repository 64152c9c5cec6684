"""The web pages of the service: HTML made here, drawn by a few scripts of ours, nothing from any other address.

`router` is included by the application, whose `app.state.pages` holds a `PageSetup` (see `contract`). View models (`*_view`)
are computed from the store; templates and scripts only show them.
"""

from fastapi import APIRouter

from bisect_train.service.pages import acts, routes
from bisect_train.service.pages.contract import PageBackend, PageGuard, PageSetup

router = APIRouter(include_in_schema=False)
router.include_router(routes.router)
router.include_router(acts.router)

__all__ = ["PageBackend", "PageGuard", "PageSetup", "router"]
