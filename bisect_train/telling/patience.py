"""Tries again what failed for a while only: a server that is down, a limit that was reached, an answer that did not come."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bisect_train.core.errors import PlaceDown
from bisect_train.telling.message import Message
from bisect_train.telling.messenger import Messenger, Receipt

PAUSES_S = (1.0, 4.0, 16.0)
LONGEST_WAIT_S = 60.0  # a place that asks for more is left for the next time: a nightly run must end
PASSING = frozenset([408, 425, 429, 500, 502, 503, 504])
"""HTTP statuses that may be another one in a while."""


class TryLater(Exception):
    """A way of telling failed in a way that may pass. `reason` holds no secret; `after_s` is what the place asks to wait."""

    def __init__(self, reason: str, *, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Patient:
    """A messenger that tries again.

    Attributes:
        messenger: whose `send` may raise TryLater.
        sleep: waits so many seconds.
    """

    messenger: Messenger
    sleep: Callable[[float], None] = field(default=time.sleep)

    @property
    def name(self) -> str:
        """The place."""
        return self.messenger.name

    @property
    def can_edit(self) -> bool:
        """Whether an earlier message is edited."""
        return self.messenger.can_edit

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        """Tell it, at most `len(PAUSES_S) + 1` times. Raises NotDelivered, PlaceDown where every try failed."""
        for pause_s in (*PAUSES_S, None):
            try:
                return self.messenger.send(message, earlier=earlier)
            except TryLater as error:
                wait_s = max(pause_s or 0.0, error.after_s or 0.0)
                if pause_s is None or wait_s > LONGEST_WAIT_S:
                    raise self._give_up(error) from None
                self.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _give_up(self, error: TryLater) -> PlaceDown:
        wait = f", it asks to wait {error.after_s:.0f} s" if error.after_s else ""
        return PlaceDown(f"{self.name}: {error.reason}{wait}", hint="nothing is lost: tell it again later")


def read_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Return the seconds that a Retry-After header asks for (a number or a date), None without a usable one."""
    if not value:
        return None
    if value.isascii() and value.strip().isdigit():  # `²` is a digit, too, and no number
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now_s)
    except (ValueError, OverflowError):  # the latter for a year beyond the calendar
        return None
