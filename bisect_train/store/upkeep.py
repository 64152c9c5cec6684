"""What a database holds, whether it is whole, and how bisections leave it. Used by housekeeping only, never by a search.

A result that other bisections have taken over goes to the first of them when its own bisection is removed, so what a
bisection saw never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import and_, delete, func, select, text, tuple_, update
from sqlalchemy.engine import Connection

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.probe import ProbeResult
from bisect_train.store import codec
from bisect_train.store.address import is_sqlite, show_address
from bisect_train.store.contract import PROBE_REUSED, StoredEvent
from bisect_train.store.engine import Database
from bisect_train.store.home import store_address
from bisect_train.store.leases import LeaseBook
from bisect_train.store.locks import LockFolder
from bisect_train.store.rows import event_of, lock_row
from bisect_train.store.tables import bisections, events, leases, probes, queue, spent, updates

_MAX_PROBLEMS = 20
_BATCH = 50  # results that are in memory at the same time


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result as it lies in the database, not decoded.

    Attributes:
        key: identity of the probe.
        bisection_id: that ran it.
        spec: what was run; {} where the event cannot be read.
        packed: compressed result.
        time_s: when it was stored, seconds since the epoch.
        problem: what is wrong with the row, "" for nothing.
        is_inherited: whether the bisection took it over from one that has left since.
    """

    key: str
    bisection_id: str
    spec: dict[str, Any]
    packed: bytes
    time_s: float
    problem: str = ""
    is_inherited: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the compressed result."""
        return len(self.packed)

    def unpack(self) -> ProbeResult:
        """Return the result. Raises MachineError where it cannot be decoded."""
        return codec.unpack_result(self.packed)


class Archive:
    """The database that goes with a folder for state, as a whole.

    Args:
        home: a folder that has a database, or any where the bisections are on a server.
    Attributes:
        place: of the database, for a person.
    Raises:
        MachineError: it cannot be opened.
    """

    def __init__(self, home: Path) -> None:
        url = store_address(home)
        self.place = show_address(url)
        self._database = Database(url)
        self._locks: LockFolder | LeaseBook = LeaseBook(self._database)
        if self._database.is_file:
            self._locks = LockFolder(Path(self.place).absolute().parent / "locks")

    def results(self) -> Iterator[StoredResult]:
        """Yield all results that lie in the database, the oldest first; those that were taken over count once."""
        joined = probes.join(events, and_(events.c.bisection_id == probes.c.bisection_id, events.c.seq == probes.c.seq))
        places = select(probes.c.bisection_id, probes.c.key).select_from(joined).where(probes.c.result.is_not(None))
        in_order = (events.c.time_s, probes.c.key, probes.c.bisection_id)
        columns = (probes.c.key, probes.c.bisection_id, probes.c.result, events.c.kind, events.c.data, events.c.time_s)
        query = select(*columns).select_from(joined).where(probes.c.result.is_not(None)).order_by(*in_order)
        with self._database.read() as connection:
            every = [(row.bisection_id, row.key) for row in connection.execute(places.order_by(*in_order))]
        for start in range(0, len(every), _BATCH):  # no transaction is open while the caller looks at them
            batch = tuple_(probes.c.bisection_id, probes.c.key).in_(every[start : start + _BATCH])
            with self._database.read() as connection:
                rows = connection.execute(query.where(batch)).all()
            yield from (_result_of(row) for row in rows)

    def events(self, bisection_id: str) -> tuple[StoredEvent, ...]:
        """Return the events of a bisection, in order; one that is torn says so in its `problem`."""
        query = select(events).where(events.c.bisection_id == bisection_id).order_by(events.c.seq)
        with self._database.read() as connection:
            return tuple(event_of(row) for row in connection.execute(query))

    def problems(self) -> list[str]:
        """Return what the database itself finds wrong with its file, and with the links between its rows; [] for nothing.

        A server looks after its files and links by itself.
        """
        if not self._database.is_file:
            return []
        with self._database.read() as connection:
            found = [str(row[0]) for row in connection.execute(text(f"PRAGMA integrity_check({_MAX_PROBLEMS})"))]
            broken = connection.execute(text("PRAGMA foreign_key_check")).all()
        problems = [line for line in found if line != "ok"]
        return problems + [f"a row of {row[0]} refers to one of {row[2]} that is not there" for row in broken[:_MAX_PROBLEMS]]

    def remove(self, ids: Sequence[str]) -> None:
        """Remove bisections with their events and results, in one transaction.

        Raises:
            InputError: a coordinator runs one of them, or it waits for one.
            MachineError: the database cannot be written.
        """
        with ExitStack() as stack:
            for name in ids:
                stack.enter_context(self._locks.hold(name))
            with self._database.write() as connection:
                for name in sorted(ids):
                    lock_row(connection, name)
                _refuse_waiting(connection, ids)
                for name in ids:
                    _hand_over(connection, name)
                    for table in (queue, leases, spent, updates, probes, events):
                        connection.execute(delete(table).where(table.c.bisection_id == name))
                    connection.execute(delete(bisections).where(bisections.c.id == name))

    def shrink(self) -> None:
        """Give the space of removed rows back to the disk. Raises MachineError where another process writes meanwhile."""
        self._database.vacuum()

    def num_bytes(self) -> int:
        """Return the bytes of the database with its journal."""
        if self._database.is_file:
            return _bytes_of(Path(self.place))
        with self._database.read() as connection:
            return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()


def stale_locks(home: Path, known: frozenset[str]) -> list[Path]:
    """Return the lock files of bisections that are not stored any more."""
    return sorted(path for path in (home / "locks").glob("*.*") if path.stem not in known and path.suffix in (".lock", ".pid"))


def _result_of(row: Any) -> StoredResult:
    try:
        data = codec.of_text(row.data)
        spec = dict(data["spec"])
        problem = "" if data["key"] == row.key else f"its event is that of probe {data['key']}"
    except (MachineError, ValueError, LookupError, TypeError) as error:
        spec, problem = {}, f"its event cannot be read: {error}"
    return StoredResult(row.key, row.bisection_id, spec, row.result, row.time_s, problem, row.kind == PROBE_REUSED)


def _refuse_waiting(connection: Connection, ids: Iterable[str]) -> None:
    """Refuse to remove what the queue of a service is about to run."""
    is_open = and_(queue.c.bisection_id.in_(list(ids)), queue.c.state.in_(("queued", "running")))
    found = connection.scalar(select(queue.c.bisection_id).where(is_open).limit(1))
    if found is not None:
        raise InputError(f"bisection {found} is in the queue", hint=f"take it out with `bisect-train cancel {found}`")


def _hand_over(connection: Connection, bisection_id: str) -> None:
    """Give the results that others have taken over to the first bisection that did."""
    takers = select(probes.c.key, func.min(probes.c.bisection_id).label("heir")).where(probes.c.source_id == bisection_id)
    for key, heir in connection.execute(takers.group_by(probes.c.key)).all():
        own = and_(probes.c.bisection_id == bisection_id, probes.c.key == key)
        packed = connection.scalar(select(probes.c.result).where(own))
        is_heir = and_(probes.c.bisection_id == heir, probes.c.key == key)
        connection.execute(update(probes).where(is_heir).values(result=packed, source_id=None))
        others = and_(probes.c.source_id == bisection_id, probes.c.key == key)
        connection.execute(update(probes).where(others).values(source_id=heir))


def _bytes_of(path: Path) -> int:
    files = [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))]
    return sum(file.stat().st_size for file in files if file.exists())


def _file_of(home: Path) -> Path | None:
    """Return the file that the bisections of a folder for state are in, None where they are on a server."""
    url = store_address(home)
    return Path(str(url.database)).absolute() if is_sqlite(url) else None


def database_bytes(home: Path) -> int:
    """Return the bytes that the database of a folder takes on this machine, with its journal; 0 without one."""
    path = _file_of(home)
    return _bytes_of(path) if path else 0


def place_of(home: Path) -> str:
    """Return where the bisections of a folder for state are, for a person."""
    return show_address(store_address(home))


def mend_of(home: Path) -> str:
    """Return what a person can do about a damaged database."""
    path = _file_of(home)
    if path is None:
        return "look at the log of the server, and at its backups"
    return f"move it away, then run again, a new one is made: mv {path} {path}.damaged"


def has_database(home: Path) -> bool:
    """Return whether there is a database for a folder for state."""
    path = _file_of(home)
    return path is None or path.is_file()


def open_archive(home: Path) -> Archive | None:
    """Return the database of a folder for state, None where there is none; nothing is made.

    Raises:
        MachineError: it cannot be opened.
    """
    if not has_database(home):
        return None
    path = _file_of(home)
    if path is not None and not path.stat().st_size:
        raise MachineError(f"{path}: the database is empty", hint=f"remove it: rm {path}")
    return Archive(home)
