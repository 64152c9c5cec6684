"""Who is told what, when: a finding's telling is due in each place until that place has taken it.

A telling is noted as done after it was taken, so a night that is killed in between tells it once more; it then has the same
key (`Finding.key`), by which the receiver drops it. What a place does not take is tried again the next night, and holds up
nothing else; a place that is down is left alone until then. A place that is new hears of what is open, not of what is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bisect_train.core.errors import NotDelivered, PlaceDown
from bisect_train.nightly.finding import Finding
from bisect_train.nightly.reader import WatchReader
from bisect_train.nightly.state import OVER
from bisect_train.nightly.terms import Kept
from bisect_train.store.contract import StoredEvent
from bisect_train.store.nightly_contract import NightlyLog

MAX_DOWN = 2
"""Tellings in a row after which a place counts as down: one alone can be what the place stumbles over."""


class Channel(Protocol):
    """A place that is told of findings."""

    @property
    def id(self) -> str:
        """The same for the same place at every night, different for different ones; holds no secret."""

    @property
    def name(self) -> str:
        """The place for a person; holds no secret."""

    def tell(self, finding: Finding, *, earlier: dict[str, Any] | None) -> dict[str, Any]:
        """Tell it and return a receipt, which is kept.

        Args:
            finding: at its telling.
            earlier: the last receipt of this place for this finding, or None.
        Raises:
            NotDelivered: it was not taken.
            PlaceDown: since the place is down, as it seems.
        """


@dataclass(frozen=True, slots=True)
class Due:
    """A telling that a place has not taken yet, and its last receipt for this finding."""

    finding: Finding
    earlier: dict[str, Any] | None


def tellings_due(events: Sequence[StoredEvent], channel_id: str) -> list[Due]:
    """Return what a place is to be told, in order. A telling that a later one has overtaken is left out if it was never taken.

    Args:
        events: of the watch.
        channel_id: of the place.
    """
    since = next((event.seq for event in events if event.kind == "channel" and event.data["to"] == channel_id), None)
    told = [event.data for event in events if event.kind == "told" and event.data["to"] == channel_id]
    keys = {data["key"] for data in told}
    receipts = {data["finding"]: data["receipt"] for data in told}
    newest: dict[str, tuple[int, Finding]] = {}
    for event in events:
        if event.kind == "finding":
            finding = Kept.of_json(event.data["kept"]).finding
            newest.pop(finding.id, None)  # in the order of the newest tellings
            newest[finding.id] = (event.seq, finding)
    due = []
    for seq, finding in newest.values():
        is_wanted = finding.state not in OVER or (since is not None and seq > since)
        if is_wanted and finding.key not in keys:
            due.append(Due(finding, receipts.get(finding.id)))
    return due


class Outbox:
    """Tells what is due.

    Args:
        log: of the watches.
        watch: whose findings.
        reader: of its events.
        channels: places that are told.

    Attributes:
        problems: a line for each telling that a place has not taken; it is not tried again tonight.
    """

    def __init__(self, log: NightlyLog, watch: str, reader: WatchReader, channels: Sequence[Channel]) -> None:
        self._log = log
        self._watch = watch
        self._reader = reader
        self._channels = {channel.id: channel for channel in channels}
        self._refused: set[tuple[str, str]] = set()
        self._num_down = dict.fromkeys(self._channels, 0)
        self.problems: tuple[str, ...] = ()

    def flush(self) -> None:
        """Tell every place what is due there."""
        for channel in self._channels.values():
            events = list(self._reader.events())
            if not any(event.kind == "channel" and event.data["to"] == channel.id for event in events):
                self._log.append(self._watch, [("channel", {"to": channel.id, "name": channel.name})])
            for due in tellings_due(events, channel.id):
                if self._num_down[channel.id] < MAX_DOWN and (channel.id, due.finding.key) not in self._refused:
                    self._tell(channel, due)

    def _tell(self, channel: Channel, due: Due) -> None:
        """Tell a place, and note that it has taken it, or that it has not."""
        try:
            receipt = channel.tell(due.finding, earlier=due.earlier)
        except NotDelivered as error:
            problem = f"{channel.name} was not told of {due.finding.id}, it is tried again the next night: {error.message}"
            self.problems = (*self.problems, problem)
            self._refused.add((channel.id, due.finding.key))
            self._num_down[channel.id] += isinstance(error, PlaceDown)
            return
        self._num_down[channel.id] = 0
        told = {"to": channel.id, "key": due.finding.key, "finding": due.finding.id, "receipt": receipt}
        self._log.append(self._watch, [("told", told)])
