"""The log of nightly watches, and the watch that a person means."""

from __future__ import annotations

from bisect_train.cli.desk import Desk
from bisect_train.core.errors import InputError
from bisect_train.store.nightly_contract import NightlyLog, StoredWatch
from bisect_train.store.sql import SqlStore


def open_log(desk: Desk) -> NightlyLog:
    """Return the log of watches beside the bisections."""
    assert isinstance(desk.store, SqlStore)
    return desk.store.nightly()


def pick_watch(log: NightlyLog, name: str | None) -> StoredWatch:
    """Return the watch of this name, or the only one. Raises InputError where there is none, or several and no name."""
    if name:
        return log.watch(name)
    watches = log.watches()
    if not watches:
        raise InputError("no branch is watched yet", hint="`bisect-train nightly --branch NAME` begins")
    if len(watches) > 1:
        raise InputError("several branches are watched", hint=f"name one of {', '.join(item.name for item in watches)}")
    return watches[0]
