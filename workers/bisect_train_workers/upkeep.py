"""What a node keeps between probes, item by item, and how an item goes: never one that somebody uses.

Everything here can be made again, so removing it costs time only; `kept` folders alone cannot. Locks decide what is in
use, as they do for probes, and files that are locks stay: whoever waits for one has it open already.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.amounts import parse_size
from bisect_train_workers.locks import HeldLock, hold_lock, try_lock
from bisect_train_workers.node import NodeError, NodeHome, remove_folder
from bisect_train_workers.overlay import overlay_shelf
from bisect_train_workers.remote_data import data_shelf
from bisect_train_workers.shelf import Shelf
from bisect_train_workers.whole_environment import environment_shelf

LIMIT_VARIABLE = "BISECT_TRAIN_CACHE_LIMIT"
DEFAULT_LIMIT = 50 * 10**9
"""What a cache may hold where nothing else is said, bytes."""
LOOK_AGAIN_S = 3600.0
"""Between two looks at the size of a node's folders: a walk over a million files takes seconds."""

CHECKOUT, MIRROR, OVERLAY, ENVIRONMENT, DATA = "checkout", "node mirror", "overlay", "environment", "fetched data"
KEPT, RUNNING = "kept probe", "running probe"
REMADE = (CHECKOUT, MIRROR, OVERLAY, ENVIRONMENT, DATA)
"""Kinds that the next probe makes again by itself."""


@dataclass(frozen=True, slots=True)
class CacheItem:
    """One thing that is kept.

    Attributes:
        kind: what it is, for a person.
        path: its folder.
        num_bytes: of disk that it takes.
        last_use_s: when it was used last, seconds since the epoch; 0 where that is unknown.
        held_by: who needs it, "" if nobody does.
    """

    kind: str
    path: Path
    num_bytes: int
    last_use_s: float
    held_by: str = ""


def find_limit(environ: Mapping[str, str] = os.environ) -> int:
    """Return what a cache may hold, bytes. Raises ValueError if the variable is no size."""
    given = environ.get(LIMIT_VARIABLE, "")
    return parse_size(given) if given else DEFAULT_LIMIT


def list_node(home: NodeHome) -> tuple[CacheItem, ...]:
    """Return all that a node keeps; nothing is made or changed."""
    return (
        *_list_repos(home),
        *_list_shelves(home),
        *_list_plain(home.path / "kept", KEPT),
        *_list_running(home.path / "probes"),
    )


def remove_item(home: NodeHome, item: CacheItem) -> bool:
    """Remove an item of `list_node`, and return whether that was possible: not one that is used, nor a running probe.

    Raises:
        NodeError, OSError: the disk does not let it go.
    """
    removers: dict[str, Callable[[Path], bool]] = {
        CHECKOUT: _remove_checkout,
        MIRROR: _remove_mirror,
        OVERLAY: lambda path: overlay_shelf(home).remove(path.name),
        ENVIRONMENT: lambda path: environment_shelf(home).remove(path.name),
        DATA: lambda path: data_shelf(home).remove(path.name),
        KEPT: _remove_kept,
    }
    return item.kind in removers and removers[item.kind](item.path)


def choose_oldest(items: Iterable[CacheItem], *, total_bytes: int, max_bytes: int) -> list[CacheItem]:
    """Return the items that were not used for longest, as many as bring the total to the limit, the oldest first. Pure."""
    chosen = []
    for item in sorted(items, key=lambda item: (item.last_use_s, str(item.path))):
        if total_bytes <= max_bytes:
            break
        total_bytes -= item.num_bytes
        chosen.append(item)
    return chosen


def bound_node(home: NodeHome, *, environ: Mapping[str, str] = os.environ, now_s: float | None = None) -> list[CacheItem]:
    """Bring a node's folders under the limit, at most once an hour; returns what was removed. What cannot go stays."""
    now_s = time.time() if now_s is None else now_s
    stamp = home.path / "bounded"
    with contextlib.suppress(NodeError, OSError, ValueError):
        if not home.path.is_dir() or 0 <= now_s - _changed_s(stamp) < LOOK_AGAIN_S:
            return []
        stamp.touch()
        os.utime(stamp, (now_s, now_s))
        items = [item for item in list_node(home) if item.kind in REMADE]
        total = sum(item.num_bytes for item in items)
        free = [item for item in items if not item.held_by]
        return [item for item in choose_oldest(free, total_bytes=total, max_bytes=find_limit(environ)) if _try(home, item)]
    return []


def folder_bytes(folder: Path) -> int:
    """Return the disk that a folder and all below it take, bytes; symlinks are not followed, what vanishes counts nothing."""
    total = 0
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


@contextlib.contextmanager
def hold_beginnings(node: Path) -> Iterator[None]:
    """Let no probe begin meanwhile where that can be done: one that begins does not expect its new lock to be looked at."""
    with contextlib.ExitStack() as stack:
        if (node / "probes").is_dir():
            with contextlib.suppress(NodeError, OSError):
                stack.enter_context(hold_lock(node / "probes.lock"))
        yield


def is_locked(path: Path) -> bool:
    """Return whether somebody holds the lock of a file that is there; one in a folder that cannot be written is free."""
    if not path.exists():
        return False
    try:
        lock = try_lock(path)
    except (NodeError, OSError):
        return False
    if lock is not None:
        lock.release()
    return lock is None


def _try(home: NodeHome, item: CacheItem) -> bool:
    try:
        return remove_item(home, item)
    except (NodeError, OSError):
        return False


# ---- what there is ------------------------------------------------------------------------------------------------


def _list_repos(home: NodeHome) -> list[CacheItem]:
    found = []
    for repo in _folders(home.path / "repos"):
        slots = _folders(repo / "slots")
        for slot in slots:
            if (slot / "tree").is_dir() or any(slot.glob("index-*")):
                held = "a probe" if is_locked(slot / "lock") else ""
                found.append(CacheItem(CHECKOUT, slot, folder_bytes(slot), _last_change_s(_marks_of(slot)), held))
        if (repo / "mirror.git").is_dir():
            locks = [repo / "mirror.lock", *(slot / "lock" for slot in slots)]
            held = "a probe" if any(map(is_locked, locks)) else ""
            used_s = _last_change_s([repo / "mirror.git/packs-put", *(mark for slot in slots for mark in _marks_of(slot))])
            found.append(CacheItem(MIRROR, repo / "mirror.git", folder_bytes(repo / "mirror.git"), used_s, held))
    return found


def _marks_of(slot: Path) -> list[Path]:
    """Return what every probe makes anew in a slot."""
    return [slot / "tree/.git", *slot.glob("index-*")]


def _list_shelves(home: NodeHome) -> list[CacheItem]:
    found = []
    for kind, shelf in ((OVERLAY, overlay_shelf(home)), (ENVIRONMENT, environment_shelf(home)), (DATA, data_shelf(home))):
        for key in shelf.list_keys():
            path = shelf.folder / key
            found.append(CacheItem(kind, path, folder_bytes(path), shelf.last_use_s(key), _holder(shelf, key)))
    return found


def _holder(shelf: Shelf, key: str) -> str:
    with contextlib.suppress(NodeError, OSError):
        return "a probe" if shelf.is_held(key) else ""
    return ""


def _list_plain(parent: Path, kind: str) -> list[CacheItem]:
    return [CacheItem(kind, folder, folder_bytes(folder), _changed_s(folder)) for folder in _folders(parent)]


def _list_running(parent: Path) -> list[CacheItem]:
    """Return the private folders of probes that run; those of dead ones are leftovers."""
    with hold_beginnings(parent.parent):
        living = [folder for folder in _folders(parent) if is_locked(folder / "lock")]
    return [CacheItem(RUNNING, folder, folder_bytes(folder), _changed_s(folder), "a probe") for folder in living]


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _last_change_s(paths: Iterable[Path]) -> float:
    return max(map(_changed_s, paths), default=0.0)


def _changed_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


# ---- how it goes --------------------------------------------------------------------------------------------------


def _remove_checkout(slot: Path) -> bool:
    with _all_locks([slot / "lock"]) as is_free:
        if is_free:
            for path in [slot / "tree", *slot.glob("index-*")]:
                if path.exists() or path.is_symlink():
                    remove_folder(path)
        return is_free


def _remove_mirror(mirror: Path) -> bool:
    """Remove a mirror's objects while no probe can be about to read them; the next probe brings its packs again."""
    slots = _folders(mirror.parent / "slots")
    with _all_locks([mirror.parent / "mirror.lock", *(slot / "lock" for slot in slots)]) as is_free:
        if is_free and mirror.exists():
            remove_folder(mirror)
        return is_free


def _remove_kept(folder: Path) -> bool:
    remove_folder(folder)
    return True


@contextlib.contextmanager
def _all_locks(paths: Iterable[Path]) -> Iterator[bool]:
    """Hold all locks, or none; yields whether they are held."""
    held: list[HeldLock] = []
    try:
        for path in paths:
            lock = try_lock(path)
            if lock is None:
                yield False
                return
            held.append(lock)
        yield True
    finally:
        for lock in held:
            lock.release()
