"""The queue of a service in the database: who asked for what, what runs where, whose turn it is.

A dispatcher says that it lives in a row of its own, as coordinators do with leases. Claims of one user's entries take turns
by the lock of the user's row, so its limits hold however many dispatchers there are; dispatchers pass each other's users by.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from bisect_train.core.errors import InputError, MachineError
from bisect_train.store import rows
from bisect_train.store.contract import CANCEL_REQUESTED
from bisect_train.store.engine import Database
from bisect_train.store.leases import host_name
from bisect_train.store.queue_contract import (
    ANSWERED_AT_ONCE,
    CANCEL_WITHDRAWN,
    DAY_S,
    DISPATCHER_LEASE_S,
    MAX_STARTS,
    Allowance,
    DayUsage,
    LimitError,
    QueueEntry,
    QueueState,
    Usage,
    is_cancel_in_force,
)
from bisect_train.store.tables import bisections, dispatchers, events, queue
from bisect_train.store.usage import allowance_of, daily_usages, is_at_limit, usages_of
from bisect_train.store.users import SqlUsers, lock_user, user_of

_PASSED = 20  # entries of one user that are tried where coordinators still have the first ones
_JOIN_S = 2.0
_IN_TURN = (queue.c.priority.desc(), queue.c.submitted_s, queue.c.bisection_id)


class Holders(Protocol):
    """Tells which bisections coordinators have: `locks.LockFolder` or `leases.LeaseBook`."""

    def is_held_now(self, connection: Connection, bisection_id: str, /) -> bool:
        """Return whether a coordinator has a bisection."""


class SqlQueue(SqlUsers):
    """See `queue_contract.Queue`. Made by `SqlStore.queue`.

    Args:
        database: where it is.
        holders: tells which bisections run.
        clock: seconds since the epoch, for the times of events; who lives is told by the database's clock.
    """

    def __init__(self, database: Database, holders: Holders, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database)
        self._holders = holders
        self._clock = clock
        self._lease_s: dict[str, float] = {}  # by dispatcher of this process

    # ---- entries --------------------------------------------------------------------------------------------------

    def submit(self, bisection_id: str, user: str, *, priority: int = 0, is_limited: bool = True) -> QueueEntry:
        """See `queue_contract.Queue`."""
        with self._database.write() as connection:
            lock_user(connection, user)
            self._refuse_part(connection, bisection_id)
            known = _lock_entry(connection, bisection_id)
            if known is not None and not QueueState(known.state).is_over:
                raise InputError(f"bisection {bisection_id} is {known.state} already", hint="wait for it, or cancel it first")
            if known is not None and known.user_name != user:
                raise InputError(f"bisection {bisection_id} is another user's", hint="only who asked can submit it again")
            if is_limited:
                _refuse_full(connection, user)
            self._withdraw_cancel(connection, bisection_id)
            values = {"user_name": user, "state": QueueState.QUEUED.value, "priority": priority, "num_starts": 0, "reason": ""}
            values |= {"submitted_s": self._database.now(connection), "started_s": None, "ended_s": None, "dispatcher_id": None}
            if known is None:
                connection.execute(insert(queue).values(bisection_id=bisection_id, **values))
            else:
                _set(connection, bisection_id, **values)
            rows.note_update(connection, bisection_id)
            return _entry_of(connection, bisection_id)

    def _withdraw_cancel(self, connection: Connection, bisection_id: str) -> None:
        """Note that an earlier cancel does not hold any more: the bisection is asked for anew."""
        kinds = connection.scalars(select(events.c.kind).where(events.c.bisection_id == bisection_id).order_by(events.c.seq))
        if is_cancel_in_force(kinds.all()):
            rows.lock_row(connection, bisection_id)
            rows.append_event(connection, bisection_id, CANCEL_WITHDRAWN, {}, time_s=self._clock())

    def note_answered(self, bisection_id: str, user: str) -> QueueEntry:
        """See `queue_contract.Queue`."""
        with self._database.write() as connection:
            lock_user(connection, user)
            self._refuse_part(connection, bisection_id)
            if _lock_entry(connection, bisection_id) is not None:
                raise InputError(f"bisection {bisection_id} was submitted already")
            _refuse_full(connection, user)
            usage = usages_of(connection, since_s=self._since(connection, None), user=user)[user]
            if allowance_of(user_of(connection, user).limits, usage).is_spent:
                raise LimitError(f"{user} has nothing left today", hint="ask again tomorrow")
            now_s = self._database.now(connection)
            values = {"user_name": user, "state": QueueState.DONE.value, "priority": 0, "num_starts": 0, "reason": ""}
            values |= {"submitted_s": now_s, "started_s": None, "ended_s": now_s, "dispatcher_id": None}
            connection.execute(insert(queue).values(bisection_id=bisection_id, **values))
            rows.lock_row(connection, bisection_id)
            rows.append_event(connection, bisection_id, ANSWERED_AT_ONCE, {}, time_s=self._clock(), num_probes=1)
            rows.note_update(connection, bisection_id)
            return _entry_of(connection, bisection_id)

    def _refuse_part(self, connection: Connection, bisection_id: str) -> None:
        rows.check_known(connection, bisection_id)
        whole = connection.scalar(select(bisections.c.whole_id).where(bisections.c.id == bisection_id))
        if whole is not None:
            raise InputError(
                f"bisection {bisection_id} is a part of {whole}", hint="submit the whole: it goes on with its parts"
            )

    def entry(self, bisection_id: str) -> QueueEntry | None:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            row = connection.execute(_entries().where(queue.c.bisection_id == bisection_id)).first()
        return _entry_of_row(row) if row else None

    def entries(
        self,
        *,
        states: Sequence[QueueState] = (),
        user: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> tuple[QueueEntry, ...]:
        """See `queue_contract.Queue`."""
        query = _entries().order_by(queue.c.submitted_s.desc(), queue.c.bisection_id.desc()).limit(limit)
        if states:
            query = query.where(queue.c.state.in_([state.value for state in states]))
        if user is not None:
            query = query.where(queue.c.user_name == user)
        with self._database.read() as connection:
            if before is not None:
                last = connection.execute(select(queue).where(queue.c.bisection_id == before)).first()
                if last is None:
                    raise _not_submitted(before)
                is_same_time = and_(queue.c.submitted_s == last.submitted_s, queue.c.bisection_id < before)
                query = query.where(or_(queue.c.submitted_s < last.submitted_s, is_same_time))
            return tuple(_entry_of_row(row) for row in connection.execute(query))

    def cancel(self, bisection_id: str, *, reason: str = "") -> QueueEntry:
        """See `queue_contract.Queue`."""
        with self._database.write() as connection:
            known = _lock_entry(connection, bisection_id)
            if known is None:
                raise _not_submitted(bisection_id)
            state = QueueState(known.state)
            if state.is_over:
                raise InputError(f"bisection {bisection_id} is {state.value} already", hint="there is nothing to cancel")
            rows.lock_row(connection, bisection_id)
            if state is QueueState.QUEUED:
                ended_s = self._database.now(connection)
                _set(connection, bisection_id, state=QueueState.CANCELLED.value, ended_s=ended_s, reason=reason)
                kind = "cancelled"
            else:
                kind = CANCEL_REQUESTED
            data = {"reason": reason} if reason else {}
            rows.append_event(connection, bisection_id, kind, data, time_s=self._clock())
            rows.note_update(connection, bisection_id)
            return _entry_of(connection, bisection_id)

    # ---- dispatchers ----------------------------------------------------------------------------------------------

    @contextmanager
    def join(self, *, lease_s: float = DISPATCHER_LEASE_S) -> Iterator[str]:
        """See `queue_contract.Queue`."""
        name, is_over = secrets.token_hex(16), threading.Event()
        self._lease_s[name] = lease_s
        with self._database.write() as connection:
            row = {"id": name, "host": host_name(), "pid": os.getpid(), "until_s": self._database.now(connection) + lease_s}
            connection.execute(insert(dispatchers).values(row))
        thread = threading.Thread(target=self._beat, args=(name, lease_s, is_over), name=f"dispatcher-{name[:8]}", daemon=True)
        thread.start()
        try:
            yield name
        finally:
            is_over.set()
            thread.join(_JOIN_S)
            self._lease_s.pop(name, None)
            with suppress(MachineError):  # without a server it counts as dead after its time
                self._leave(name)

    def _beat(self, dispatcher: str, lease_s: float, is_over: threading.Event) -> None:
        """Say that a dispatcher lives until it leaves, or counts as dead."""
        while not is_over.wait(lease_s / 3):
            with suppress(MachineError):
                if not self._renew(dispatcher, lease_s):
                    return

    def _renew(self, dispatcher: str, lease_s: float) -> bool:
        """Note that a dispatcher lives; return False if it counts as dead: others have put its entries back."""
        with self._database.write() as connection:
            until_s = self._database.now(connection) + lease_s
            change = update(dispatchers).where(dispatchers.c.id == dispatcher).values(until_s=until_s)
            return connection.execute(change).rowcount == 1

    def _leave(self, dispatcher: str) -> None:
        with self._database.write() as connection:
            connection.execute(select(dispatchers.c.id).where(dispatchers.c.id == dispatcher).with_for_update()).first()
            self._put_back(connection, [dispatcher], is_dead=False)

    def recover(self) -> tuple[str, ...]:
        """See `queue_contract.Queue`."""
        with self._database.write() as connection:
            is_dead = dispatchers.c.until_s <= self._database.now(connection)
            dead = select(dispatchers.c.id).where(is_dead).with_for_update(skip_locked=True)
            return self._put_back(connection, list(connection.scalars(dead)), is_dead=True)

    def _put_back(self, connection: Connection, names: Sequence[str], *, is_dead: bool) -> tuple[str, ...]:
        """Put the entries of dispatchers back, fail those that killed too many of them, and remove the dispatchers."""
        if not names:
            return ()
        theirs = select(queue).where(queue.c.dispatcher_id.in_(names)).order_by(queue.c.bisection_id).with_for_update()
        found = connection.execute(theirs).all()
        for row in found:
            if is_dead and row.num_starts >= MAX_STARTS:
                reason = f"its dispatcher died {row.num_starts} times"
                self._end(connection, row.bisection_id, QueueState.FAILED, reason)
            else:
                num_starts = row.num_starts if is_dead else row.num_starts - 1
                _set(connection, row.bisection_id, **_BACK, num_starts=num_starts)
        connection.execute(delete(dispatchers).where(dispatchers.c.id.in_(names)))
        ids = tuple(row.bisection_id for row in found)
        rows.note_update(connection, *ids)
        return ids

    def claim(self, dispatcher: str) -> QueueEntry | None:
        """See `queue_contract.Queue`."""
        if not self._is_work_likely(dispatcher):
            return None
        if not self._renew(dispatcher, self._lease_s.get(dispatcher, DISPATCHER_LEASE_S)):  # before it finds itself dead
            raise _counts_as_dead(dispatcher)
        self.recover()
        with self._database.write() as connection:
            alive = select(dispatchers.c.id).where(dispatchers.c.id == dispatcher).with_for_update()
            if connection.scalar(alive) is None:
                raise _counts_as_dead(dispatcher)
            for user in self._users_in_turn(connection):
                name = self._next_of(connection, user)
                if name is not None:
                    started_s = self._database.now(connection)
                    values = {"state": QueueState.RUNNING.value, "dispatcher_id": dispatcher, "started_s": started_s}
                    _set(connection, name, **values, num_starts=queue.c.num_starts + 1, reason="")
                    rows.note_update(connection, name)
                    return _entry_of(connection, name)
        return None

    def _is_work_likely(self, dispatcher: str) -> bool:
        """Return whether anything waits or a dispatcher died; it is asked often, so nothing is written."""
        is_queued = select(queue.c.bisection_id).where(queue.c.state == QueueState.QUEUED.value).limit(1)
        with self._database.read() as connection:
            if connection.scalar(select(dispatchers.c.id).where(dispatchers.c.id == dispatcher)) is None:
                raise _counts_as_dead(dispatcher)
            is_dead = dispatchers.c.until_s <= self._database.now(connection)
            return any(connection.scalar(query) for query in (is_queued, select(dispatchers.c.id).where(is_dead).limit(1)))

    def _users_in_turn(self, connection: Connection) -> list[str]:
        """Return who waits, the one first that has and had the least."""
        waiting = select(queue.c.user_name, func.min(queue.c.submitted_s).label("since_s"))
        waiting = waiting.where(queue.c.state == QueueState.QUEUED.value).group_by(queue.c.user_name)
        since_s = {row.user_name: row.since_s for row in connection.execute(waiting)}
        used = usages_of(connection, since_s=self._database.now(connection) - DAY_S) if len(since_s) > 1 else {}

        def turn(name: str) -> tuple[float, ...]:
            usage = used.get(name, Usage(name, 0, 0, 0, 0.0))
            return (usage.num_running, usage.gpu_s, usage.num_probes, since_s[name])

        return sorted(since_s, key=turn)

    def _next_of(self, connection: Connection, user: str) -> str | None:
        """Return which of a user's entries is due, locked; None if none is, or another dispatcher looks for one just now."""
        if not lock_user(connection, user, skip=True):
            return None
        since_s = self._database.now(connection) - DAY_S
        usage = usages_of(connection, since_s=since_s, user=user)[user]
        if is_at_limit(user_of(connection, user).limits, usage):
            return None
        is_due = and_(queue.c.user_name == user, queue.c.state == QueueState.QUEUED.value)
        first = select(queue.c.bisection_id).where(is_due).order_by(*_IN_TURN).limit(_PASSED)
        found = connection.scalars(first.with_for_update(skip_locked=True)).all()
        return next((name for name in found if not self._holders.is_held_now(connection, name)), None)

    def finish(self, dispatcher: str, bisection_id: str, state: QueueState, *, reason: str = "") -> None:
        """See `queue_contract.Queue`."""
        if state is QueueState.RUNNING:
            raise ValueError("a claimed entry ends as done, failed, cancelled or queued, got running")
        with self._database.write() as connection:
            known = _lock_entry(connection, bisection_id)
            if known is None or known.dispatcher_id != dispatcher:
                raise MachineError(
                    f"bisection {bisection_id} is not run by this dispatcher any more",
                    hint="it was not heard of for too long, and the entry went back to the queue",
                )
            if state is QueueState.QUEUED:
                _set(connection, bisection_id, **_BACK, num_starts=known.num_starts - 1)
            else:
                self._end(connection, bisection_id, state, reason)
            rows.note_update(connection, bisection_id)

    def _end(self, connection: Connection, bisection_id: str, state: QueueState, reason: str) -> None:
        ended_s = self._database.now(connection)
        _set(connection, bisection_id, state=state.value, ended_s=ended_s, dispatcher_id=None, reason=reason)

    # ---- usage ----------------------------------------------------------------------------------------------------

    def usage(self, user: str, *, since_s: float | None = None) -> Usage:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            user_of(connection, user)
            return usages_of(connection, since_s=self._since(connection, since_s), user=user)[user]

    def usages(self, *, since_s: float | None = None) -> tuple[Usage, ...]:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            return tuple(usages_of(connection, since_s=self._since(connection, since_s)).values())

    def daily_usage(self, *, since_s: float, user: str | None = None) -> tuple[DayUsage, ...]:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            return daily_usages(connection, since_s=since_s, user=user)

    def allowance(self, user: str) -> Allowance:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            limits = user_of(connection, user).limits
            return allowance_of(limits, usages_of(connection, since_s=self._since(connection, None), user=user)[user])

    def _since(self, connection: Connection, since_s: float | None) -> float:
        return self._database.now(connection) - DAY_S if since_s is None else since_s


_BACK = {"state": QueueState.QUEUED.value, "dispatcher_id": None, "started_s": None}


def _entries() -> Any:
    joined = queue.outerjoin(dispatchers, dispatchers.c.id == queue.c.dispatcher_id)
    return select(queue, dispatchers.c.host, dispatchers.c.pid).select_from(joined)


def _entry_of(connection: Connection, bisection_id: str) -> QueueEntry:
    return _entry_of_row(connection.execute(_entries().where(queue.c.bisection_id == bisection_id)).one())


def _entry_of_row(row: Any) -> QueueEntry:
    return QueueEntry(
        bisection_id=row.bisection_id,
        user=row.user_name,
        state=QueueState(row.state),
        priority=row.priority,
        submitted_s=row.submitted_s,
        started_s=row.started_s,
        ended_s=row.ended_s,
        num_starts=row.num_starts,
        dispatcher=f"{row.host}:{row.pid}" if row.host else "",
        reason=row.reason,
    )


def _lock_entry(connection: Connection, bisection_id: str) -> Any:
    return connection.execute(select(queue).where(queue.c.bisection_id == bisection_id).with_for_update()).first()


def _set(connection: Connection, bisection_id: str, **values: Any) -> None:
    connection.execute(update(queue).where(queue.c.bisection_id == bisection_id).values(values))


def _refuse_full(connection: Connection, user: str) -> None:
    """Raise LimitError where a user has as many in the queue as it may."""
    limit = user_of(connection, user).limits.max_queued
    if limit is not None and _num_queued(connection, user) >= limit:
        raise LimitError(f"{user} has {limit} in the queue, which is the limit", hint="wait, or cancel one of them")


def _num_queued(connection: Connection, user: str) -> int:
    mine = and_(queue.c.user_name == user, queue.c.state == QueueState.QUEUED.value)
    return int(connection.scalar(select(func.count()).select_from(queue).where(mine)) or 0)


def _not_submitted(bisection_id: str) -> InputError:
    return InputError(f"bisection {bisection_id} was never submitted", hint="submit it first")


def _counts_as_dead(dispatcher: str) -> MachineError:
    return MachineError(
        f"dispatcher {dispatcher[:8]} counts as dead: it was not heard of for too long", hint="it has to join again"
    )
