"""The log of nightly watches in a database: SQLite for one machine, PostgreSQL for several."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from bisect_train.core.errors import MachineError
from bisect_train.store import codec
from bisect_train.store.contract import StoredEvent
from bisect_train.store.engine import Database
from bisect_train.store.nightly_contract import StoredWatch, check_name, no_watch, watch_held
from bisect_train.store.tables import nightly_events, nightly_watches

LOCK_CLASS = 0x6E696768
"""First half of the numbers of our advisory locks on a server: any number that only this program takes."""


class SqlNightlyLog:
    """See `nightly_contract.NightlyLog`.

    Args:
        database: where it is; a store's.
        lock_folder: for the locks where the database is a file. On a server the locks are those of a connection, which end
            with it: where the server is restarted in the middle of a night, another one can begin.
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, *, lock_folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._folder = lock_folder
        self._clock = clock

    def open(self, name: str, about: dict[str, Any]) -> StoredWatch:
        """See `nightly_contract.NightlyLog`."""
        check_name(name)
        row = {"name": name, "created_s": self._clock(), "about": codec.to_text(about)}
        try:
            with self._database.write() as connection:
                if _find(connection, name) is None:
                    connection.execute(insert(nightly_watches).values(row))
        except MachineError as error:
            if not isinstance(error.__cause__, IntegrityError):  # another process was faster
                raise
        return self.watch(name)

    def watches(self) -> tuple[StoredWatch, ...]:
        """See `nightly_contract.NightlyLog`."""
        with self._database.read() as connection:
            rows = connection.execute(select(nightly_watches).order_by(nightly_watches.c.name)).all()
        return tuple(_watch_of(row) for row in rows)

    def watch(self, name: str) -> StoredWatch:
        """See `nightly_contract.NightlyLog`."""
        with self._database.read() as connection:
            return _watch_of(_known(connection, name))

    def events(self, name: str, *, after: int = 0) -> tuple[StoredEvent, ...]:
        """See `nightly_contract.NightlyLog`."""
        wanted = (nightly_events.c.watch == name) & (nightly_events.c.seq > after)
        with self._database.read() as connection:
            _known(connection, name)
            rows = connection.execute(select(nightly_events).where(wanted).order_by(nightly_events.c.seq)).all()
        return tuple(StoredEvent(row.seq, row.kind, row.time_s, codec.of_text(row.data)) for row in rows)

    def append(self, name: str, events: Sequence[tuple[str, dict[str, Any]]]) -> int:
        """See `nightly_contract.NightlyLog`."""
        texts = [(kind, codec.to_text(data)) for kind, data in events]
        with self._database.write() as connection:
            row = select(nightly_watches.c.name).where(nightly_watches.c.name == name).with_for_update()
            if connection.scalar(row) is None:
                _known(connection, name)
            last = connection.scalar(select(func.max(nightly_events.c.seq)).where(nightly_events.c.watch == name)) or 0
            now_s = self._clock()
            for seq, (kind, data) in enumerate(texts, start=last + 1):
                values = {"watch": name, "seq": seq, "kind": kind, "time_s": now_s, "data": data}
                connection.execute(insert(nightly_events).values(values))
        return last + len(texts)

    def lock(self, name: str) -> AbstractContextManager[None]:
        """See `nightly_contract.NightlyLog`."""
        self.watch(name)
        return self._lock_file(name) if self._database.is_file else self._lock_session(name)

    @contextmanager
    def _lock_file(self, name: str) -> Iterator[None]:
        path = self._folder / f"{name}.lock"
        pid_path = path.with_suffix(".pid")
        lock = FileLock(path, timeout=0)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise watch_held(name, _read_pid(pid_path)) from None
        except OSError as error:
            raise MachineError(
                f"{path}: cannot lock this watch: {error.strerror or error}",
                hint="free some space or give a folder that can be written: BISECT_TRAIN_HOME=DIR",
            ) from None
        try:
            pid_path.write_text(str(os.getpid()), encoding="ascii")
            yield
        finally:
            pid_path.unlink(missing_ok=True)
            lock.release()

    @contextmanager
    def _lock_session(self, name: str) -> Iterator[None]:
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big", signed=True)
        keys = {"kind": LOCK_CLASS, "number": number}
        with self._database.session() as connection:
            if not connection.scalar(text("SELECT pg_try_advisory_lock(:kind, :number)"), keys):
                raise watch_held(name)
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:kind, :number)"), keys)


def _find(connection: Connection, name: str) -> Any:
    return connection.execute(select(nightly_watches).where(nightly_watches.c.name == name)).first()


def _known(connection: Connection, name: str) -> Any:
    row = _find(connection, name)
    if row is None:
        known = connection.scalars(select(nightly_watches.c.name).order_by(nightly_watches.c.name)).all()
        raise no_watch(name, known)
    return row


def _watch_of(row: Any) -> StoredWatch:
    return StoredWatch(row.name, row.created_s, codec.of_text(row.about))


def _read_pid(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
