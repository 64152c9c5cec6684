"""One coordinator per bisection where several machines share a database: a lease in a row, renewed while its holder lives.

A lease ends by the database's clock, `lease_s` after it was last renewed; then anyone may take it. That alone would not do:
a holder that was stopped for a while (a suspended machine, a long pause) does not know that it has lost it. So each writing
transaction of a holder looks, under the lock of the bisection's row under which leases change hands, whether its token is
still in the row, and writes nothing if it is not.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, delete, insert, select, update

from bisect_train.core.errors import InputError, MachineError
from bisect_train.store.contract import lock_held, no_bisection
from bisect_train.store.engine import Database
from bisect_train.store.tables import bisections, leases

LEASE_S = 30.0
"""So long a bisection waits for another coordinator after its own has died without a word."""
_JOIN_S = 2.0


class LeaseBook:
    """The leases of one database, and those that this process holds.

    Args:
        database: where they are.
        lease_s: how long one holds without being renewed; it is renewed every third of that.
    """

    def __init__(self, database: Database, *, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._lease_s = lease_s
        self._held: dict[str, _Held] = {}  # by bisection

    @contextmanager
    def hold(self, bisection_id: str) -> Iterator[None]:
        """Hold a bisection's lease, renewed by a thread. Raises InputError if somebody has it."""
        held = _Held(bisection_id, secrets.token_hex(16))
        self._take(held)
        self._held[bisection_id] = held
        thread = threading.Thread(target=self._keep, args=(held,), name=f"lease-{bisection_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            held.is_over.set()
            thread.join(_JOIN_S)  # while it waits for a server it can do no harm: the row that it would renew is gone
            del self._held[bisection_id]
            with suppress(MachineError):  # without a server it ends by itself
                self._give_back(held)

    def is_held(self, bisection_id: str) -> bool:
        """Return whether anyone holds a bisection's lease."""
        with self._database.read() as connection:
            return self.is_held_now(connection, bisection_id)

    def is_held_now(self, connection: Connection, bisection_id: str) -> bool:
        """Return the same in a transaction that is open already."""
        until_s = connection.scalar(select(leases.c.until_s).where(leases.c.bisection_id == bisection_id))
        return until_s is not None and until_s > self._database.now(connection)

    def check(self, connection: Connection, bisection_id: str) -> None:
        """Refuse to write where this process held the lease and has lost it; the bisection's row is locked by now.

        Raises:
            MachineError: another coordinator has it, or had it meanwhile.
        """
        held = self._held.get(bisection_id)
        if held is not None and not held.is_lost:
            token = connection.scalar(select(leases.c.token).where(leases.c.bisection_id == bisection_id))
            held.is_lost = token != held.token
        self.check_known(bisection_id)

    def check_known(self, bisection_id: str) -> None:
        """Raise MachineError where the lease is known to be lost, without asking the database."""
        held = self._held.get(bisection_id)
        if held is not None and held.is_lost:
            raise _lost(bisection_id)

    def _take(self, held: _Held) -> None:
        with self._database.write() as connection:
            known = select(bisections.c.id).where(bisections.c.id == held.bisection_id).with_for_update(key_share=True)
            if connection.scalar(known) is None:
                raise no_bisection(held.bisection_id)
            now_s = self._database.now(connection)
            row = select(leases).where(leases.c.bisection_id == held.bisection_id).with_for_update()  # not while it is renewed
            found = connection.execute(row).first()
            if found is not None and found.until_s > now_s:
                raise _taken(held.bisection_id, f"{found.pid} on {found.host}", found.until_s - now_s)
            connection.execute(delete(leases).where(leases.c.bisection_id == held.bisection_id))
            row_of = {"bisection_id": held.bisection_id, "token": held.token, "until_s": now_s + self._lease_s}
            connection.execute(insert(leases).values({**row_of, "host": host_name(), "pid": os.getpid()}))

    def _keep(self, held: _Held) -> None:
        """Renew a lease until it is over or lost; a server that does not answer is asked again."""
        while not held.is_over.wait(self._lease_s / 3) and not held.is_lost:
            with suppress(MachineError):
                held.is_lost = not self._renew(held)

    def _renew(self, held: _Held) -> bool:
        with self._database.write() as connection:
            row = (leases.c.bisection_id == held.bisection_id) & (leases.c.token == held.token)
            until_s = self._database.now(connection) + self._lease_s
            return connection.execute(update(leases).where(row).values(until_s=until_s)).rowcount == 1

    def _give_back(self, held: _Held) -> None:
        with self._database.write() as connection:
            row = (leases.c.bisection_id == held.bisection_id) & (leases.c.token == held.token)
            connection.execute(delete(leases).where(row))


class _Held:
    """A lease of this process; `is_lost` is set once by whoever sees it first."""

    def __init__(self, bisection_id: str, token: str) -> None:
        self.bisection_id = bisection_id
        self.token = token
        self.is_lost = False
        self.is_over = threading.Event()


def host_name() -> str:
    """Return this machine's name, for messages."""
    return socket.gethostname()[:255]


def _taken(bisection_id: str, who: str, left_s: float) -> InputError:
    error = lock_held(bisection_id, who)
    return InputError(error.message, hint=f"{error.hint}; if that process is dead, try again in {left_s:.0f} s")


def _lost(bisection_id: str) -> MachineError:
    return MachineError(
        f"this process was not heard of for so long that another one may run bisection {bisection_id} now: it writes no more",
        hint=f"`bisect-train status {bisection_id}` shows who runs it; `bisect-train resume {bisection_id}` if nobody does",
    )
