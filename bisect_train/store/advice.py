"""What a database reports, in words that say what to do."""

from __future__ import annotations

from bisect_train.core.errors import MachineError
from bisect_train.store.address import STORE_VARIABLE

_SQLITE = (
    ("readonly", "it cannot be written", "look at `ls -l`, or give another folder: BISECT_TRAIN_HOME=DIR"),
    ("unable to open", "it cannot be opened", "look at `ls -ld` of its folder, or give another: BISECT_TRAIN_HOME=DIR"),
    ("full", "the disk is full", "free some space, then go on with `bisect-train resume`"),
    ("disk i/o", "the disk reports an error", "look at free space and quota, then go on with `bisect-train resume`"),
    ("locked", "another process has kept it locked for 30 s", "end that process, then run again"),
    ("not a database", "this file is not a database", "move it away, then run again: a new one is made"),
    ("malformed", "the database is damaged", "move it away, then run again: a new one is made"),
    ("no such table", "the database lacks a table", "move it away, then run again: a new one is made"),
)
_GO_ON = "see that the server runs, then go on with `bisect-train resume`"
_POSTGRESQL = (
    ("password authentication failed", "the server refuses this user", f"look at user and password in {STORE_VARIABLE}"),
    ("no password supplied", "the server wants a password", f"give it in {STORE_VARIABLE}, PGPASSWORD or ~/.pgpass"),
    ("no pg_hba.conf entry", "the server lets nobody in from here", "look at its pg_hba.conf"),
    ("could not translate host name", "there is no such host", f"look at the host in {STORE_VARIABLE}"),
    ("failed to resolve host", "there is no such host", f"look at the host in {STORE_VARIABLE}"),
    ("no such file or directory", "no server listens there", f"start it, or look at host and port in {STORE_VARIABLE}"),
    ("connection refused", "no server listens there", f"start it, or look at host and port in {STORE_VARIABLE}"),
    ("timeout expired", "the server does not answer", f"look at host, port and network of {STORE_VARIABLE}"),
    ("too many clients", "the server has no connection left", "end other programs or raise its max_connections"),
    ("remaining connection slots", "the server has no connection left", "end other programs or raise its max_connections"),
    ("permission denied", "this user may not do that", "let it own the database: GRANT ALL ON SCHEMA public TO USER"),
    ("read-only transaction", "it cannot be written", f"name a server in {STORE_VARIABLE} that is no standby"),
    ("lock timeout", "another process has kept a row locked for 30 s", "run again; end that process if it hangs"),
    ("could not extend file", "the disk of the server is full", "free some space there, then `bisect-train resume`"),
    ("no space left", "the disk of the server is full", "free some space there, then `bisect-train resume`"),
    ("idle-in-transaction", "this process was stopped for too long in the middle of writing", "`bisect-train resume` goes on"),
    ("terminating connection", "the server has closed the connection", _GO_ON),
    ("server closed the connection", "the server has closed the connection", _GO_ON),
    ("connection is lost", "the server has closed the connection", _GO_ON),
    ("shutting down", "the server is being stopped", _GO_ON),
    ("starting up", "the server is still starting", _GO_ON),
    ("does not exist", "something is not there", f"createdb NAME makes a database; look at {STORE_VARIABLE}"),
)


def advise(place: str, cause: str, *, is_file: bool) -> MachineError:
    """Return the error for what a database reports.

    Args:
        place: of the database, for a person.
        cause: what it reports, without secrets.
        is_file: SQLite's words, else PostgreSQL's.
    """
    cause = " ".join(cause.split())
    for mark, problem, advice in _SQLITE if is_file else _POSTGRESQL:
        if mark in cause.lower():
            return MachineError(f"{place}: {problem} ({cause})", hint=advice)
    return MachineError(f"{place}: the database reports: {cause}", hint="look at the disk and the server")
