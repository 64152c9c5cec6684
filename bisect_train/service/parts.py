"""What the routes work with; `request.app.state.parts` holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from bisect_train.core.errors import InputError
from bisect_train.service.auth import Caller, Doorman
from bisect_train.service.backend import Backend
from bisect_train.service.feed import Feed
from bisect_train.service.live import LiveBoard
from bisect_train.service.metrics import Meters
from bisect_train.service.opening import Openings
from bisect_train.service.overview import Overview
from bisect_train.service.problems import Refused
from bisect_train.service.settings import Settings
from bisect_train.store.contract import Store, StoredBisection


class Seats:
    """Counts the watchers, all together and by user."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._by_user: dict[str, int] = {}

    def take(self, user: str) -> None:
        """Take a seat. Raises Refused with status 429 where there is none."""
        with self._guard:
            mine = self._by_user.get(user, 0)
            if mine >= self._settings.max_streams_per_user or sum(self._by_user.values()) >= self._settings.max_streams:
                raise Refused(
                    429, "too many streams are open", hint="close some, or ask again later", headers={"Retry-After": "10"}
                )
            self._by_user[user] = mine + 1

    def give_back(self, user: str) -> None:
        """Give a seat back."""
        with self._guard:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]

    @property
    def num_taken(self) -> int:
        """Watchers now."""
        with self._guard:
            return sum(self._by_user.values())


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one application.

    Attributes:
        settings: what the operator decided.
        backend: stored bisections and what can be done with them.
        doorman: who calls.
        board: running probes.
        feed: events of watched bisections.
        overview: all bisections, as lists show them.
        openings: bisections rebuilt from their observations.
        seats: of watchers.
        meters: for /metrics.
        wake_dispatcher: makes the dispatcher look at the queue at once.
        dispatcher_problem: why no bisection can be started now, "" where it can.
    """

    settings: Settings
    backend: Backend
    doorman: Doorman
    board: LiveBoard
    feed: Feed
    overview: Overview
    openings: Openings
    seats: Seats
    meters: Meters
    wake_dispatcher: Callable[[], None] = field(default=lambda: None)
    dispatcher_problem: Callable[[], str] = field(default=lambda: "")


def parts_of(request: Request) -> Parts:
    """Return the parts; a route's dependency."""
    parts: Parts = request.app.state.parts
    return parts


def find(parts: Parts, bisection_id: str) -> StoredBisection:
    """Return a stored bisection by its whole id. Raises Refused with status 404."""
    try:
        stored = parts.backend.store.load(bisection_id)
    except InputError:
        stored = None
    if stored is None or stored.id != bisection_id:
        raise Refused(404, f"there is no bisection {bisection_id}")
    return stored


def whole_of(store: Store, bisection_id: str) -> str:
    """Return the bisection that one is a part of, at last; itself where it is none."""
    while whole := store.load(bisection_id).question.get("part_of"):
        bisection_id = whole
    return bisection_id


def refuse_others(parts: Parts, bisection_id: str, caller: Caller) -> None:
    """Raise Refused with status 403 where a bisection is another user's; nobody's belongs to administrators."""
    if caller.is_admin:
        return
    entry = parts.backend.queue.entry(bisection_id)
    if entry is None or entry.user != caller.name:
        raise Refused(403, f"bisection {bisection_id} is not yours", hint="its user or an administrator may do this")
