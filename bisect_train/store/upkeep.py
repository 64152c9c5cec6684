"""What a database holds, whether it is whole, and how bisections leave it. Used by housekeeping only, never by a search.

A result that other bisections have taken over goes to the first of them when its own bisection is removed, so what a
bisection saw never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import and_, delete, func, select, text, update
from sqlalchemy.engine import URL, Connection

from bisect_train.core.errors import MachineError
from bisect_train.core.probe import ProbeResult
from bisect_train.store import codec
from bisect_train.store.contract import PROBE_REUSED
from bisect_train.store.engine import Database
from bisect_train.store.home import DATABASE_NAME
from bisect_train.store.locks import LockFolder
from bisect_train.store.tables import bisections, events, probes

_MAX_PROBLEMS = 20


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
    """The database of a folder for state, as a whole.

    Args:
        home: a folder that has a database.
    Raises:
        MachineError: it cannot be opened.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / DATABASE_NAME
        self._locks = LockFolder(home / "locks")
        self._database = Database(URL.create("sqlite", database=str(self.path)), create_lock=home / "bisect-train.open.lock")

    def results(self) -> Iterator[StoredResult]:
        """Yield all results that lie in the database, the oldest first; those that were taken over count once."""
        joined = probes.join(events, and_(events.c.bisection_id == probes.c.bisection_id, events.c.seq == probes.c.seq))
        query = select(probes.c.key, probes.c.bisection_id, probes.c.result, events.c.kind, events.c.data, events.c.time_s)
        query = query.select_from(joined).where(probes.c.result.is_not(None)).order_by(events.c.time_s, probes.c.key)
        with self._database.read() as connection:
            for row in connection.execute(query):
                yield _result_of(row)

    def problems(self) -> list[str]:
        """Return what the database itself finds wrong with its file, and with the links between its rows; [] for nothing."""
        with self._database.read() as connection:
            found = [str(row[0]) for row in connection.execute(text(f"PRAGMA integrity_check({_MAX_PROBLEMS})"))]
            broken = connection.execute(text("PRAGMA foreign_key_check")).all()
        problems = [line for line in found if line != "ok"]
        return problems + [f"a row of {row[0]} refers to one of {row[2]} that is not there" for row in broken[:_MAX_PROBLEMS]]

    def remove(self, ids: Sequence[str]) -> None:
        """Remove bisections with their events and results, in one transaction.

        Raises:
            InputError: a coordinator runs one of them.
            MachineError: the database cannot be written.
        """
        with ExitStack() as stack:
            for name in ids:
                stack.enter_context(self._locks.hold(name))
            with self._database.write() as connection:
                for name in ids:
                    _hand_over(connection, name)
                    for table in (probes, events):
                        connection.execute(delete(table).where(table.c.bisection_id == name))
                    connection.execute(delete(bisections).where(bisections.c.id == name))

    def shrink(self) -> None:
        """Give the space of removed rows back to the disk. Raises MachineError where another process writes meanwhile."""
        self._database.vacuum()

    def num_bytes(self) -> int:
        """Return the bytes of the database with its journal."""
        return database_bytes(self.path.parent)

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
    except (ValueError, LookupError, TypeError) as error:
        spec, problem = {}, f"its event cannot be read: {error}"
    return StoredResult(row.key, row.bisection_id, spec, row.result, row.time_s, problem, row.kind == PROBE_REUSED)


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


def database_bytes(home: Path) -> int:
    """Return the bytes of a folder's database with its journal; 0 without one."""
    names = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
    return sum((home / name).stat().st_size for name in names if (home / name).exists())


def has_database(home: Path) -> bool:
    """Return whether a folder for state has a database."""
    return (home / DATABASE_NAME).is_file()


def open_archive(home: Path) -> Archive | None:
    """Return the database of a folder for state, None where there is none; nothing is made.

    Raises:
        MachineError: it cannot be opened.
    """
    if not has_database(home):
        return None
    if not (home / DATABASE_NAME).stat().st_size:
        raise MachineError(f"{home / DATABASE_NAME}: the database is empty", hint=f"remove it: rm {home / DATABASE_NAME}")
    return Archive(home)
