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
        found += processes.find_marked(marker.__eq__, variable=processes.SESSION_MARKER)
        # agents that began too late to be named, and have lost their environment, write logs in the session's folder
        return found + [process for process in processes.find_users_of(Path(folder).resolve()) if _is_of_ray(process)]

    processes.end_all(find)
    shutil.rmtree(folder, ignore_errors=True)


def _is_of_ray(process: psutil.Process) -> bool:
    """Return whether a process carries a title of Ray's: the coordinator, and a person who reads a log, do not."""
    try:
        return any(argument.startswith("ray::") for argument in process.cmdline()[:1])
    except psutil.Error:
        return False


if __name__ == "__main__":
    main()
