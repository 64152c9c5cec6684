"""Follows the events of a watch: each is read and folded once, however long the history is."""

from __future__ import annotations

from bisect_train.nightly.state import WatchState, fold
from bisect_train.store.contract import StoredEvent
from bisect_train.store.nightly_contract import NightlyLog


class WatchReader:
    """What a watch's events say, up to date at every call.

    Args:
        log: of the watches.
        watch: name.
    """

    def __init__(self, log: NightlyLog, watch: str) -> None:
        self._log = log
        self._watch = watch
        self._events: list[StoredEvent] = []
        self._state = WatchState()

    def events(self) -> list[StoredEvent]:
        """Return all events so far."""
        new = self._log.events(self._watch, after=len(self._events))
        for event in new:
            self._state = fold(self._state, event)
        self._events += new
        return self._events

    def state(self) -> WatchState:
        """Return what they say."""
        self.events()
        return self._state
