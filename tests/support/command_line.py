"""The `bisect-train` command as a user starts it: in a process of its own, with its own home."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from bisect_train.store.contract import StoredEvent
from bisect_train.store.home import open_store


@dataclass
class CommandLine:
    """Starts commands in a folder; everything they start carries the home folder in its environment."""

    folder: Path
    home: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the commands."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("BISECT_TRAIN", "RAY_", "GIT_"))}
        return {**kept, "BISECT_TRAIN_HOME": str(self.home), "COLUMNS": "150", **self.env}

    def start(self, *args: str, output: IO[str] | int = subprocess.DEVNULL, **more: Any) -> subprocess.Popen[str]:
        """Start a command and return its process."""
        command = [sys.executable, "-m", "bisect_train.cli.main", *args]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT, text=True, **more
        )

    def run(self, *args: str, timeout_s: float = 600.0) -> tuple[int, str]:
        """Run a command to its end; return status and output."""
        with self.start(*args, output=subprocess.PIPE) as process:
            output, _ = process.communicate(timeout=timeout_s)
        return process.returncode, output

    def events(self, bisection: str = "last") -> tuple[StoredEvent, ...]:
        """Return the stored events of a bisection; () before there is one."""
        if not (self.home / "bisect-train.db").exists():
            return ()
        store = open_store(self.home)
        try:
            found = store.list()
            return store.events(store.load(bisection).id) if found else ()
        finally:
            store.close()

    def living(self) -> list[str]:
        """Return the processes that commands have started, theirs and Ray's and the programs', that are alive."""
        wanted = f"BISECT_TRAIN_HOME={self.home}\0".encode()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                environ = Path(f"/proc/{process.pid}/environ").read_bytes() + b"\0"
                marked = wanted in environ or str(self.home) in " ".join(process.cmdline())
                if marked and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {process.name()} {' '.join(process.cmdline())[:120]}")
        return found

    def wait_until_gone(self, processes: list[psutil.Process], *, limit_s: float) -> float:
        """Wait until nothing lives of what was started, some given by name; return how long it took, seconds."""
        started = time.monotonic()
        while left := self.living() + [f"{process.pid} given" for process in processes if _is_alive(process)]:
            assert time.monotonic() - started < limit_s, left
            time.sleep(0.1)
        return time.monotonic() - started


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []
