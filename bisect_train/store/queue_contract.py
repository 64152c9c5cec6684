"""What a queue of bisections promises: who may ask, what waits, what runs, what was used. `store.queue` keeps it.

An entry is queued, claimed by one dispatcher (running), and ends as done, failed or cancelled. An entry whose dispatcher
has died goes back to the queue, and the bisection goes on where it was. All times that decide who lives are by the
database's clock, so that machines whose clocks differ agree.

Which repositories and recipes others may ask about is the configuration of the service, not of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from bisect_train.core.errors import InputError
from bisect_train.store.contract import CANCEL_REQUESTED

CANCEL_WITHDRAWN = "cancel_withdrawn"
"""Event: a cancel does not hold any more, since the bisection was submitted again."""

ANSWERED_AT_ONCE = "answered_at_once"
"""Event: a user asked through the queue, and nothing had to be run."""

DAY_S = 86_400.0
"""Limits per day hold for any 24 hours, not from midnight: nobody gains by asking at the right minute."""

MAX_STARTS = 5
"""An entry whose dispatchers died so often is failed: it may be what kills them."""

DISPATCHER_LEASE_S = 30.0
"""A dispatcher that has not been heard of for so long counts as dead; it says that it lives every third of it."""

MIN_TOKEN_CHARS = 32


class LimitError(InputError):
    """A user has as many entries in the queue as the limit allows; the same request may be good later."""


class QueueState(str, Enum):
    """Where an entry is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"  # the bisection came to an answer
    FAILED = "failed"  # it stopped with an error, see `reason`
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more unless it is submitted again."""
        return self in (QueueState.DONE, QueueState.FAILED, QueueState.CANCELLED)


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What one user may do; None is no limit.

    Attributes:
        max_queued: entries that wait; one more is refused.
        max_running: entries that run at the same time; more wait.
        max_probes_per_day: finished probes in 24 hours; once they are used up, entries wait.
        max_gpu_hours_per_day: likewise GPU-hours, those of lost and cancelled probes too.
    """

    max_queued: int | None = None
    max_running: int | None = None
    max_probes_per_day: int | None = None
    max_gpu_hours_per_day: float | None = None


NO_LIMITS = UserLimits()
LOCAL_USER = "local"
"""The one person on this machine, where nobody needs a token."""
OPERATOR = "operator"
"""Who has a token that the service was started with."""
OWN_NAMES = (LOCAL_USER, OPERATOR)
"""Users whom the service knows without a token of the store's."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may ask: a person or a program.

    Attributes:
        name: 1 to 64 of letters, digits and `._@-`.
        is_admin: whether it may see and stop what others asked, and manage users.
        limits: see `UserLimits`.
        created_s: seconds since the epoch.
        has_token: False once it was revoked.
        token_hash: SHA-256 of the token, "" without one; never shown.
    """

    name: str
    is_admin: bool
    limits: UserLimits
    created_s: float
    has_token: bool = True
    token_hash: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A bisection in the queue.

    Attributes:
        bisection_id: what is to be run.
        user: name of who asked.
        state: see `QueueState`.
        priority: among the entries of one user the higher goes first; it gives nothing over other users.
        submitted_s, started_s, ended_s: seconds since the epoch by the database's clock; None where it has not happened.
        num_starts: how often it was claimed since it was submitted, times when it was given back left out.
        dispatcher: `host:pid` of the one that runs it, "" if none does.
        reason: why it failed or was cancelled, or "".
    """

    bisection_id: str
    user: str
    state: QueueState
    priority: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    num_starts: int
    dispatcher: str
    reason: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a user has in the queue, and what its bisections (their parts too) used since some time.

    Attributes:
        num_probes: probes that came to their end; reused results count nothing.
        gpu_s: GPU-seconds of all probes, those that were lost or cancelled too.
    """

    user: str
    num_queued: int
    num_running: int
    num_probes: int
    gpu_s: float


@dataclass(frozen=True, slots=True)
class DayUsage:
    """What a user's bisections used on one day (UTC, `2026-11-30`)."""

    user: str
    day: str
    num_probes: int
    gpu_s: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left to a user of the last 24 hours' limits, >= 0; None is no limit."""

    num_probes: int | None
    gpu_hours: float | None

    @property
    def is_spent(self) -> bool:
        """Whether nothing may be started."""
        return self.num_probes == 0 or self.gpu_hours == 0.0


def is_cancel_in_force(kinds: Sequence[str]) -> bool:
    """Return whether cancelling was asked for and not taken back, given the kinds of the events in order.

    Whatever was started or interrupted since: whoever was asked may have died before it obeyed. And one that has obeyed is
    not to be run again because the service died before it noted that in the queue.
    """
    deciding = (CANCEL_REQUESTED, CANCEL_WITHDRAWN, "cancelled", "finished")
    return next((kind for kind in reversed(kinds) if kind in deciding), "") in (CANCEL_REQUESTED, "cancelled")


class Queue(Protocol):
    """Keeps users and entries over restarts; several processes may use one.

    Unknown users and bisections raise InputError; a database that cannot be used raises MachineError.
    """

    # ---- users ----------------------------------------------------------------------------------------------------

    def add_user(self, name: str, *, is_admin: bool = False, limits: UserLimits = NO_LIMITS, token: str | None = None) -> str:
        """Add a user and return its token, which is not kept and cannot be read again.

        Args:
            name: see `User`.
            is_admin: see `User`.
            limits: see `UserLimits`.
            token: one that was made elsewhere at random, of at least `MIN_TOKEN_CHARS` characters; made here unless given.
        Raises:
            InputError: the name is taken, no name or one of `OWN_NAMES`, or the token is short or somebody else's.
        """

    def ensure_own_user(self, name: str) -> None:
        """Make the entry of one of `OWN_NAMES`, an administrator without a token, unless there is one."""

    def set_user(self, name: str, *, is_admin: bool | None = None, limits: UserLimits | None = None) -> User:
        """Change a user; None leaves a thing as it is."""

    def renew_token(self, name: str) -> str:
        """Return a new token of a user; the old one is good for nothing any more. None of `OWN_NAMES` gets one."""

    def revoke_token(self, name: str) -> None:
        """Take a user's token away; what it asked stays."""

    def users(self) -> tuple[User, ...]:
        """Return all users by name."""

    def user(self, name: str) -> User:
        """Return a user."""

    def user_of_token(self, token: str) -> User | None:
        """Return whose token this is, None for nobody's."""

    # ---- entries --------------------------------------------------------------------------------------------------

    def submit(self, bisection_id: str, user: str, *, priority: int = 0, is_limited: bool = True) -> QueueEntry:
        """Put a stored bisection into the queue, or back into it once it was over (to resume it).

        An earlier cancel is taken back by this.

        Args:
            bisection_id: what is to be run.
            user: who asks.
            priority: see `QueueEntry`.
            is_limited: whether the limit of those that wait holds: not for what follows from one that was run.
        Raises:
            LimitError: the user has too many that wait.
            InputError: it waits or runs already, or is another user's.
        """

    def note_answered(self, bisection_id: str, user: str) -> QueueEntry:
        """Note that a user has asked for a bisection that was answered at once; it counts as one probe of the day.

        Raises:
            LimitError: the user has too many that wait, or has nothing left today.
            InputError: it was submitted already.
        """

    def entry(self, bisection_id: str) -> QueueEntry | None:
        """Return the entry of a bisection, None if it was never submitted."""

    def entries(
        self,
        *,
        states: Sequence[QueueState] = (),
        user: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> tuple[QueueEntry, ...]:
        """Return a page of entries, those submitted last first.

        Args:
            states: only these; () for all.
            user: only of this one.
            limit: at most so many.
            before: bisection id of the last entry of the page before.
        """

    def cancel(self, bisection_id: str, *, reason: str = "") -> QueueEntry:
        """Take a waiting entry out, or ask the coordinator of a running one to stop (`Store.request_cancel`).

        A running one stays running until its dispatcher calls `finish`; until then it may be asked again. What was asked
        is stored when this returns: if the dispatcher dies first, the next one obeys (`is_cancel_in_force`).

        Raises:
            InputError: it is over already, or was never submitted.
        """

    # ---- dispatchers ----------------------------------------------------------------------------------------------

    def join(self, *, lease_s: float = DISPATCHER_LEASE_S) -> AbstractContextManager[str]:
        """Return a context that gives a new dispatcher's id; a thread says that it lives until the context ends.

        What it has claimed and not finished by then goes back to the queue.
        """

    def claim(self, dispatcher: str) -> QueueEntry | None:
        """Give a dispatcher the entry that is due and note it as running; None if none is.

        Due is one of the user with the fewest running entries, then with the least GPU time and the fewest probes in the
        last 24 hours, then whose entry waits longest; of one user's entries the one of the highest priority, then the
        oldest. Users at a limit wait, and so does a bisection that some coordinator still has. Two dispatchers never get
        the same entry. Entries of dead dispatchers go back to the queue first.

        Raises:
            MachineError: the dispatcher counts as dead: it was not heard of for too long and has to join again.
        """

    def finish(self, dispatcher: str, bisection_id: str, state: QueueState, *, reason: str = "") -> None:
        """Note how a claimed entry ended: done, failed or cancelled; or queued, to give it back.

        Raises:
            MachineError: the entry is not this dispatcher's any more.
        """

    def recover(self) -> tuple[str, ...]:
        """Put the entries of dead dispatchers back into the queue, as `claim` does; return their bisections' ids."""

    # ---- usage ----------------------------------------------------------------------------------------------------

    def usage(self, user: str, *, since_s: float | None = None) -> Usage:
        """Return what a user has and has used since then; in the last 24 hours unless given."""

    def usages(self, *, since_s: float | None = None) -> tuple[Usage, ...]:
        """Return that of all users, by name."""

    def daily_usage(self, *, since_s: float, user: str | None = None) -> tuple[DayUsage, ...]:
        """Return what was used by day and user, the newest day first; days without any use are left out."""

    def allowance(self, user: str) -> Allowance:
        """Return what a user's limits leave now: for the limits of a bisection that is about to start.

        Probes that run do not count yet: of two that start at once each gets all that is left.
        """
