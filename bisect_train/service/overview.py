"""All bisections as lists show them: the newest first, a page at a time, each with its place in the queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bisect_train.core.secrets import mask_text
from bisect_train.service.backend import Backend
from bisect_train.service.settings import Settings
from bisect_train.service.views import repository_name
from bisect_train.store.contract import StoredBisection
from bisect_train.store.queue_contract import QueueEntry, QueueState
from bisect_train.store.standing import RUNNING, standing_of

KINDS = ("run", "check", "nightly")
UNSETTLED = ("running", "starting", "stopped")
FRESH_S = 1.0
STATUSES = (
    "created", "queued", "starting", "running", "stopped", "interrupted", "cancelled", "failed", "finished", "changed",
)  # fmt: skip
"""What a bisection is doing. queued: waits its turn; starting: has it; stopped: its coordinator died and nobody goes on;
changed: a person marked something or took it back since it last ran."""


@dataclass(frozen=True, slots=True)
class Item:
    """A bisection in a list.

    Attributes:
        id, title, kind, created_s: as stored.
        status: one of `STATUSES`.
        repository: its name for others.
        user: who asked, "" where nobody did through the service.
        verdict, summary: of the answer, "" without one.
        part_of: the bisection that this one looks into, or "".
        reason: why it failed or was cancelled, or "".
    """

    id: str
    title: str
    kind: str
    created_s: float
    status: str
    repository: str
    user: str
    verdict: str
    summary: str
    part_of: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return it for an answer."""
        return {name: getattr(self, name) for name in Item.__slots__}


class Overview:
    """The list of bisections. It is read once; then only what the store has news of, at most once a second for all who ask.

    Args:
        backend: store and queue.
        settings: names of repositories.
        clock: seconds.
    """

    def __init__(self, backend: Backend, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._guard = threading.Lock()
        self._by_id: dict[str, Item | None] = {}  # None for what is no bisection
        self._items: tuple[Item, ...] = ()
        self._number = 0
        self._read_t: float | None = None

    def items(self) -> tuple[Item, ...]:
        """Return all bisections, the newest first; parts of others, too."""
        with self._guard:
            if self._read_t is None or self._clock() - self._read_t >= FRESH_S:
                self._refresh()
                self._read_t = self._clock()
            return self._items

    def forget(self) -> None:
        """Look for news when it is asked for next: something was just done."""
        with self._guard:
            if self._read_t is not None:
                self._read_t = -FRESH_S

    def _refresh(self) -> None:
        store = self._backend.store
        changed: set[str] = set()
        if not self._number:
            self._number = store.last_update()
            before: str | None = None
            while page := store.page(before=before):
                for stored in page:
                    self._keep(stored)
                before = page[-1].id
        while news := store.updates(self._number):
            changed.update(update.bisection_id for update in news)
            self._number = news[-1].number
        # whether a coordinator lives is no news of the store
        changed.update(item.id for item in self._items if item.status in UNSETTLED)
        for bisection_id in changed:
            self._keep(store.load(bisection_id))
        known = [item for item in self._by_id.values() if item is not None]
        self._items = tuple(sorted(known, key=lambda item: (item.created_s, item.id), reverse=True))

    def _keep(self, stored: StoredBisection) -> None:
        self._by_id[stored.id] = self.item(stored) if stored.question["kind"] in KINDS else None

    def item(self, stored: StoredBisection) -> Item:
        """Return a bisection as lists show it."""
        entry = self._backend.queue.entry(stored.id)
        answer = stored.answer or {}
        return Item(
            id=stored.id,
            title=mask_text(stored.title),
            kind=stored.question["kind"],
            created_s=stored.created_s,
            status=self._status_of(stored, entry),
            repository=repository_name(stored.question["repo"], self._settings),
            user=entry.user if entry is not None else "",
            verdict=str(answer.get("status", "")),
            summary=str(answer.get("summary", "")),
            part_of=stored.question.get("part_of") or "",
            reason=mask_text(entry.reason) if entry is not None else "",
        )

    def _status_of(self, stored: StoredBisection, entry: QueueEntry | None) -> str:
        if entry is not None and entry.state is QueueState.QUEUED:
            return "queued"
        standing = standing_of(stored, self._backend.store)
        if standing == RUNNING:
            return RUNNING
        if entry is not None and entry.state is QueueState.RUNNING:
            return "starting"
        if entry is not None and entry.state is QueueState.FAILED:
            return "failed"
        return standing
