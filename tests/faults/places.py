"""The folder in which a bisection's database lies: a small file system of its own where this user may mount one."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

DATABASE = "bisect-train.db"
ROOM = "64m"


class Place:
    """A home folder that can be full or read-only.

    Args:
        folder: does not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.is_mounted = _mount("-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder))

    @property
    def database(self) -> Path:
        return self.folder / DATABASE

    @property
    def wal(self) -> Path:
        return self.folder / f"{DATABASE}-wal"

    def make_read_only(self) -> bool:
        """Return whether nothing can be written any more; nobody may have it open."""
        return self.is_mounted and _mount("-o", "remount,ro", str(self.folder))

    def fill(self) -> None:
        """Leave no room, in the process that calls: by the file system's size, or by a limit on the size of files."""
        if self.is_mounted:
            used = sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*"))
            if _mount("-o", f"remount,size={used + 4096}", str(self.folder)):
                return
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.wal.stat().st_size if self.wal.exists() else 4096,) * 2)

    def mend(self) -> None:
        """Make room again, and let it be written."""
        if self.is_mounted:
            _mount("-o", f"remount,rw,size={ROOM}", str(self.folder))

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20.0)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


def hold_lock(database: Path, *, hold_s: float) -> int:
    """Let another process take the database's write lock for some time; return its id once it has it."""
    command = [sys.executable, "-S", "-E", "-c", HOLDER, str(database), str(hold_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process.pid


def tear(place: Place, rng: random.Random) -> str:
    """Damage the files of a database that nobody has open; return how. Half of the time all of it is in the main file."""
    if rng.random() < 0.5:
        with contextlib.closing(sqlite3.connect(place.database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = place.wal.stat().st_size if place.wal.exists() else 0
    if size > 0:
        how = rng.choice(("log cut", "log with a garbled tail", "pages garbled", "file cut"))
    else:
        how = rng.choice(("pages garbled", "file cut"))
    if how == "log cut":
        os.truncate(place.wal, rng.randrange(size))
    elif how == "log with a garbled tail":
        _garble(place.wal, rng, first=max(0, size - 3000), num_bytes=3000)
    elif how == "pages garbled":
        page = rng.randrange(place.database.stat().st_size // 4096)
        _garble(place.database, rng, first=4096 * page, num_bytes=4096)
    else:
        os.truncate(place.database, rng.randrange(place.database.stat().st_size))
    return how


def _garble(path: Path, rng: random.Random, *, first: int, num_bytes: int) -> None:
    with path.open("r+b") as file:
        file.seek(first)
        file.write(rng.randbytes(num_bytes))
