"""What every log of nightly watches promises; `tests/contracts/test_nightly_log_contract.py` holds each implementation to it.

A watch is a branch that is looked at again and again. All that is known of it is derived from its events. It belongs to whoever
holds its lock; everybody may read at any time. Durability is that of `contract.Store`: events that were appended together are
there together or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bisect_train.core.errors import InputError
from bisect_train.store.contract import StoredEvent

WATCH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoredWatch:
    """A watch as stored.

    Attributes:
        name: a letter or digit, then up to 63 letters, digits, `.`, `_`, `-`.
        created_s: seconds since the epoch.
        about: what is watched, as it was first given.
    """

    name: str
    created_s: float
    about: dict[str, Any]


class NightlyLog(Protocol):
    """Keeps watches and their events.

    Unknown names raise InputError; a database that cannot be used raises MachineError.
    """

    def open(self, name: str, about: dict[str, Any]) -> StoredWatch:
        """Return the watch of this name; it is stored with `about` if there is none.

        Raises:
            InputError: no watch can have this name.
        """

    def watches(self) -> tuple[StoredWatch, ...]:
        """Return all watches by name."""

    def watch(self, name: str) -> StoredWatch:
        """Return a watch."""

    def events(self, name: str, *, after: int = 0) -> tuple[StoredEvent, ...]:
        """Return the events numbered above `after`, in order; they are numbered 1, 2, 3 ... without gaps."""

    def append(self, name: str, events: Sequence[tuple[str, dict[str, Any]]]) -> int:
        """Append events (kind, data), at least one, in one transaction; return the number of the last one."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which nobody else, in this or another process, can have this watch; it ends with its process.

        Raises:
            InputError: somebody has it.
        """


def check_name(name: str) -> None:
    """Raise InputError for what can be no name of a watch."""
    if not WATCH_NAME.fullmatch(name):
        hint = "take letters, digits, `.`, `_` and `-`, 64 at most, beginning with a letter or digit"
        raise InputError(f"{name!r} is no name of a watch", hint=hint)


def no_watch(name: str, known: Sequence[str]) -> InputError:
    """Return the error for a name that no watch has."""
    return InputError(f"there is no watch {name!r}", hint=f"watches here: {', '.join(known) or 'none'}")


def watch_held(name: str, pid: str = "") -> InputError:
    """Return the error for a watch that another process has; `pid` is "" if it cannot be told."""
    who = f"process {pid}" if pid else "another process"
    return InputError(f"{name} is being watched by {who} just now", hint="it needs no second one: wait until that has ended")
