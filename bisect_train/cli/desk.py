"""What commands work with: the tool's home folder and its store, and the bisection that a person means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.errors import InputError
from bisect_train.store.contract import Store, StoredBisection, no_bisection
from bisect_train.store.home import default_home, ensure_home, open_store

SEARCHES = ("run", "check", "nightly")
"""Kinds of questions that have an answer; `probe` and `compare` are stored too, for their probes."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with: the tool's home folder and its store."""

    home: Path
    store: Store


@contextmanager
def open_desk() -> Iterator[Desk]:
    """Open home and store for one command. Raises MachineError when they cannot be used."""
    home = ensure_home(default_home())
    store = open_store(home)
    try:
        yield Desk(home, store)
    finally:
        store.close()


def is_part(stored: StoredBisection) -> bool:
    """Return whether a bisection looks inside a merge that another one has named."""
    return bool(stored.question.get("part_of"))


def whole_of(store: Store, stored: StoredBisection) -> StoredBisection:
    """Return what is to be gone on with: an unfinished bisection that an unfinished one is a part of, else the same."""
    if not is_part(stored) or stored.status == "finished":
        return stored
    whole = store.load(stored.question["part_of"])
    return stored if whole.status == "finished" else whole


def find_stored(store: Store, id_or_prefix: str) -> StoredBisection:
    """Return what is stored under an id, of any kind; "last" is the newest that is no part of another one.

    Raises:
        InputError: there is none.
    """
    found = next((item for item in store.list() if not is_part(item)), None) if id_or_prefix == "last" else None
    return found or store.load(id_or_prefix)


def find_bisection(store: Store, id_or_prefix: str) -> StoredBisection:
    """Return a stored bisection; "last" is the newest one, single probes and comparisons left out.

    Raises:
        InputError: there is none, or the id is that of a single probe or a comparison.
    """
    if id_or_prefix == "last":
        found = next((item for item in store.list() if item.question["kind"] in SEARCHES and not is_part(item)), None)
        if found is None:
            raise no_bisection("last")
        return found
    stored = store.load(id_or_prefix)
    if stored.question["kind"] not in SEARCHES:
        hint = f"`bisect-train log {stored.id}` lists its probes, `bisect-train show KEY` shows one"
        raise InputError(f"{stored.id} is a {stored.question['kind']}, not a bisection", hint=hint)
    return stored
