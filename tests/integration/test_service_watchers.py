"""Many watch while the queue is worked off: nobody misses an event. `tests/benchmarks/bench_service.py` does it with 200."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from bisect_train.service.app import create_app
from bisect_train.service.cluster import Cluster, RayPlace
from bisect_train.service.dispatcher import Dispatcher
from bisect_train.store.home import HOME_VARIABLE
from tests.support.service import ServiceLab, served, service_lab, small_repo
from tests.support.watching import watch_all

NUM_WATCHERS, NUM_BISECTIONS, NUM_EVENTS = 40, 4, 30


class NoRay(Cluster):
    """Where no Ray is needed."""

    async def place(self) -> RayPlace:
        return RayPlace("nowhere")


def wait_for(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def with_dispatcher(lab: ServiceLab, plan: dict[str, float]) -> None:
    """Let stand-ins for coordinators run what is submitted."""
    runner = Dispatcher(
        lab.settings,
        store=lab.store,
        queue=lab.backend.queue,
        board=lab.board,
        cluster=NoRay(lab.settings),
        command_of=lambda name, _: [sys.executable, "-m", "tests.support.fake_coordinator", name, json.dumps(plan)],
        env={**os.environ, HOME_VARIABLE: str(lab.settings.home)},
    )
    lab.app = create_app(lab.settings, lab.backend, board=lab.board, runner=runner)


def test_forty_watchers_of_four_bisections_miss_nothing(tmp_path: Path) -> None:
    with service_lab(tmp_path / "home", small_repo(tmp_path / "repo").path, max_running=2, max_streams=60) as lab:
        ids = [lab.submit() for _ in range(NUM_BISECTIONS)]
        with_dispatcher(lab, {"events": NUM_EVENTS, "pause_s": 0.02})
        with served(lab.app) as url:
            watchers = asyncio.run(watch_all(url, ids, num_watchers=NUM_WATCHERS, leave_after=NUM_EVENTS // 2))
            assert lab.app.state.parts.seats.num_taken == 0 and not lab.app.state.parts.feed._topics
            with httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
                statuses = [item["status"] for item in client.get("/bisections").json()["items"]]
    assert all(watcher.is_whole for watcher in watchers), [watcher for watcher in watchers if not watcher.is_whole][:2]
    assert {len(watcher.seqs) for watcher in watchers} == {NUM_EVENTS + 2}
    assert {watcher.num_connections for watcher in watchers} == {1, 2}
    assert statuses == ["finished"] * NUM_BISECTIONS


def test_watchers_beyond_the_seats_are_told_to_come_later(tmp_path: Path) -> None:
    with service_lab(tmp_path / "home", small_repo(tmp_path / "repo").path, max_streams=1) as lab:
        name = lab.submit()
        with served(lab.app) as url, httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
            with client.stream("GET", f"/bisections/{name}/events") as answer:
                first = answer.iter_lines()  # a stream ends with its iterator
                assert answer.status_code == 200 and next(first).startswith("retry")
                refused = client.get(f"/bisections/{name}/events")
                assert refused.status_code == 429 and refused.headers["retry-after"]
                first.close()
            wait_for(lambda: lab.app.state.parts.seats.num_taken == 0)
            with client.stream("GET", "/events") as answer:
                lines = answer.iter_lines()
                assert next(lines).startswith("retry") and next(lines) == "" and next(lines) == "event: bisection"
                assert json.loads(next(lines)[6:])["id"] == name
