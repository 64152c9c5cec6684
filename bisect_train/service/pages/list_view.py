"""What the first page shows: bisections by filter, what waits, and the nightly histories."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bisect_train.report.words import say_count
from bisect_train.service.pages.contract import PageBackend, Waiting
from bisect_train.service.pages.words import Status, say_cost, status_of
from bisect_train.store.contract import PROBE_FINISHED, StoredBisection

PAGE_SIZE = 50
KINDS = ("run", "check")
FRESH_S, OLD_S = 1.0, 10.0
SETTLED_S = 600.0


@dataclass(frozen=True, slots=True)
class ListFilter:
    """What a person wants to see: words in title or verdict, a status, who asked, and the page from 1."""

    text: str = ""
    status: str = ""
    user: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class ListRow:
    """One bisection: `is_part` where it looks inside a culprit of the one above it."""

    id: str
    title: str
    said: str
    status: Status
    user: str
    created_s: float
    cost: str
    is_part: bool


@dataclass(frozen=True, slots=True)
class ListPage:
    """The rows of one page of the list; `users` are all who have asked something."""

    rows: tuple[ListRow, ...]
    num_found: int
    page: int
    num_pages: int
    users: tuple[str, ...]
    waiting: tuple[Waiting, ...]


class Shelf:
    """All bisections in order and who asked them, read anew only when something was stored; thread-safe."""

    def __init__(self, backend: PageBackend) -> None:
        self._backend = backend
        self._guard = threading.Lock()
        self._update = -1
        self._due_t = 0.0
        self._every: tuple[StoredBisection, ...] = ()
        self._users: dict[str, str] = {}

    def read(self) -> tuple[tuple[StoredBisection, ...], Mapping[str, str]]:
        """Return the bisections and who asked, at most a moment old."""
        with self._guard:
            now_t = time.monotonic()
            if now_t < self._due_t:
                return self._every, self._users
            update = self._backend.store.last_update()
            if update != self._update or now_t - self._due_t > OLD_S:
                listed = in_order(self._backend.store.list())
                self._every = tuple(stored for stored in listed if stored.question.get("kind") in KINDS)
                self._users = {stored.id: self._user_of(stored) for stored in self._every}
                self._update = update
                self._due_t = time.monotonic() + max(FRESH_S, 3.0 * (time.monotonic() - now_t))
            return self._every, self._users

    def forget(self) -> None:
        """Read anew when it is asked for next."""
        with self._guard:
            self._update, self._due_t = -1, 0.0

    def _user_of(self, stored: StoredBisection) -> str:
        # who asked is written down right after the question, and does not change
        known = self._users.get(stored.id)
        is_settled = known is not None and (known or time.time() - stored.created_s > SETTLED_S)
        return known if known is not None and is_settled else self._backend.user_of(stored.id)


def make_list(backend: PageBackend, wanted: ListFilter, shelf: Shelf) -> ListPage:
    """Return one page of the list, the newest first."""
    waiting = tuple(backend.queue())
    queued = {item.bisection_id for item in waiting}
    every, users = shelf.read()
    found = [stored for stored in every if _is_wanted(stored, users[stored.id], wanted)]
    if wanted.status:
        found = [stored for stored in found if _status(backend, stored, queued).name == wanted.status]
    num_pages = max(1, -(-len(found) // PAGE_SIZE))
    page = min(max(1, wanted.page), num_pages)
    shown = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    rows = tuple(_row(backend, stored, users[stored.id], queued) for stored in shown)
    return ListPage(rows, len(found), page, num_pages, tuple(sorted(filter(None, set(users.values())))), waiting)


def in_order(every: Sequence[StoredBisection]) -> list[StoredBisection]:
    """Return the bisections in their order, each with its parts right behind it, the oldest of them first."""
    known = {stored.id for stored in every}
    parts: dict[str, list[StoredBisection]] = {}
    for stored in reversed(every):
        parts.setdefault(stored.question.get("part_of") or "", []).append(stored)
    ordered: list[StoredBisection] = []

    def add(some: Iterable[StoredBisection]) -> None:
        for stored in some:
            ordered.append(stored)
            add(parts.get(stored.id, ()))

    add(stored for stored in every if stored.question.get("part_of") not in known)
    return ordered


def _is_wanted(stored: StoredBisection, user: str, wanted: ListFilter) -> bool:
    text = f"{stored.id} {stored.title} {(stored.answer or {}).get('summary', '')}".lower()
    return wanted.text.lower() in text and (not wanted.user or user == wanted.user)


def _status(backend: PageBackend, stored: StoredBisection, queued: set[str]) -> Status:
    return status_of(stored, backend.store, is_queued=stored.id in queued)


def _row(backend: PageBackend, stored: StoredBisection, user: str, queued: set[str]) -> ListRow:
    answer = stored.answer or {}
    cost = say_cost(answer.get("cost", {}))
    if not answer:
        num = sum(event.kind == PROBE_FINISHED for event in backend.store.events(stored.id))
        cost = f"{say_count(num, 'probe')} so far" if num else ""
    return ListRow(
        id=stored.id,
        title=stored.title,
        said=str(answer.get("summary", "")),
        status=_status(backend, stored, queued),
        user=user,
        created_s=stored.created_s,
        cost=cost,
        is_part=bool(stored.question.get("part_of")),
    )
