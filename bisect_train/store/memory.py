"""A store that forgets everything: shipped for tests, dry runs and demos; one process, any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bisect_train.core.probe import ProbeResult
from bisect_train.store import codec
from bisect_train.store.contract import (
    BISECTION_HINT,
    CANCEL_REQUESTED,
    PAGE,
    PROBE_FINISHED,
    PROBE_HINT,
    PROBE_REUSED,
    StoredBisection,
    StoredEvent,
    StoredProbe,
    Update,
    is_cancel_requested,
    lock_held,
    next_id,
    no_bisection,
    no_result,
    pick_prefix,
    status_of,
    whole_in,
)

_Events = list[tuple[str, float, str]]  # kind, time_s, data; the class below has a method called list


class MemoryStore:
    """See `contract.Store`. Values pass through the codec, so that a test sees what a database would give back.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._guard = threading.RLock()
        self._heads: dict[str, tuple[float, str, str]] = {}  # id -> created_s, question, title
        self._events: dict[str, _Events] = {}
        self._probes: dict[str, dict[str, tuple[int, bytes]]] = {}  # id -> key -> seq, result
        self._first: dict[str, tuple[str, bytes]] = {}  # key -> id, result
        self._locks: set[str] = set()
        self._updates: dict[str, int] = {}
        self._last_update = 0

    def create(self, question: dict[str, Any], *, title: str) -> str:
        """See `contract.Store`."""
        text = codec.to_text(question)
        with self._guard:
            now = self._clock()
            new = next_id(now, list(self._heads))
            self._heads[new] = (now, text, codec.plain_text(title))
            self._events[new] = []
            self._probes[new] = {}
            self._note_update(new)
        return new

    def load(self, id_or_prefix: str) -> StoredBisection:
        """See `contract.Store`."""
        with self._guard:
            ids = sorted(self._heads)
            wanted = self.list()[0].id if id_or_prefix == "last" and ids else id_or_prefix
            return self._head(pick_prefix(wanted, ids, what="bisection", hint=BISECTION_HINT))

    def list(self) -> tuple[StoredBisection, ...]:
        """See `contract.Store`."""
        with self._guard:
            newest_first = sorted(self._heads, key=lambda item: (self._heads[item][0], item), reverse=True)
            return tuple(self._head(item) for item in newest_first)

    def page(self, *, limit: int = PAGE, before: str | None = None, parts: bool = True) -> tuple[StoredBisection, ...]:
        """See `contract.Store`."""
        with self._guard:
            every = self.list()
        if before is not None:
            ids = [item.id for item in every]
            if before not in ids:
                raise no_bisection(before)
            every = every[ids.index(before) + 1 :]
        return tuple(item for item in every if parts or not whole_in(item.question))[:limit]

    def updates(self, after: int, *, limit: int = PAGE) -> tuple[Update, ...]:
        """See `contract.Store`."""
        with self._guard:
            found = sorted((number, name) for name, number in self._updates.items() if number > after)
        return tuple(Update(number, name) for number, name in found[:limit])

    def last_update(self) -> int:
        """See `contract.Store`."""
        with self._guard:
            return self._last_update

    def _head(self, bisection_id: str) -> StoredBisection:
        created_s, question, title = self._heads[bisection_id]
        status, answer = status_of(self.events(bisection_id))
        return StoredBisection(bisection_id, created_s, codec.of_text(question), title, status, answer)

    def append(self, bisection_id: str, kind: str, data: dict[str, Any]) -> int:
        """See `contract.Store`."""
        text = codec.to_text(data)
        with self._guard:
            events = self._known(bisection_id)
            events.append((kind, self._clock(), text))
            self._note_update(bisection_id)
            return len(events)

    def _note_update(self, bisection_id: str) -> None:
        self._last_update += 1
        self._updates[bisection_id] = self._last_update

    def _known(self, bisection_id: str) -> _Events:
        if bisection_id not in self._events:
            raise no_bisection(bisection_id)
        return self._events[bisection_id]

    def events(self, bisection_id: str, *, after: int = 0, limit: int | None = None) -> tuple[StoredEvent, ...]:
        """See `contract.Store`."""
        with self._guard:
            found = self._known(bisection_id)
            last = len(found) if limit is None else after + limit
            return tuple(
                StoredEvent(seq, kind, time_s, codec.of_text(text))
                for seq, (kind, time_s, text) in enumerate(found[after:last], start=after + 1)
            )

    def save_result(self, bisection_id: str, key: str, result: ProbeResult, *, spec: dict[str, Any]) -> None:
        """See `contract.Store`."""
        packed = codec.pack_result(result)
        with self._guard:
            self._known(bisection_id)
            if key in self._probes[bisection_id]:
                return
            seq = self.append(bisection_id, PROBE_FINISHED, {"key": key, "spec": spec})
            self._probes[bisection_id][key] = (seq, packed)
            self._first.setdefault(key, (bisection_id, packed))

    def reuse_result(self, bisection_id: str, key: str, spec: dict[str, Any]) -> None:
        """See `contract.Store`."""
        with self._guard:
            self._known(bisection_id)
            if key in self._probes[bisection_id]:
                return
            if key not in self._first:
                raise no_result(key)
            seq = self.append(bisection_id, PROBE_REUSED, {"key": key, "spec": spec})
            self._probes[bisection_id][key] = (seq, self._first[key][1])

    def find_result(self, key: str) -> ProbeResult | None:
        """See `contract.Store`."""
        with self._guard:
            return codec.unpack_result(self._first[key][1]) if key in self._first else None

    def find_probe(self, prefix: str) -> StoredProbe:
        """See `contract.Store`."""
        with self._guard:
            key = pick_prefix(prefix, sorted(self._first), what="probe", hint=PROBE_HINT)
            return self._probe(self._first[key][0], key)

    def results(self, bisection_id: str) -> tuple[StoredProbe, ...]:
        """See `contract.Store`."""
        with self._guard:
            self._known(bisection_id)
            return tuple(self._probe(bisection_id, key) for key in self._probes[bisection_id])

    def _probe(self, bisection_id: str, key: str) -> StoredProbe:
        seq, packed = self._probes[bisection_id][key]
        _, time_s, text = self._events[bisection_id][seq - 1]
        return StoredProbe(key, bisection_id, codec.of_text(text)["spec"], codec.unpack_result(packed), time_s)

    @contextmanager
    def lock(self, bisection_id: str) -> Iterator[None]:
        """See `contract.Store`."""
        with self._guard:
            self._known(bisection_id)
            if bisection_id in self._locks:
                raise lock_held(bisection_id, "")
            self._locks.add(bisection_id)
        try:
            yield
        finally:
            with self._guard:
                self._locks.discard(bisection_id)

    def is_running(self, bisection_id: str) -> bool:
        """See `contract.Store`."""
        with self._guard:
            self._known(bisection_id)
            return bisection_id in self._locks

    def request_cancel(self, bisection_id: str) -> None:
        """See `contract.Store`."""
        self.append(bisection_id, CANCEL_REQUESTED, {})

    def cancel_requested(self, bisection_id: str) -> bool:
        """See `contract.Store`."""
        return is_cancel_requested([event.kind for event in self.events(bisection_id)])

    def close(self) -> None:
        """See `contract.Store`."""
