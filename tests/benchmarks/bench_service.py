"""200 watchers, 20 bisections in the queue: is an event lost, how late do they come, does the service's memory stay flat?

`python -m tests.benchmarks.bench_service [--watchers 200] [--bisections 20] [--events 200]`. The service runs in a process of
its own; stand-ins for coordinators (real processes that store events as fast as it is said) work off the queue, four at a time.
Every third watcher breaks off half-way and comes back with the number of the last event that it saw. It is done twice on one
service, and memory is compared between the ends of both rounds. It ends with status 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psutil

from tests.integration.test_service_watchers import with_dispatcher
from tests.support.service import served, service_lab, small_repo
from tests.support.watching import Watcher, watch_all

MAX_GROWTH_MIB = 30.0
"""Of the second round over the first, which has filled caches and pools; it watches as many events again."""


def serve(folder: Path, *, num_events: int, pause_s: float) -> None:
    """Serve in this process until the input ends."""
    repo = small_repo(folder / "repo").path
    with service_lab(folder / "home", repo, max_running=4, max_streams=500, max_streams_per_user=500) as lab:
        with_dispatcher(lab, {"events": num_events, "pause_s": pause_s})
        with served(lab.app) as url:
            print(url, flush=True)
            sys.stdin.read()


class Meter(threading.Thread):
    """Notes the resident memory of a process and its CPU time."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.rss_mib: list[float] = []

    def run(self) -> None:
        """Look twice a second."""
        while self._process.is_running():
            self.rss_mib.append(self._process.memory_info().rss / 2**20)
            time.sleep(0.5)

    def cpu_s(self) -> float:
        """Return the CPU time of the process itself, seconds."""
        times = self._process.cpu_times()
        return float(times.user + times.system)


def one_round(url: str, *, num_bisections: int, num_watchers: int, num_events: int) -> list[Watcher]:
    """Submit, watch all to their ends."""
    with httpx.Client(base_url=f"{url}/api/v1", timeout=120) as client:
        body = {"repository": "demo", "good": ["old"]}
        ids = [str(client.post("/bisections", json=body).raise_for_status().json()["id"]) for _ in range(num_bisections)]
    return asyncio.run(watch_all(url, ids, num_watchers=num_watchers, leave_after=num_events // 2))


def main() -> int:
    """Measure; return 1 where a bound is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--bisections", type=int, default=20)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--pause-s", type=float, default=0.02)
    parser.add_argument("--serve", type=Path)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, num_events=given.events, pause_s=given.pause_s)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.bench_service", "--serve", folder, "--events", str(given.events)]
        command += ["--pause-s", str(given.pause_s)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                return measure(process, given)
            finally:
                process.terminate()


def measure(process: subprocess.Popen[str], given: argparse.Namespace) -> int:
    """Run both rounds, print what was seen; return the exit status."""
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    meter = Meter(process.pid)
    meter.start()
    ends_mib, is_whole = [], True
    for number in (1, 2):
        started_t, cpu_s = time.monotonic(), meter.cpu_s()
        watchers = one_round(url, num_bisections=given.bisections, num_watchers=given.watchers, num_events=given.events)
        took_s = time.monotonic() - started_t
        seen = sum(len(watcher.seqs) for watcher in watchers)
        delays = sorted(delay for watcher in watchers for delay in watcher.delays_s if watcher.num_connections == 1)
        lost = sum(not watcher.is_whole or len(watcher.seqs) != given.events + 2 for watcher in watchers)
        is_whole &= lost == 0
        ends_mib.append(meter.rss_mib[-1])
        cut = [delays[int(share * (len(delays) - 1))] for share in (0.5, 0.99)]
        print(
            f"round {number}: {seen:,} events to {given.watchers} watchers of {given.bisections} bisections in {took_s:.0f} s, "
            f"{lost} watchers missed something; late by {cut[0]:.2f} s (median), {cut[1]:.2f} s (99 %); "
            f"service: {statistics.median(meter.rss_mib):.0f} MiB (median), {ends_mib[-1]:.0f} MiB at the end, "
            f"{(meter.cpu_s() - cpu_s) / seen * 1e6:.0f} us of CPU an event and watcher",
            flush=True,
        )
    growth = ends_mib[1] - ends_mib[0]
    print(json.dumps({"growth_mib": round(growth, 1), "bound_mib": MAX_GROWTH_MIB, "is_whole": is_whole}))
    return 0 if is_whole and growth <= MAX_GROWTH_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
