"""Opens the database: connection settings, schema version and migrations, and errors that say what to do.

SQLite runs in WAL mode with synchronous=FULL. NORMAL would keep every commit over a kill -9 too, but may lose the
last ones when the power fails; FULL costs one fsync (milliseconds) per event, and an event stands for a probe of
seconds to hours. Writers begin with BEGIN IMMEDIATE, so that they wait for each other instead of failing when a read
turns into a write.

On PostgreSQL a read sees one state (REPEATABLE READ), and writers lock the rows that they go by (READ COMMITTED: each
statement sees what was committed while it waited). A process that is stopped in the middle of a transaction loses it
after `_STOPPED_MS`, since its locks would stop everybody else.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from bisect_train.core.errors import InputError, MachineError
from bisect_train.store.address import hide_password, is_sqlite, show_address
from bisect_train.store.advice import advise
from bisect_train.store.tables import SCHEMA_VERSION

_BUSY_TIMEOUT_MS = 30_000
_STOPPED_MS = 10_000
_CONNECT_S = 10
_RETRY_S = 0.25
_MIGRATION_LOCK = 0x62697365  # any number that only this program takes
_NOW = {
    "sqlite": text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": text("SELECT extract(epoch FROM clock_timestamp())::float8"),
}


class Database:
    """An engine, opened and brought to this version's schema.

    Args:
        url: of the database, as `address.parse_address` returns it.
        create_lock: file lock that is held while the tables of an SQLite file are made or migrated; beside it unless given.
        patience_s: for so long a server that was there before and is gone (a restart) is waited for.
    Raises:
        InputError: the driver for it is not installed.
        MachineError: it cannot be opened, or a newer version of the program has written it.
    """

    def __init__(self, url: URL, *, create_lock: Path | None = None, patience_s: float = 30.0) -> None:
        self.place = show_address(url)
        self.is_file = is_sqlite(url)
        self._url = url
        self._patience_s = 0.0
        with self.guard():
            if self.is_file:
                _make_private(Path(str(url.database)))
            self._engine = _make_engine(url)
            reader = {} if self.is_file else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            self._reader = self._engine.execution_options(**reader)
            self._writer = self._engine.execution_options(is_writer=True)
            try:
                self._bring_up_to_date(create_lock or Path(str(url.database)).absolute().with_name("bisect-train.open.lock"))
            except BaseException:
                self._engine.dispose()
                raise
        self._patience_s = patience_s

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what a database can report into a MachineError that says where and what to do."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:  # the latter from the settings of a new connection
            cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
            raise advise(self.place, hide_password(cause, self._url), is_file=self.is_file) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection whose queries all see the same state."""
        with self.guard(), self._connect(self._reader) as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection in one transaction that is committed at the end, or not at all."""
        with self.guard(), self._connect(self._writer) as connection, connection.begin():
            yield connection

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Give a connection outside of transactions, for locks that last as long as it; on a server only."""
        alone = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with self.guard(), self._connect(alone) as connection:
            yield connection

    def now(self, connection: Connection) -> float:
        """Return the time by the database's clock, seconds since the epoch."""
        return float(connection.scalar(_NOW[connection.dialect.name]) or 0.0)

    def _connect(self, engine: Engine) -> Connection:
        """Return a connection; wait for a server that is being restarted."""
        give_up_s = time.monotonic() + self._patience_s
        while True:
            try:
                return engine.connect()
            except OperationalError:
                if self.is_file or time.monotonic() >= give_up_s:
                    raise
                time.sleep(_RETRY_S)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def vacuum(self) -> None:
        """Give the space of removed rows back to the disk; it cannot be done inside a transaction."""
        with self.guard():
            if not self.is_file:
                with self._engine.connect() as connection:
                    connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))
                return
            raw = self._engine.raw_connection()
            try:
                raw.cursor().execute("VACUUM")
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                raw.close()

    def _bring_up_to_date(self, create_lock: Path) -> None:
        with self._engine.begin() as connection:
            if self._is_current(connection):
                return
        if not self.is_file:
            with self._writer.begin() as connection:
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK})
                if not self._is_current(connection):
                    _migrate(connection)
            return
        try:
            with FileLock(create_lock, timeout=_BUSY_TIMEOUT_MS / 1000):
                self._switch_to_wal()
                with self._writer.begin() as connection:
                    if not self._is_current(connection):
                        _migrate(connection)
        except Timeout:
            raise MachineError(
                f"{self.place}: another process is still making its tables", hint="end that process, then run again"
            ) from None
        except OSError as error:
            raise MachineError(
                f"{create_lock}: cannot write this file: {error.strerror or error}",
                hint="give another folder: BISECT_TRAIN_HOME=DIR",
            ) from None

    def _is_current(self, connection: Connection) -> bool:
        if not inspect(connection).has_table("alembic_version"):
            return False
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found is not None and found > SCHEMA_VERSION:
            raise MachineError(
                f"{self.place}: a newer version of bisect-train has written this database"
                f" (schema {found}, this version knows {SCHEMA_VERSION})",
                hint="update bisect-train, or give another folder: BISECT_TRAIN_HOME=DIR",
            )
        return bool(found == SCHEMA_VERSION)

    def _switch_to_wal(self) -> None:
        """Set WAL mode, which stays in the file; it cannot be done inside a transaction."""
        raw = self._engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode = WAL")
        finally:
            raw.close()


def _make_engine(url: URL) -> Engine:
    if is_sqlite(url):
        engine = create_engine(url)
        _set_up_sqlite(engine)
        return engine
    try:
        engine = create_engine(
            url,
            pool_pre_ping=True,  # a connection that was idle while the server was restarted is replaced
            hide_parameters=True,  # a traceback shows no hash of a token
            connect_args={} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_S},
        )
    except ModuleNotFoundError:
        raise InputError("PostgreSQL needs its driver", hint="pip install 'bisect-train[service]'") from None
    _set_up_postgresql(engine)
    return engine


def _make_private(path: Path) -> None:
    """Make the file for its owner alone: questions hold the variables of programs. SQLite's own files beside it follow."""
    with suppress(OSError):  # SQLite says it better
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _set_up_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we begin transactions ourselves, see `_on_begin`
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        is_writer = connection.get_execution_options().get("is_writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _set_up_postgresql(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {_BUSY_TIMEOUT_MS}")
            cursor.execute(f"SET idle_in_transaction_session_timeout = {_STOPPED_MS}")
        connection.commit()


def _migrate(connection: Connection) -> None:
    """Run the migrations that are missing, in the connection's transaction: all of them or none."""
    from alembic import command  # a quarter of a second to import, needed once per database
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "bisect_train.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
