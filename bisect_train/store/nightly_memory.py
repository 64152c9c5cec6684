"""A log of nightly watches that forgets everything: shipped for tests and simulations; one process, any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bisect_train.store import codec
from bisect_train.store.contract import StoredEvent
from bisect_train.store.nightly_contract import StoredWatch, check_name, no_watch, watch_held


class MemoryNightlyLog:
    """See `nightly_contract.NightlyLog`. Values pass through the codec, so that a test sees what a database would give back.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._guard = threading.RLock()
        self._watches: dict[str, tuple[float, str]] = {}
        self._events: dict[str, list[tuple[str, float, str]]] = {}
        self._locks: set[str] = set()

    def open(self, name: str, about: dict[str, Any]) -> StoredWatch:
        """See `nightly_contract.NightlyLog`."""
        check_name(name)
        text = codec.to_text(about)
        with self._guard:
            if name not in self._watches:
                self._watches[name] = (self._clock(), text)
                self._events[name] = []
            return self.watch(name)

    def watches(self) -> tuple[StoredWatch, ...]:
        """See `nightly_contract.NightlyLog`."""
        with self._guard:
            return tuple(self.watch(name) for name in sorted(self._watches))

    def watch(self, name: str) -> StoredWatch:
        """See `nightly_contract.NightlyLog`."""
        with self._guard:
            self._known(name)
            created_s, text = self._watches[name]
            return StoredWatch(name, created_s, codec.of_text(text))

    def _known(self, name: str) -> list[tuple[str, float, str]]:
        if name not in self._watches:
            raise no_watch(name, sorted(self._watches))
        return self._events[name]

    def events(self, name: str, *, after: int = 0) -> tuple[StoredEvent, ...]:
        """See `nightly_contract.NightlyLog`."""
        with self._guard:
            kept = self._known(name)[after:]
            return tuple(
                StoredEvent(seq, kind, time_s, codec.of_text(text))
                for seq, (kind, time_s, text) in enumerate(kept, start=after + 1)
            )

    def append(self, name: str, events: Sequence[tuple[str, dict[str, Any]]]) -> int:
        """See `nightly_contract.NightlyLog`."""
        texts = [(kind, codec.to_text(data)) for kind, data in events]
        with self._guard:
            known = self._known(name)
            known += [(kind, self._clock(), text) for kind, text in texts]
            return len(known)

    def lock(self, name: str) -> AbstractContextManager[None]:
        """See `nightly_contract.NightlyLog`."""
        with self._guard:
            self._known(name)
        return self._hold(name)

    @contextmanager
    def _hold(self, name: str) -> Iterator[None]:
        with self._guard:
            if name in self._locks:
                raise watch_held(name)
            self._locks.add(name)
        try:
            yield
        finally:
            with self._guard:
                self._locks.discard(name)
