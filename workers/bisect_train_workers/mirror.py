"""A node's own store of the objects of one repository, filled from the packs that jobs bring.

It is a bare repository that nothing is ever checked out from directly: checkout slots borrow its objects. Commits
arrive without their parents, so whoever shows one as HEAD lists it in `shallow` (see `checkout`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bisect_train_workers.gitcmd import call_git, run_git
from bisect_train_workers.locks import hold_lock
from bisect_train_workers.node import disk_errors, make_folder, remove_folder

PackLoader = Callable[[str], bytes]
"""Returns the bytes of the pack with this id; may fetch them from another node."""


class Mirror:
    """The objects of one repository on this node. Safe to use from many processes at a time."""

    def __init__(self, folder: Path) -> None:
        self._lock = folder / "mirror.lock"
        self.path = folder / "mirror.git"
        self._seen = self.path / "packs-put"

    def add_packs(self, pack_ids: Sequence[str], load: PackLoader) -> None:
        """Put the packs that are not here yet.

        Args:
            pack_ids: digests of the packs' content.
            load: called once for each pack that is missing.
        Raises:
            NodeError: the disk is full or cannot be written.
            GitError: a pack cannot be read.
        """
        missing = [pack_id for pack_id in pack_ids if not self._mark(pack_id).exists()]
        if not missing and self._seen.is_dir():
            return
        make_folder(self.path)
        with hold_lock(self._lock) as fd, disk_errors(self.path):
            self._make(fd)
            for pack_id in missing:
                self._put(pack_id, load, fd)

    def has(self, name: str) -> bool:
        """Return whether an object is here."""
        return bool(name) and call_git(["cat-file", "-e", name], cwd=self.path)[0] == 0

    def throw_away(self) -> None:
        """Remove everything, for a mirror whose objects cannot be read; the next `add_packs` starts anew."""
        with hold_lock(self._lock):
            if self.path.exists():
                remove_folder(self.path)

    def _mark(self, pack_id: str) -> Path:
        return self._seen / re.sub(r"[^A-Za-z0-9]", "_", pack_id)

    def _make(self, fd: int) -> None:
        if self._seen.is_dir():
            return
        run_git(["init", "--quiet", "--bare", "--template=", "."], cwd=self.path, hold=(fd,))
        make_folder(self._seen)

    def _put(self, pack_id: str, load: PackLoader, fd: int) -> None:
        mark = self._mark(pack_id)
        if mark.exists():
            return
        data = load(pack_id)
        if data:
            run_git(["index-pack", "--stdin"], cwd=self.path, stdin=data, hold=(fd,))
        mark.touch()
