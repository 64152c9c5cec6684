"""`cache gc`: what may go, what goes, and the proof that nothing is left behind.

What a stored bisection needs to be reported or resumed stays, and so does what anyone uses; the rest can be made again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from bisect_train.cli.stock import CLONE, HOME_MIRROR, PACKS, Stock
from bisect_train.core.errors import BisectTrainError, InputError
from bisect_train.store.contract import StoredBisection
from bisect_train.store.home import open_store
from bisect_train.store.upkeep import open_archive, stale_locks
from bisect_train_workers.leftovers import Leftover, find_leftovers, sweep_leftovers
from bisect_train_workers.locks import try_lock
from bisect_train_workers.node import NodeError, remove_folder
from bisect_train_workers.upkeep import KEPT, REMADE, CacheItem, choose_oldest, remove_item

SETTLED_S = 3600.0
"""A mirror or clone that no bisection needs may be that of one which is just being asked."""
_OF_HOME = (HOME_MIRROR, PACKS, CLONE)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants to go.

    Attributes:
        max_bytes: what may stay of everything together, the oldest goes first.
        older_than_s: what was not used for so long goes whatever the size, None for nothing.
        kept: whether the folders of `--keep` may go, too.
        bisections_older_than_s: bisections in which nothing happened for so long go with their results, None for none.
        bisections: ids of others that go.
    """

    max_bytes: int
    older_than_s: float | None = None
    kept: bool = False
    bisections_older_than_s: float | None = None
    bisections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """What goes, in this order: bisections, folders, leftovers."""

    bisections: tuple[StoredBisection, ...]
    items: tuple[CacheItem, ...]
    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True, slots=True)
class Tidied:
    """What went, what did not though it should have, and what is left behind after all."""

    items: tuple[CacheItem, ...]
    refused: tuple[tuple[CacheItem, str], ...]
    leftovers: tuple[Leftover, ...]


def choose(stock: Stock, wish: Wish, *, now_s: float | None = None) -> Chosen:
    """Return what would go; changes nothing.

    Raises:
        InputError: a bisection that was named runs.
    """
    now_s = time.time() if now_s is None else now_s
    gone = choose_bisections(stock, wish, now_s=now_s)
    free = [item for item in stock.items if may_go(item, wish, now_s=now_s)]
    old = [item for item in free if wish.older_than_s is not None and now_s - item.last_use_s >= wish.older_than_s]
    rest = [item for item in free if item not in old]
    total = stock.total_bytes - sum(item.num_bytes for item in old)
    items = (*sorted(old, key=lambda item: item.last_use_s), *choose_oldest(rest, total_bytes=total, max_bytes=wish.max_bytes))
    return Chosen(gone, items, find_leftovers(stock.home, stock.node))


def may_go(item: CacheItem, wish: Wish, *, now_s: float) -> bool:
    """Return whether nothing needs an item: it can be made again, or is what a person wants to go."""
    if item.held_by:
        return False
    if item.kind == KEPT:
        return wish.kept
    if item.kind in (HOME_MIRROR, CLONE):
        return now_s - item.last_use_s >= SETTLED_S
    return item.kind in (*REMADE, PACKS)


def choose_bisections(stock: Stock, wish: Wish, *, now_s: float) -> tuple[StoredBisection, ...]:
    """Return the bisections that go: none that runs, and none without the whole that it is a part of."""
    by_id = {stored.id: stored for stored in stock.bisections}
    wanted = set(wish.bisections)
    if running := sorted(_with_parts(wanted, stock.bisections) & stock.running):
        raise InputError(f"bisection {running[0]} is running", hint=f"stop it with `bisect-train cancel {running[0]}`")
    limit_s = wish.bisections_older_than_s
    for stored in stock.bisections if limit_s is not None else ():
        family = _with_parts({stored.id}, stock.bisections)
        ages = [now_s - stock.last_s.get(name, now_s) for name in family]
        is_whole = stored.question.get("part_of") not in by_id
        if is_whole and not family & stock.running and min(ages) >= (limit_s or 0.0):
            wanted.add(stored.id)
    return tuple(stored for stored in stock.bisections if stored.id in _with_parts(wanted, stock.bisections))


def _with_parts(wanted: Collection[str], every: Sequence[StoredBisection]) -> set[str]:
    """Return ids with those of the bisections that look inside what they have named."""
    found = set(wanted)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {stored.id for stored in every if stored.question.get("part_of") in found}
    return found


def tidy(stock: Stock, chosen: Chosen) -> Tidied:
    """Remove what was chosen, and sweep what was left behind.

    Raises:
        InputError: a bisection that goes has been started meanwhile.
        MachineError: the database cannot be written.
    """
    _remove_bisections(stock, chosen.bisections)
    gone, refused = [], []
    for item in chosen.items:
        why = _remove(stock, item)
        if why:
            refused.append((item, why))
        else:
            gone.append(item)
    return Tidied(tuple(gone), tuple(refused), sweep_leftovers(stock.home, stock.node))


def _remove_bisections(stock: Stock, gone: Sequence[StoredBisection]) -> None:
    archive = open_archive(stock.home) if stock.trouble is None else None
    if archive is None:
        return
    try:
        if gone:
            archive.remove([stored.id for stored in gone])
            with contextlib.suppress(BisectTrainError):  # somebody writes: the space is used again all the same
                archive.shrink()
    finally:
        archive.close()
    with contextlib.suppress(OSError, NodeError):
        _remove_stale_locks(stock.home)


def _remove_stale_locks(home: Path) -> None:
    """Remove the locks of bisections that are not stored now, and that nobody holds."""
    store = open_store(home)
    try:
        known = frozenset(stored.id for stored in store.list())
    finally:
        store.close()
    for path in stale_locks(home, known):
        if path.suffix == ".lock" and (lock := try_lock(path)) is not None:
            path.unlink(missing_ok=True)
            path.with_suffix(".pid").unlink(missing_ok=True)
            lock.release()


def _is_any_running(home: Path) -> bool:
    store = open_store(home)
    try:
        return any(store.is_running(stored.id) for stored in store.list())
    finally:
        store.close()


def _remove(stock: Stock, item: CacheItem) -> str:
    """Remove an item; return why that was not possible, "" where it was."""
    try:
        if item.kind == PACKS and _is_any_running(stock.home):
            return "a bisection has been started meanwhile"
        if item.kind in _OF_HOME:
            _remove_of_home(item.path)
            return ""
        return "" if remove_item(stock.node, item) else "a probe uses it now"
    except (NodeError, OSError) as error:
        return str(error)
    except Timeout:
        return "it is being cloned now"


def _remove_of_home(path: Path) -> None:
    """Remove a folder of the home, under another name first, so that half of one is never found."""
    lock = Path(f"{path}.lock")
    is_new = not lock.exists()  # that of a clone stays: somebody may wait for it
    with FileLock(lock, timeout=0):
        gone = path.with_name(f".new-{path.name}.gone")  # swept with other scratch if we are killed here
        path.rename(gone)
        remove_folder(gone)
    if is_new:
        lock.unlink(missing_ok=True)
