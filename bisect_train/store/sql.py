"""The store in a database through SQLAlchemy: SQLite for one person, any other URL that SQLAlchemy knows for a team."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, func, insert, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from bisect_train.core.errors import InputError
from bisect_train.core.probe import ProbeResult
from bisect_train.store import codec
from bisect_train.store.contract import (
    BISECTION_HINT,
    CANCEL_REQUESTED,
    LIFECYCLE,
    PROBE_FINISHED,
    PROBE_HINT,
    PROBE_REUSED,
    StoredBisection,
    StoredEvent,
    StoredProbe,
    is_cancel_requested,
    next_id,
    no_bisection,
    no_result,
    pick_prefix,
    status_of,
)
from bisect_train.store.engine import Database
from bisect_train.store.locks import LockFolder
from bisect_train.store.tables import bisections, events, probes


class SqlStore:
    """See `contract.Store`. Works with several threads and processes; must not be carried over a fork.

    Args:
        url: for example `sqlite:////home/me/bisect-train.db`.
        lock_folder: where locks of bisections lie; beside an SQLite database unless given.
        clock: seconds since the epoch.
    Raises:
        InputError: the URL cannot be used, or has no place for locks.
        MachineError: the database cannot be opened or was written by a newer version.
    """

    def __init__(self, url: str | URL, *, lock_folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise InputError(f"{url!r} is not the address of a database", hint="sqlite:////absolute/path.db") from None
        is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
        if lock_folder is None and not is_file:
            raise InputError(f"{url!r} needs a folder for locks", hint="give lock_folder, or take MemoryStore")
        folder = lock_folder or Path(str(parsed.database)).absolute().parent / "locks"
        beside = folder if lock_folder else folder.parent
        self._clock = clock
        self._locks = LockFolder(folder)
        self._database = Database(parsed, create_lock=beside / "bisect-train.open.lock")

    def create(self, question: dict[str, Any], *, title: str) -> str:
        """See `contract.Store`."""
        question_text = codec.to_text(question)
        with self._database.write() as connection:
            now = self._clock()
            taken = connection.scalars(select(bisections.c.id).where(bisections.c.id >= f"{int(now):08x}")).all()
            new = next_id(now, taken)
            row = {"id": new, "created_s": now, "title": codec.plain_text(title), "question": question_text}
            connection.execute(insert(bisections).values(row))
        return new

    def load(self, id_or_prefix: str) -> StoredBisection:
        """See `contract.Store`."""
        with self._database.read() as connection:
            ids = connection.scalars(select(bisections.c.id).order_by(bisections.c.id)).all()
            newest = select(bisections.c.id).order_by(bisections.c.created_s.desc(), bisections.c.id.desc()).limit(1)
            wanted = connection.scalar(newest) if id_or_prefix == "last" and ids else id_or_prefix
            found = pick_prefix(str(wanted), ids, what="bisection", hint=BISECTION_HINT)
            row = connection.execute(select(bisections).where(bisections.c.id == found)).one()
            return _bisection_of(connection, row)

    def list(self) -> tuple[StoredBisection, ...]:
        """See `contract.Store`."""
        newest_first = select(bisections).order_by(bisections.c.created_s.desc(), bisections.c.id.desc())
        with self._database.read() as connection:
            return tuple(_bisection_of(connection, row) for row in connection.execute(newest_first).all())

    def append(self, bisection_id: str, kind: str, data: dict[str, Any]) -> int:
        """See `contract.Store`."""
        data_text = codec.to_text(data)
        with self._database.write() as connection:
            _lock_row(connection, bisection_id)
            return self._append(connection, bisection_id, kind, data_text)

    def _append(self, connection: Connection, bisection_id: str, kind: str, data_text: str) -> int:
        last = connection.scalar(select(func.max(events.c.seq)).where(events.c.bisection_id == bisection_id))
        seq = (last or 0) + 1
        row = {"bisection_id": bisection_id, "seq": seq, "kind": kind, "time_s": self._clock(), "data": data_text}
        connection.execute(insert(events).values(row))
        return seq

    def events(self, bisection_id: str, *, after: int = 0) -> tuple[StoredEvent, ...]:
        """See `contract.Store`."""
        wanted = and_(events.c.bisection_id == bisection_id, events.c.seq > after)
        with self._database.read() as connection:
            rows = connection.execute(select(events).where(wanted).order_by(events.c.seq)).all()
            if not rows:
                _check_known(connection, bisection_id)
        return tuple(_event_of(row) for row in rows)

    def save_result(self, bisection_id: str, key: str, result: ProbeResult, *, spec: dict[str, Any]) -> None:
        """See `contract.Store`."""
        packed, data_text = codec.pack_result(result), codec.to_text({"key": key, "spec": spec})
        with self._database.write() as connection:
            _lock_row(connection, bisection_id)
            if _is_counted(connection, bisection_id, key):
                return
            seq = self._append(connection, bisection_id, PROBE_FINISHED, data_text)
            row = {"bisection_id": bisection_id, "key": key, "seq": seq, "result": packed}
            connection.execute(insert(probes).values(row))

    def reuse_result(self, bisection_id: str, key: str, spec: dict[str, Any]) -> None:
        """See `contract.Store`."""
        data_text = codec.to_text({"key": key, "spec": spec})
        with self._database.write() as connection:
            _lock_row(connection, bisection_id)
            if _is_counted(connection, bisection_id, key):
                return
            source = connection.execute(_first_results(key)).first()
            if source is None:
                raise no_result(key)
            seq = self._append(connection, bisection_id, PROBE_REUSED, data_text)
            row = {"bisection_id": bisection_id, "key": key, "seq": seq, "source_id": source.bisection_id}
            connection.execute(insert(probes).values(row))

    def find_result(self, key: str) -> ProbeResult | None:
        """See `contract.Store`."""
        with self._database.read() as connection:
            row = connection.execute(_first_results(key)).first()
        return codec.unpack_result(row.result) if row else None

    def find_probe(self, prefix: str) -> StoredProbe:
        """See `contract.Store`."""
        like = probes.c.key.startswith(prefix, autoescape=True)
        with self._database.read() as connection:
            keys = connection.scalars(select(probes.c.key).where(like).distinct().order_by(probes.c.key)).all()
            key = pick_prefix(prefix, keys, what="probe", hint=PROBE_HINT)
            return _probe_of(connection.execute(_first_results(key)).first())

    def results(self, bisection_id: str) -> tuple[StoredProbe, ...]:
        """See `contract.Store`."""
        source = probes.alias()
        joined = probes.join(events, and_(events.c.bisection_id == probes.c.bisection_id, events.c.seq == probes.c.seq))
        joined = joined.outerjoin(source, and_(source.c.bisection_id == probes.c.source_id, source.c.key == probes.c.key))
        query = (
            select(
                probes.c.key,
                probes.c.bisection_id,
                events.c.time_s,
                events.c.data,
                func.coalesce(probes.c.result, source.c.result).label("result"),
            )
            .select_from(joined)
            .where(probes.c.bisection_id == bisection_id)
            .order_by(probes.c.seq)
        )
        with self._database.read() as connection:
            _check_known(connection, bisection_id)
            return tuple(_probe_of(row) for row in connection.execute(query).all())

    def lock(self, bisection_id: str) -> AbstractContextManager[None]:
        """See `contract.Store`."""
        with self._database.read() as connection:
            _check_known(connection, bisection_id)
        return self._locks.hold(bisection_id)

    def is_running(self, bisection_id: str) -> bool:
        """See `contract.Store`."""
        with self._database.read() as connection:
            _check_known(connection, bisection_id)
        return self._locks.is_held(bisection_id)

    def request_cancel(self, bisection_id: str) -> None:
        """See `contract.Store`."""
        self.append(bisection_id, CANCEL_REQUESTED, {})

    def cancel_requested(self, bisection_id: str) -> bool:
        """See `contract.Store`."""
        query = select(events.c.kind).where(events.c.bisection_id == bisection_id).order_by(events.c.seq)
        with self._database.read() as connection:
            _check_known(connection, bisection_id)
            return is_cancel_requested(connection.scalars(query).all())

    def close(self) -> None:
        """See `contract.Store`."""
        self._database.close()


def _check_known(connection: Connection, bisection_id: str) -> None:
    if connection.scalar(select(bisections.c.id).where(bisections.c.id == bisection_id)) is None:
        raise no_bisection(bisection_id)


def _lock_row(connection: Connection, bisection_id: str) -> None:
    """Lock a bisection's row, so that writers take turns (PostgreSQL; in SQLite they do anyway)."""
    row = select(bisections.c.id).where(bisections.c.id == bisection_id).with_for_update()
    if connection.scalar(row) is None:
        raise no_bisection(bisection_id)


def _is_counted(connection: Connection, bisection_id: str, key: str) -> bool:
    wanted = and_(probes.c.bisection_id == bisection_id, probes.c.key == key)
    return connection.scalar(select(probes.c.seq).where(wanted)) is not None


def _first_results(key: str) -> Select[Any]:
    """Return the query for a key's results, the first that was stored first."""
    joined = probes.join(events, and_(events.c.bisection_id == probes.c.bisection_id, events.c.seq == probes.c.seq))
    return (
        select(probes.c.key, probes.c.bisection_id, probes.c.result, events.c.time_s, events.c.data)
        .select_from(joined)
        .where(probes.c.key == key, probes.c.result.is_not(None))
        .order_by(events.c.time_s, probes.c.bisection_id)
    )


def _event_of(row: Row[Any]) -> StoredEvent:
    return StoredEvent(row.seq, row.kind, row.time_s, codec.of_text(row.data))


def _probe_of(row: Any) -> StoredProbe:
    spec = codec.of_text(row.data)["spec"]
    return StoredProbe(row.key, row.bisection_id, spec, codec.unpack_result(row.result), row.time_s)


def _bisection_of(connection: Connection, row: Row[Any]) -> StoredBisection:
    wanted = and_(events.c.bisection_id == row.id, events.c.kind.in_(list(LIFECYCLE)))
    last = connection.execute(select(events).where(wanted).order_by(events.c.seq.desc()).limit(1)).first()
    status, answer = status_of([_event_of(last)] if last else [])
    return StoredBisection(row.id, row.created_s, codec.of_text(row.question), row.title, status, answer)
