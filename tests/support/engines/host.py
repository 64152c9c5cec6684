"""Runs engines in forks of one process that has imported torch and never ran an operation: a fork takes no time to start.

    python host.py JOBS.json

A job is {"engine": name, "out": folder, "ranks": N, "recorder": folder or null}. Each rank is a fork with a group of its own,
its output in `out/stdout-R` and `out/stderr-R`, its exit status in `out/status-R`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

LIMIT_S = 300.0


def main(path: str) -> None:
    """Run all jobs, about three processes at a time."""
    jobs = json.loads(Path(path).read_text())
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import import_all  # noqa: F401 - what the forks need

    waiting, running = list(jobs), []
    while waiting or running:
        while waiting and sum(len(pids) for pids, *_ in running) < 3:
            running.append(start(waiting.pop(0)))
        running = [item for item in running if not is_over(*item)]
        time.sleep(0.005)


def start(job: dict[str, Any]) -> tuple[dict[int, int], dict[str, Any], float]:
    """Fork the ranks of a job; return their ranks by process id."""
    Path(job["out"]).mkdir(parents=True, exist_ok=True)
    port = free_port()
    pids = {}
    for rank in range(job["ranks"]):
        pid = os.fork()
        if pid == 0:
            become(job, rank, port)
        pids[pid] = rank
    return pids, job, time.monotonic()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_over(pids: dict[int, int], job: dict[str, Any], started: float) -> bool:
    """Take the ranks that have ended; end those that hang."""
    for pid in list(pids):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            rank = pids.pop(pid)
            Path(job["out"], f"status-{rank}").write_text(str(os.waitstatus_to_exitcode(status)))
    if time.monotonic() - started > LIMIT_S:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    return not pids


def become(job: dict[str, Any], rank: int, port: int) -> None:
    """In the fork: load the recorder, run the engine, and leave as a program does."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(Path(job["out"], f"{name}-{rank}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    if job["ranks"] > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(job["ranks"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.chdir(job["out"])
    from child import run_engine

    run_engine(job)


if __name__ == "__main__":
    main(sys.argv[1])
