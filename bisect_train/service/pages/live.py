"""What a watched bisection's page is told while it runs, by server-sent events: looked up once for all who watch.

Two kinds: `state` {seq, status} whenever something was stored, upon which the browser fetches the page again, and `flight`, the
probes that run with their curves. Each says how things stand, not what has changed: one that is missed is made up for by the
next.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from bisect_train.service.pages.bisection_view import ViewCache
from bisect_train.service.pages.contract import PageBackend
from bisect_train.service.pages.flight_view import Names, flight_to_json, running_probes
from bisect_train.service.pages.words import status_of

LOOK_S = 0.7
HEARTBEAT_S = 15.0
OPEN = ("running", "queued", "created")
"""Statuses in which there is more to come; all others end a stream."""
NOTHING_RUNS = json.dumps(flight_to_json((), Names((), True)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How a bisection stands: number of its last event, status, and its running probes as JSON."""

    seq: int
    status: str
    flight: str


@dataclass(slots=True)
class _Watched:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    looked_s: float = -1e9
    snapshot: Snapshot | None = None


class Watch:
    """Snapshots of the bisections that somebody watches."""

    def __init__(self, backend: PageBackend, cache: ViewCache) -> None:
        self._backend = backend
        self._cache = cache
        self._watched: dict[str, _Watched] = {}
        self._num_watchers: dict[str, int] = {}
        self._num_of: dict[str, int] = {}

    @property
    def num_watchers(self) -> int:
        """Open streams."""
        return sum(self._num_watchers.values())

    def num_of(self, user: str) -> int:
        """Return the open streams of a user."""
        return self._num_of.get(user, 0)

    async def stream(self, bisection_id: str, *, user: str = "") -> AsyncIterator[str]:
        """Yield server-sent events until nothing more is to come, or the browser goes."""
        self._num_of[user] = self.num_of(user) + 1
        self._num_watchers[bisection_id] = self._num_watchers.get(bisection_id, 0) + 1
        told, flight, quiet_s = None, "", time.monotonic()
        try:
            yield "retry: 2000\n\n"
            while True:
                now = await self._look(bisection_id)
                if (state := (now.seq, now.status)) != told:
                    told, quiet_s = state, time.monotonic()
                    yield _event("state", json.dumps({"seq": now.seq, "status": now.status}))
                if now.flight != flight:
                    flight, quiet_s = now.flight, time.monotonic()
                    yield _event("flight", flight)
                if now.status not in OPEN:
                    yield _event("end", "{}")
                    return
                if time.monotonic() - quiet_s > HEARTBEAT_S:
                    quiet_s = time.monotonic()
                    yield ": still here\n\n"
                await asyncio.sleep(LOOK_S)
        finally:
            self._leave(bisection_id, user)

    def _leave(self, bisection_id: str, user: str) -> None:
        self._num_of[user] -= 1
        if not self._num_of[user]:
            del self._num_of[user]
        self._num_watchers[bisection_id] -= 1
        if not self._num_watchers[bisection_id]:
            del self._num_watchers[bisection_id]
            self._watched.pop(bisection_id, None)

    async def _look(self, bisection_id: str) -> Snapshot:
        watched = self._watched.setdefault(bisection_id, _Watched())
        async with watched.lock:
            if watched.snapshot is None or time.monotonic() - watched.looked_s > 0.9 * LOOK_S:
                watched.snapshot = await run_in_threadpool(self._snapshot, bisection_id)
                watched.looked_s = time.monotonic()
            return watched.snapshot

    def _snapshot(self, bisection_id: str) -> Snapshot:
        backend = self._backend
        seq = self._cache.last_seq(bisection_id)
        queued = any(item.bisection_id == bisection_id for item in backend.queue())
        status = status_of(backend.store.load(bisection_id), backend.store, is_queued=queued).name
        if status != "running":
            return Snapshot(seq, status, NOTHING_RUNS)
        runs = running_probes(backend, bisection_id)
        view = self._cache.get(bisection_id)
        return Snapshot(seq, status, json.dumps(flight_to_json(runs, view.names, metric="loss"), allow_nan=False))


def _event(kind: str, data: str) -> str:
    return f"event: {kind}\ndata: {data}\n\n"
