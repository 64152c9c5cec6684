"""The store in a database through SQLAlchemy: SQLite for one machine, PostgreSQL for several."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, and_, func, insert, or_, select
from sqlalchemy.engine import URL

from bisect_train.core.probe import ProbeResult
from bisect_train.store import codec, rows
from bisect_train.store.address import parse_address
from bisect_train.store.contract import (
    BISECTION_HINT,
    CANCEL_REQUESTED,
    PAGE,
    PROBE_FINISHED,
    PROBE_HINT,
    PROBE_REUSED,
    StoredBisection,
    StoredEvent,
    StoredProbe,
    Update,
    gpus_in,
    is_cancel_requested,
    next_id,
    no_bisection,
    no_result,
    pick_prefix,
    whole_in,
)
from bisect_train.store.engine import Database
from bisect_train.store.leases import LEASE_S, LeaseBook
from bisect_train.store.locks import LockFolder
from bisect_train.store.nightly_sql import SqlNightlyLog
from bisect_train.store.queue import SqlQueue
from bisect_train.store.tables import bisections, events, probes, updates


class SqlStore:
    """See `contract.Store`. Works with several threads and processes; must not be carried over a fork.

    Args:
        url: for example `sqlite:////home/me/bisect-train.db` or `postgresql://me@host/bisections`.
        clock: seconds since the epoch, for the times of events.
        lease_s: how long a coordinator on a server keeps a bisection without a sign of life; a file has locks beside it.
    Raises:
        InputError: the address cannot be used, or its driver is not installed.
        MachineError: the database cannot be opened or was written by a newer version.
    """

    def __init__(self, url: str | URL, *, clock: Callable[[], float] = time.time, lease_s: float = LEASE_S) -> None:
        parsed = parse_address(url)
        self._clock = clock
        self._database = Database(parsed)
        self._locks: LockFolder | LeaseBook = (
            LockFolder(Path(str(parsed.database)).absolute().parent / "locks")
            if self._database.is_file
            else LeaseBook(self._database, lease_s=lease_s)
        )

    @property
    def place(self) -> str:
        """Where it is, for a person; without a password."""
        return str(self._database.place)

    def queue(self) -> SqlQueue:
        """Return the queue that lies in the same database; it lives as long as the store."""
        return SqlQueue(self._database, self._locks, clock=self._clock)

    def nightly(self) -> SqlNightlyLog:
        """Return the log of nightly watches that lies in the same database; it lives as long as the store."""
        return SqlNightlyLog(self._database, lock_folder=Path(self.place).parent / "nightly", clock=self._clock)

    # ---- bisections -----------------------------------------------------------------------------------------------

    def create(self, question: dict[str, Any], *, title: str) -> str:
        """See `contract.Store`."""
        question_text = codec.to_text(question)
        with self._database.write() as connection:
            number = rows.take_number(connection)  # first: whoever creates waits here for the others
            now = self._clock()
            taken = connection.scalars(select(bisections.c.id).where(bisections.c.id >= f"{int(now):08x}")).all()
            new = next_id(now, taken)
            part_of = select(func.coalesce(bisections.c.whole_id, bisections.c.id)).where(bisections.c.id == whole_in(question))
            row = {"id": new, "created_s": now, "title": codec.plain_text(title), "question": question_text}
            row |= {"whole_id": connection.scalar(part_of), "gpus": gpus_in(question)}
            connection.execute(insert(bisections).values(row))
            connection.execute(insert(updates).values(bisection_id=new, number=number))
        return new

    def load(self, id_or_prefix: str) -> StoredBisection:
        """See `contract.Store`."""
        like = bisections.c.id.startswith(id_or_prefix, autoescape=True)
        with self._database.read() as connection:
            if id_or_prefix == "last" and (row := connection.execute(rows.newest_first().limit(1)).first()):
                return rows.bisection_of(row)
            ids = connection.scalars(select(bisections.c.id).where(like).order_by(bisections.c.id)).all()
            found = pick_prefix(id_or_prefix, ids, what="bisection", hint=BISECTION_HINT)
            return rows.bisection_of(connection.execute(rows.newest_first().where(bisections.c.id == found)).one())

    def list(self) -> tuple[StoredBisection, ...]:
        """See `contract.Store`."""
        with self._database.read() as connection:
            return rows.bisections_of(connection.execute(rows.newest_first()))

    def page(self, *, limit: int = PAGE, before: str | None = None, parts: bool = True) -> tuple[StoredBisection, ...]:
        """See `contract.Store`."""
        query = rows.newest_first().limit(limit)
        query = query if parts else query.where(bisections.c.whole_id.is_(None))
        with self._database.read() as connection:
            if before is not None:
                created_s = connection.scalar(select(bisections.c.created_s).where(bisections.c.id == before))
                if created_s is None:
                    raise no_bisection(before)
                is_same_time = and_(bisections.c.created_s == created_s, bisections.c.id < before)
                query = query.where(or_(bisections.c.created_s < created_s, is_same_time))
            return rows.bisections_of(connection.execute(query))

    def updates(self, after: int, *, limit: int = PAGE) -> tuple[Update, ...]:
        """See `contract.Store`."""
        query = select(updates.c.number, updates.c.bisection_id).where(updates.c.number > after)
        with self._database.read() as connection:
            found = connection.execute(query.order_by(updates.c.number).limit(limit)).all()
        return tuple(Update(row.number, row.bisection_id) for row in found)

    def last_update(self) -> int:
        """See `contract.Store`."""
        with self._database.read() as connection:
            return rows.last_number(connection)

    # ---- events and results ---------------------------------------------------------------------------------------

    def append(self, bisection_id: str, kind: str, data: dict[str, Any]) -> int:
        """See `contract.Store`."""
        with self._database.write() as connection:
            gpus = self._own(connection, bisection_id)
            gpu_s = gpus * rows.wall_in(kind, data)
            seq = rows.append_event(connection, bisection_id, kind, data, time_s=self._clock(), gpu_s=gpu_s)
            rows.note_update(connection, bisection_id)
        return seq

    def _own(self, connection: Connection, bisection_id: str) -> float:
        """Lock a bisection's row, refuse a coordinator that has lost it; return the GPUs of its probes."""
        gpus = rows.lock_row(connection, bisection_id)
        self._locks.check(connection, bisection_id)
        return gpus

    def events(self, bisection_id: str, *, after: int = 0, limit: int | None = None) -> tuple[StoredEvent, ...]:
        """See `contract.Store`."""
        wanted = and_(events.c.bisection_id == bisection_id, events.c.seq > after)
        with self._database.read() as connection:
            found = connection.execute(select(events).where(wanted).order_by(events.c.seq).limit(limit)).all()
            if not found:
                rows.check_known(connection, bisection_id)
        return tuple(rows.event_of(row) for row in found)

    def save_result(self, bisection_id: str, key: str, result: ProbeResult, *, spec: dict[str, Any]) -> None:
        """See `contract.Store`."""
        packed, data = codec.pack_result(result), {"key": key, "spec": spec}
        with self._database.write() as connection:
            gpus = self._own(connection, bisection_id)
            if rows.is_counted(connection, bisection_id, key):
                return
            gpu_s = gpus * result.wall_s
            seq = rows.append_event(connection, bisection_id, PROBE_FINISHED, data, time_s=self._clock(), gpu_s=gpu_s)
            connection.execute(insert(probes).values(bisection_id=bisection_id, key=key, seq=seq, result=packed))
            rows.note_update(connection, bisection_id)

    def reuse_result(self, bisection_id: str, key: str, spec: dict[str, Any]) -> None:
        """See `contract.Store`."""
        data = {"key": key, "spec": spec}
        with self._database.write() as connection:
            self._own(connection, bisection_id)
            if rows.is_counted(connection, bisection_id, key):
                return
            source = connection.execute(rows.first_results(key)).first()
            if source is None:
                raise no_result(key)
            seq = rows.append_event(connection, bisection_id, PROBE_REUSED, data, time_s=self._clock())
            row = {"bisection_id": bisection_id, "key": key, "seq": seq, "source_id": source.bisection_id}
            connection.execute(insert(probes).values(row))
            rows.note_update(connection, bisection_id)

    def find_result(self, key: str) -> ProbeResult | None:
        """See `contract.Store`."""
        with self._database.read() as connection:
            row = connection.execute(rows.first_results(key)).first()
        return codec.unpack_result(row.result) if row else None

    def find_probe(self, prefix: str) -> StoredProbe:
        """See `contract.Store`."""
        like = probes.c.key.startswith(prefix, autoescape=True)
        with self._database.read() as connection:
            keys = connection.scalars(select(probes.c.key).where(like).distinct().order_by(probes.c.key)).all()
            key = pick_prefix(prefix, keys, what="probe", hint=PROBE_HINT)
            return rows.probe_of(connection.execute(rows.first_results(key)).first())

    def results(self, bisection_id: str) -> tuple[StoredProbe, ...]:
        """See `contract.Store`."""
        with self._database.read() as connection:
            rows.check_known(connection, bisection_id)
            return tuple(rows.probe_of(row) for row in connection.execute(rows.counted_results(bisection_id)).all())

    # ---- coordinators ---------------------------------------------------------------------------------------------

    def lock(self, bisection_id: str) -> AbstractContextManager[None]:
        """See `contract.Store`."""
        with self._database.read() as connection:
            rows.check_known(connection, bisection_id)
        return self._locks.hold(bisection_id)

    def is_running(self, bisection_id: str) -> bool:
        """See `contract.Store`."""
        with self._database.read() as connection:
            rows.check_known(connection, bisection_id)
        return self._locks.is_held(bisection_id)

    def request_cancel(self, bisection_id: str) -> None:
        """See `contract.Store`."""
        with self._database.write() as connection:
            rows.lock_row(connection, bisection_id)
            rows.append_event(connection, bisection_id, CANCEL_REQUESTED, {}, time_s=self._clock())
            rows.note_update(connection, bisection_id)

    def cancel_requested(self, bisection_id: str) -> bool:
        """See `contract.Store`."""
        self._locks.check_known(bisection_id)
        deciding = and_(events.c.bisection_id == bisection_id, events.c.kind.in_((CANCEL_REQUESTED, "started")))
        query = select(events.c.kind).where(deciding).order_by(events.c.seq.desc()).limit(1)
        with self._database.read() as connection:
            rows.check_known(connection, bisection_id)
            return is_cancel_requested(connection.scalars(query).all())

    def close(self) -> None:
        """See `contract.Store`."""
        self._database.close()
