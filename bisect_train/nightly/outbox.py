"""Who is told what, when: a finding's telling is due in each place until that place has taken it.

A telling is noted as done after it was taken, so a night that is killed in between tells it once more; it then has the same
key (`Finding.key`), by which the receiver drops it. A place that is down is told the next night. A place that is new hears of
what is still open, not of what is long over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bisect_train.core.errors import NotDelivered
from bisect_train.nightly.finding import Finding
from bisect_train.nightly.reader import WatchReader
from bisect_train.nightly.state import OVER
from bisect_train.nightly.terms import Kept
from bisect_train.store.contract import StoredEvent
from bisect_train.store.nightly_contract import NightlyLog


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
        problems: a line for each place that could not be told; it is not asked again tonight.
    """

    def __init__(self, log: NightlyLog, watch: str, reader: WatchReader, channels: Sequence[Channel]) -> None:
        self._log = log
        self._watch = watch
        self._reader = reader
        self._channels = {channel.id: channel for channel in channels}
        self.problems: tuple[str, ...] = ()

    def flush(self) -> None:
        """Tell every place what is due there."""
        for channel in list(self._channels.values()):
            events = list(self._reader.events())
            if not any(event.kind == "channel" and event.data["to"] == channel.id for event in events):
                self._log.append(self._watch, [("channel", {"to": channel.id, "name": channel.name})])
            for due in tellings_due(events, channel.id):
                if not self._tell(channel, due):
                    break

    def _tell(self, channel: Channel, due: Due) -> bool:
        """Return whether a place has taken a telling."""
        try:
            receipt = channel.tell(due.finding, earlier=due.earlier)
        except NotDelivered as error:
            problem = f"{channel.name} was not told of {due.finding.id}, it is tried again the next night: {error.message}"
            self.problems = (*self.problems, problem)
            del self._channels[channel.id]
            return False
        told = {"to": channel.id, "key": due.finding.key, "finding": due.finding.id, "receipt": receipt}
        self._log.append(self._watch, [("told", told)])
        return True
