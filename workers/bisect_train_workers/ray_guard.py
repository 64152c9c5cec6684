"""A small process beside a local Ray that ends what is left of it when its coordinator is gone.

Ray's own processes notice a killed driver at very different speeds (its agents took up to a minute), and its files stay.
Run as a file (`python -I ray_guard.py MARKER FOLDER`); its stdin is a pipe that only the coordinator holds open, and
over which it names Ray's processes, `PID START_MARK` a line: those that set a process title have lost their environment.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import psutil

if __name__ == "__main__":  # -I leaves the script's folder out of the path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bisect_train_workers import processes


def main() -> None:
    """Wait for the end of the coordinator, or of the session; then end the marked processes and remove the folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    marker, folder = sys.argv[1:]
    named = [(int(pid), int(started)) for pid, started in (line.split() for line in sys.stdin)]

    def find() -> list[psutil.Process]:
        found = [psutil.Process(pid) for pid, started in named if processes.is_same_process(pid, started)]
        return found + processes.find_marked(marker.__eq__, variable=processes.SESSION_MARKER)

    processes.end_all(find)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
