"""Watching: no event is lost to a slow, late or returning watcher, streams end with the bisection, and seats are bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bisect_train.service.feed import HEARTBEAT, MAX_KEPT, Feed, message_of, over_message
from bisect_train.service.live import MAX_POINTS, LiveBoard
from bisect_train.service.parts import Seats
from bisect_train.service.problems import Refused
from bisect_train.service.settings import Settings
from bisect_train.store.contract import StoredEvent
from bisect_train.store.queue_contract import QueueState
from tests.support.service import ServiceLab, service_lab, small_repo

NUM_EVENTS = MAX_KEPT + 60


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_repo(tmp_path_factory.mktemp("feed") / "repo").path


@pytest.fixture
def lab(tmp_path: Path, repo: Path) -> Iterator[ServiceLab]:
    with service_lab(tmp_path / "home", repo) as made:
        yield made


def feed_of(lab: ServiceLab, *, heartbeat_s: float = 30.0, board: LiveBoard | None = None) -> Feed:
    return Feed(lab.backend, board or lab.board, poll_s=0.01, heartbeat_s=heartbeat_s)


def stored(lab: ServiceLab, num: int = 0) -> str:
    name = lab.store.create(lab.store.load(lab.submit()).question, title="watched")
    for idx in range(num):
        lab.store.append(name, "started" if not idx else "probe_started", {"key": f"{idx:016x}", "point": "0"})
    return name


def numbers(messages: list[str]) -> list[int]:
    return [int(text.split("\n", 1)[0][4:]) for text in messages if text.startswith("id: ")]


async def read_all(feed: Feed, name: str, *, after: int = 0, pause_s: float = 0.0) -> list[str]:
    messages = []
    async for text in feed.watch(name, after):
        messages.append(text)
        await asyncio.sleep(pause_s)
    return messages


def test_quick_slow_late_and_returning_watchers_see_every_event_once_in_order(lab: ServiceLab) -> None:
    name = stored(lab, 3)
    feed = feed_of(lab)

    def write() -> None:
        for idx in range(3, NUM_EVENTS):
            lab.store.append(name, "probe_started", {"key": f"{idx:016x}", "point": "0"})
        lab.store.append(name, "finished", {"answer": {"status": "isolated", "summary": "found"}, "exit_status": 0})

    async def watch() -> list[list[str]]:
        watchers = [read_all(feed, name), read_all(feed, name, pause_s=0.003), read_all(feed, name, after=150)]
        first = [asyncio.create_task(item) for item in watchers]
        writing = asyncio.create_task(asyncio.to_thread(write))
        await asyncio.sleep(0.05)
        late = asyncio.create_task(read_all(feed, name))
        await writing
        return list(await asyncio.wait_for(asyncio.gather(*first, late), 120))

    quick, slow, returning, late = asyncio.run(watch())
    every = list(range(1, NUM_EVENTS + 2))
    assert numbers(quick) == numbers(slow) == numbers(late) == every and numbers(returning) == every[150:]
    for messages in (quick, slow, returning, late):
        assert messages[-1].startswith("event: end\n") and sum(text.startswith("event: end") for text in messages) == 1
    assert not feed._topics, "nothing is kept for a bisection that nobody watches"


def test_stream_stays_open_while_the_bisection_may_go_on_and_shows_that_it_lives(lab: ServiceLab) -> None:
    name = lab.submit()
    feed = feed_of(lab, heartbeat_s=0.05)

    async def watch() -> list[str]:
        messages: list[str] = []
        async for text in feed.watch(name, 0):
            messages.append(text)
            if text == HEARTBEAT and messages.count(HEARTBEAT) == 2:
                lab.backend.queue.cancel(name, reason="enough")
        return messages

    messages = asyncio.run(asyncio.wait_for(watch(), 60))
    assert messages[-1] == 'event: end\ndata: {"status":"cancelled","reason":"enough"}\n\n'
    assert numbers(messages) == [1]


def test_entry_that_failed_or_is_over_ends_a_stream_and_one_that_goes_back_does_not(lab: ServiceLab) -> None:
    name = lab.submit()
    queue = lab.backend.queue
    assert over_message(lab.backend, name) is None
    with queue.join() as dispatcher:
        assert queue.claim(dispatcher) is not None
        lab.store.append(name, "finished", {"answer": {}, "exit_status": 0})
        assert over_message(lab.backend, name) is None, "its dispatcher has not said so yet"
        queue.finish(dispatcher, name, QueueState.FAILED, reason="no Ray")
    assert over_message(lab.backend, name) == 'event: end\ndata: {"status":"failed","reason":"no Ray"}\n\n'
    queue.submit(name, "local")
    assert over_message(lab.backend, name) is None


def test_running_probes_are_told_as_they_move(lab: ServiceLab) -> None:
    name = lab.submit()
    board = LiveBoard()
    feed = feed_of(lab, board=board)

    async def watch() -> list[dict[str, object]]:
        seen: list[dict[str, object]] = []
        async for text in feed.watch(name, 0):
            if text.startswith("retry"):
                board.take(name, {"kind": "started", "key": "k1", "seed_idx": 3, "repeat": 1})
            if text.startswith("event: live"):
                seen.append(json.loads(text.split("data: ", 1)[1]))
                if len(seen) == 1:
                    board.take(name, {"kind": "moved", "key": "k1", "phase": "run", "step": 4, "loss": 0.5})
                elif len(seen) == 2:
                    board.forget(name)
                else:
                    return seen
        raise AssertionError("the stream ended")

    first, second, third = asyncio.run(asyncio.wait_for(watch(), 60))
    assert first["runs"] == [{"key": "k1", "seed_idx": 3, "repeat": 1, "phase": "", "step": 0, "loss": None}]
    assert second["runs"] == [{"key": "k1", "seed_idx": 3, "repeat": 1, "phase": "run", "step": 4, "loss": 0.5}]
    assert third["runs"] == []


def test_service_that_ends_ends_its_streams(lab: ServiceLab) -> None:
    name = lab.submit()
    feed = feed_of(lab)

    async def watch() -> int:
        reading = asyncio.create_task(read_all(feed, name))
        await asyncio.sleep(0.1)
        await feed.close()
        return len(await asyncio.wait_for(reading, 30))

    assert asyncio.run(watch()) >= 1


def test_message_holds_no_config_no_report_and_no_secret() -> None:
    spec = {"point": "1", "config": "api_key: hunter2hunter2\n", "commit": "c" * 40}
    text = message_of(StoredEvent(7, "probe_finished", 1.5, {"key": "k", "spec": spec}))
    assert "hunter2" not in text and '"config"' not in text and text.startswith("id: 7\ndata: {") and text.endswith("}\n\n")
    report = {"status": "isolated", "summary": "found", "probes": ["x" * 9999]}
    text = message_of(StoredEvent(8, "finished", 2.5, {"answer": report, "exit_status": 0}))
    assert json.loads(text.split("data: ", 1)[1])["data"] == {"exit_status": 0, "status": "isolated", "summary": "found"}
    text = message_of(StoredEvent(9, "odd", 2.5, {"loss": float("nan"), "text": "two\nlines", "hf_token": "hunter2hunter2"}))
    assert text.count("\n") == 3 and "hunter2" not in text and '"loss":null' in text


def test_curve_of_a_long_run_stays_small_and_keeps_its_shape() -> None:
    board = LiveBoard()
    board.take("b", {"kind": "started", "key": "k"})
    for step in range(1, 10 * MAX_POINTS + 1):
        board.take("b", {"kind": "moved", "key": "k", "phase": "run", "step": step, "loss": 1.0 / step})
    runs = board.runs("b")
    assert runs is not None
    steps = [step for step, _ in runs[0].curve]
    assert MAX_POINTS // 2 < len(steps) <= MAX_POINTS and steps == sorted(steps) and steps[-1] > 9.9 * MAX_POINTS
    assert {after - before for before, after in pairwise(steps)} == {16}
    assert runs[0].step == 10 * MAX_POINTS


def test_board_takes_only_what_it_knows() -> None:
    board = LiveBoard()
    assert board.runs("b") is None and board.version("b") == 0
    for message in ({}, {"kind": "moved", "key": "k", "step": 1}, {"kind": "evil"}, {"kind": 3, "key": None}):
        board.take("b", message)
    assert board.runs("b") == () and board.version("b") == 0
    board.take("b", {"kind": "started", "key": "k"})
    board.take("b", {"kind": "gone", "key": "k"})
    assert board.runs("b") == () and board.version("b") == 2
    board.forget("b")
    assert board.runs("b") is None and board.version("b") == 3


def test_seats_are_bounded_in_all_and_by_user(tmp_path: Path) -> None:
    seats = Seats(Settings(tmp_path, max_streams=3, max_streams_per_user=2))
    seats.take("anna")
    seats.take("anna")
    for user in ("anna",):
        with pytest.raises(Refused) as caught:
            seats.take(user)
        assert caught.value.status == 429 and caught.value.headers["Retry-After"]
    seats.take("ben")
    with pytest.raises(Refused):
        seats.take("eve")
    seats.give_back("anna")
    seats.take("eve")
    assert seats.num_taken == 3
