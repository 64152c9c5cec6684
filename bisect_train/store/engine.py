"""Opens the database: connection settings, schema version and migrations, and errors that say what to do.

SQLite runs in WAL mode with synchronous=FULL. NORMAL would keep every commit over a kill -9 too, but may lose the
last ones when the power fails; FULL costs one fsync (milliseconds) per event, and an event stands for a probe of
seconds to hours. Writers begin with BEGIN IMMEDIATE, so that they wait for each other instead of failing when a read
turns into a write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from bisect_train.core.errors import MachineError
from bisect_train.store.tables import SCHEMA_VERSION

_BUSY_TIMEOUT_MS = 30_000
_ADVICE = (
    ("readonly", "it cannot be written", "look at `ls -l`, or give another folder: BISECT_TRAIN_HOME=DIR"),
    ("unable to open", "it cannot be opened", "look at `ls -ld` of its folder, or give another: BISECT_TRAIN_HOME=DIR"),
    ("full", "the disk is full", "free some space, then go on with `bisect-train resume`"),
    ("disk i/o", "the disk reports an error", "look at free space and quota, then go on with `bisect-train resume`"),
    ("locked", "another process has kept it locked for 30 s", "end that process, then run again"),
    ("not a database", "this file is not a database", "move it away, then run again: a new one is made"),
    ("malformed", "the database is damaged", "move it away, then run again: a new one is made"),
    ("no such table", "the database lacks a table", "move it away, then run again: a new one is made"),
)


class Database:
    """An engine, opened and brought to this version's schema.

    Args:
        url: of the database.
        create_lock: file lock that is held while the tables are made or migrated.
    Raises:
        MachineError: it cannot be opened, or a newer version of the program has written it.
    """

    def __init__(self, url: URL, *, create_lock: Path) -> None:
        self.place = url.database if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)
        with self.guard():
            self._engine = create_engine(url)
            if url.get_backend_name() == "sqlite":
                _set_up_sqlite(self._engine)
            self._writer = self._engine.execution_options(is_writer=True)
            try:
                self._bring_up_to_date(create_lock)
            except BaseException:
                self._engine.dispose()
                raise

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what a database can report into a MachineError that says where and what to do."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:  # the latter from the settings of a new connection
            raise self._machine_error(error) from error

    def _machine_error(self, error: Exception) -> MachineError:
        cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        for mark, problem, advice in _ADVICE:
            if mark in cause.lower():
                return MachineError(f"{self.place}: {problem} ({cause})", hint=advice)
        return MachineError(f"{self.place}: the database reports: {cause}", hint="look at the disk and the server")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection whose queries all see the same state."""
        with self.guard(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection in one transaction that is committed at the end, or not at all."""
        with self.guard(), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def vacuum(self) -> None:
        """Give the space of removed rows back to the disk; it cannot be done inside a transaction."""
        with self.guard():
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
        try:
            with FileLock(create_lock, timeout=_BUSY_TIMEOUT_MS / 1000):
                if self._engine.dialect.name == "sqlite":
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


def _migrate(connection: Connection) -> None:
    """Run the migrations that are missing, in the connection's transaction: all of them or none."""
    from alembic import command  # a quarter of a second to import, needed once per database
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "bisect_train.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
