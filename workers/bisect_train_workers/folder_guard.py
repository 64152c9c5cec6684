"""A small process beside a worker that removes the probes' folders which the worker leaves, however it ends.

Run as a file (`python -I -S folder_guard.py PATH...`); its stdin is a pipe that only the worker holds open, and over which
it is told, a line of JSON each, of a folder that was made (`[true, [LOCKED, ANOTHER, ...]]`) or removed (`[false, [...]]`).
A worker may be killed between any two of its steps, and Ray gives one that it ends a tenth of a second: whoever else
removed the folder, a supervisor or the worker's own way out, could be gone before.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # -I and -S leave out of the path our own folder, and psutil's, which is the first argument
    sys.path[:] = [str(Path(__file__).resolve().parent.parent), *sys.path, *sys.argv[1:]]

from bisect_train_workers.locks import hold_lock
from bisect_train_workers.node import NodeError, remove_folder
from bisect_train_workers.processes import sweep_orphans


def main() -> None:
    """Follow what the worker tells; once it is gone, wait for the supervisors of what is left, and remove that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    importlib.import_module("psutil")  # which is used at the end, when the folder that it lies in may be gone
    left: dict[str, Sequence[str]] = {}
    for line in sys.stdin.buffer:
        is_made, paths = json.loads(line)
        left.pop(paths[0], None)
        if is_made:
            left[paths[0]] = paths
    for locked, *others in left.values():
        with contextlib.suppress(OSError, NodeError):  # gone already, or a disk that became read-only
            remove_unlocked(Path(locked), [Path(path) for path in others])


def remove_unlocked(locked: Path, others: Sequence[Path]) -> None:
    """Wait until nobody holds the lock in a folder; remove it and the others. Raises OSError where it is gone."""
    with hold_lock(locked / "lock"):
        sweep_orphans()  # the supervisor may have been killed too
        for path in (*others, locked):
            with contextlib.suppress(OSError):
                remove_folder(path)


if __name__ == "__main__":
    main()
