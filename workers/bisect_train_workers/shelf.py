"""A shelf of folders that are made once, never changed and shared by all probes of a node, addressed by what goes in.

An item is made under a lock in a draft beside its place and renamed, so a folder that is there is whole, whoever was
killed on the way. Who uses one holds a shared lock on it; `prune` takes the exclusive one before it removes an item.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train_workers.locks import HeldLock, hold_lock, try_lock
from bisect_train_workers.node import disk_errors, make_folder, remove_folder

_KEY = re.compile(r"[0-9a-f]{3,64}")  # digests; whatever else lies there is not ours

Fill = Callable[[Path, int], None]
"""Fills a new, empty folder; gets it and the descriptor of the lock, which child processes should inherit."""


@dataclass(frozen=True, slots=True)
class Item:
    """A finished folder; whoever has `lock_fd` open keeps it from being removed."""

    path: Path
    lock_fd: int


@dataclass(frozen=True, slots=True)
class Shelf:
    """Items of one kind.

    Attributes:
        folder: where they lie.
        max_bytes: what they may hold together; items in use stay all the same.
    """

    folder: Path
    max_bytes: int

    @contextlib.contextmanager
    def hold(self, key: str, fill: Fill) -> Iterator[Item]:
        """Yield an item, made by `fill` if it is not there.

        Args:
            key: digest of all that decides the content; letters and digits.
            fill: what it raises is raised here, and nothing stays behind.
        Raises:
            NodeError: the disk is full or cannot be written.
        """
        path = make_folder(self.folder) / key
        use = path.with_suffix(".use")
        fd = _share(use)
        try:
            if not path.is_dir():
                with hold_lock(path.with_suffix(".build")) as build_fd:
                    if not path.is_dir():
                        _make(path, fill, build_fd)
                self.prune()
            with contextlib.suppress(OSError):
                os.utime(use)
            yield Item(path, fd)
        finally:
            os.close(fd)  # not LOCK_UN: children that inherited it go on holding it

    def list_keys(self) -> list[str]:
        """Return the keys of the finished items."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if _KEY.fullmatch(path.name) and path.is_dir())

    def last_use_s(self, key: str) -> float:
        """Return when an item was used last, seconds since the epoch; 0 where that is unknown."""
        return _last_use_t(self.folder / key)

    def is_held(self, key: str) -> bool:
        """Return whether anyone uses an item."""
        lock = try_lock((self.folder / key).with_suffix(".use"))
        if lock is not None:
            lock.release()
        return lock is None

    def remove(self, key: str) -> bool:
        """Remove an item, and return whether that was possible: not one that is used."""
        path = self.folder / key
        return path.is_dir() and _remove_unused(path)

    def leftovers(self) -> list[Path]:
        """Return the folders that killed processes left: half made, or half removed. They may belong to living ones."""
        return sorted([*self.folder.glob("*.draft"), *self.folder.glob("*.gone")])

    def sweep(self) -> list[Path]:
        """Remove the leftovers that nobody works on; returns them."""
        return [path for path in self.leftovers() if _remove_leftover(path)]

    def prune(self) -> list[str]:
        """Remove the items that were not used for longest until the rest fits; returns the removed keys."""
        self.sweep()
        sizes = {self.folder / key: _num_bytes(self.folder / key) for key in self.list_keys()}
        total, removed = sum(sizes.values()), []
        for path in sorted(sizes, key=_last_use_t):
            if total <= self.max_bytes:
                break
            if _remove_unused(path):
                total -= sizes[path]
                removed.append(path.name)
        return removed


def make_read_only(folder: Path) -> None:
    """Take the right to write from a folder and all in it; links are not followed."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


def _share(path: Path) -> int:
    """Return the descriptor of a shared lock: any number of probes hold it."""
    with disk_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def _make(path: Path, fill: Fill, lock_fd: int) -> None:
    draft = path.with_suffix(".draft")
    try:
        with disk_errors(path):
            if draft.exists():
                remove_folder(draft)
            draft.mkdir()
            fill(draft, lock_fd)
            draft.rename(path)
    except BaseException:
        if draft.exists():
            remove_folder(draft)
        raise


def _num_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def _last_use_t(path: Path) -> float:
    try:
        return path.with_suffix(".use").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove_unused(path: Path) -> bool:
    """Remove an item that nobody holds; it goes under another name first, so that half of one is never found."""
    lock = try_lock(path.with_suffix(".use"))
    if lock is None:
        return False
    try:
        gone = path.with_suffix(".gone")
        if gone.exists():
            remove_folder(gone)
        path.rename(gone)
        remove_folder(gone)
        return True
    finally:
        lock.release()


def _remove_leftover(folder: Path) -> bool:
    """Remove what a killed process left; nobody makes or removes that item while we hold both of its locks."""
    locks: list[HeldLock] = []
    for suffix in (".use", ".build"):
        lock = try_lock(folder.with_suffix(suffix))
        locks += [lock] if lock else []
    is_free = len(locks) == 2 and folder.exists()
    if is_free:
        remove_folder(folder)
    for lock in locks:
        lock.release()
    return is_free
