"""What every log of nightly watches promises; each test runs on each implementation."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bisect_train.core.errors import InputError
from bisect_train.store import SqlStore
from bisect_train.store.nightly_contract import NightlyLog
from bisect_train.store.nightly_memory import MemoryNightlyLog

MakeLog = Callable[[], NightlyLog]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def make_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLog]:
    """Gives one log again and again, through connections of their own where there are any."""
    ticks = itertools.count(1_700_000_000, 10)
    stores: list[SqlStore] = []
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    memory = MemoryNightlyLog(clock=lambda: float(next(ticks)))

    def make() -> NightlyLog:
        if request.param == "memory":
            return memory
        stores.append(SqlStore(url, clock=lambda: float(next(ticks))))
        return stores[-1].nightly()

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def log(make_log: MakeLog) -> NightlyLog:
    return make_log()


def test_watch_is_made_once_and_keeps_what_it_is_about(log: NightlyLog) -> None:
    made = log.open("main", {"branch": "main"})
    again = log.open("main", {"branch": "other"})
    assert made == again and again.about == {"branch": "main"}
    log.open("b", {})
    assert [item.name for item in log.watches()] == ["b", "main"]


def test_events_are_numbered_without_gaps_and_come_back_as_they_went(log: NightlyLog) -> None:
    log.open("main", {})
    log.open("other", {})
    assert log.append("main", [("begun", {"night": 1}), ("good", {"commit": "a", "x": math.inf, "t": (1, None)})]) == 2
    assert log.append("other", [("begun", {})]) == 1
    assert log.append("main", [("ended", {"summary": "\ud800"})]) == 3
    events = log.events("main")
    assert [(event.seq, event.kind) for event in events] == [(1, "begun"), (2, "good"), (3, "ended")]
    assert events[1].data == {"commit": "a", "x": math.inf, "t": [1, None]} and events[2].data == {"summary": "\ud800"}
    assert [event.seq for event in log.events("main", after=2)] == [3] and log.events("main", after=3) == ()
    assert events[0].time_s >= 1_700_000_000.0


def test_values_that_are_no_json_leave_nothing_behind(log: NightlyLog) -> None:
    log.open("main", {})
    with pytest.raises(TypeError):
        log.append("main", [("good", {}), ("bad", {"x": object()})])
    assert log.events("main") == ()


@pytest.mark.parametrize("name", ["", "-x", "a/b", "a b", "x" * 65, "../x", "a\n"])
def test_what_can_be_no_name_is_refused(log: NightlyLog, name: str) -> None:
    with pytest.raises(InputError, match="no name of a watch"):
        log.open(name, {})


def test_unknown_watch_is_named_with_those_there_are(log: NightlyLog) -> None:
    log.open("main", {})
    for call in (log.watch, log.events, log.lock):
        with pytest.raises(InputError, match="there is no watch 'nothing'") as caught:
            call("nothing")  # type: ignore[operator]
        assert "main" in caught.value.hint
    with pytest.raises(InputError, match="there is no watch 'nothing'"):
        log.append("nothing", [("begun", {})])


def test_second_one_is_kept_out_and_the_next_one_is_let_in(make_log: MakeLog) -> None:
    first, second = make_log(), make_log()
    first.open("main", {})
    first.open("other", {})
    with first.lock("main"):
        with pytest.raises(InputError, match="is being watched by"), second.lock("main"):
            pass
        with second.lock("other"):
            pass
        assert second.append("main", [("expected", {"commit": "a"})]) == 1, "who reads or labels needs no lock"
    with second.lock("main"):
        pass


def test_many_writers_at_once_lose_nothing(make_log: MakeLog) -> None:
    logs = [make_log() for _ in range(4)]
    logs[0].open("main", {})

    def write(log: NightlyLog, number: int) -> None:
        for idx in range(10):
            log.append("main", [("a", {"by": number, "idx": idx}), ("b", {"by": number, "idx": idx})])

    threads = [threading.Thread(target=write, args=(log, number)) for number, log in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = logs[0].events("main")
    assert [event.seq for event in events] == list(range(1, 81))
    pairs = [(first.data, second.data) for first, second in zip(events[::2], events[1::2], strict=True)]
    assert all(first == second for first, second in pairs), "events that were appended together lie together"
