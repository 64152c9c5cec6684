"""What every way of telling promises: one message a finding and place, edited where the place can edit.

Who calls keeps the receipts (an outbox, the events of a bisection) and hands back the last one of the same finding and address;
where it is lost, GitHub is searched for the message, and other places are told as if for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from bisect_train.core.errors import damaged
from bisect_train.telling.message import Message


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message.

    Attributes:
        how: created, edited, sent, or `left out` where nothing was to be sent.
        place: address or number of the message where it can be edited, "" otherwise; holds no secret.
        reason: why it was left out, or "".
    """

    how: str
    place: str = ""
    reason: str = ""

    @property
    def is_told(self) -> bool:
        """Whether anybody has the message."""
        return self.how != LEFT_OUT

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return asdict(self)

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> Receipt:
        """Return what `to_json` wrote, in this version or a newer one. Raises MachineError: it did not write this."""
        given = [data.get(name, default) for name, default in (("how", None), ("place", ""), ("reason", ""))]
        if not all(isinstance(item, str) for item in given):
            raise damaged("a stored receipt", "`how`, `place` and `reason` must be texts")
        return Receipt(*given)


LEFT_OUT = "left out"
UPDATED = "updated"


class Messenger(Protocol):
    """One place that is told."""

    @property
    def name(self) -> str:
        """The place for a person and for logs, without secrets: `webhook hooks.example.org`, `comment on owner/name#12`."""

    @property
    def can_edit(self) -> bool:
        """Whether an earlier message is edited; where not, one is sent when something is found and one when it is over."""

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        """Tell it.

        Args:
            message: what.
            earlier: the last receipt of this finding from this place that `is_told`, if there is one.
        Raises:
            NotDelivered: it could not be told; nothing is lost, the same call may be made later.
        """


def skip_of(message: Message, earlier: Receipt | None, *, can_edit: bool) -> Receipt | None:
    """Return why a place that cannot be asked what it has is not told, or None where it is to be told."""
    if earlier is not None and message.state == UPDATED and not can_edit:
        return Receipt(LEFT_OUT, reason="this place has the message and cannot edit it; it is told again when it is over")
    if earlier is None and message.is_closing:
        return Receipt(LEFT_OUT, reason="this place was never told of it")
    return None
