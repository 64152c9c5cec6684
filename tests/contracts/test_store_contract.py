"""What every store promises; each test runs on each implementation."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import (
    Ending,
    EndingKind,
    Event,
    Fingerprint,
    JudgeResult,
    MetricSeries,
    RankRecord,
    StepRecord,
)
from bisect_train.core.probe import ProbeResult
from bisect_train.store import MemoryStore, SqlStore, Store

MakeStore = Callable[[Callable[[], float]], Store]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    made: list[Store] = []
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()

    def make(clock: Callable[[], float]) -> Store:
        made.append(MemoryStore(clock=clock) if request.param == "memory" else SqlStore(url, clock=clock))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    ticks = itertools.count(1_700_000_000, 10)
    return make_store(lambda: float(next(ticks)))


def result_of(job_id: str, loss: float = 1.5) -> ProbeResult:
    step = StepRecord(step=0, loss=loss, micro=(loss, 0.1), lr=(0.1,), dtypes=("float32",), param_hash="ab")
    fingerprint = Fingerprint(
        Ending(EndingKind.CRASHED, "ValueError: x", "x \ud800 \0 é", exit_status=1),
        ranks=(RankRecord(0, (step,), (Event("start", None, {"a": [1, None]}),)),),
        metrics=(MetricSeries("val", (math.inf, -math.inf, 2.0), (1, 2, 3)),),
        judge=JudgeResult(3, "no"),
        facts=(("torch", "2.5"),),
    )
    return ProbeResult(job_id, fingerprint, 2.5, "tail \ud800", (("rank0", "stack"),), ("warned",), "node1")


def test_create_then_load_returns_the_question(store: Store) -> None:
    new = store.create({"command": ["python"], "x": math.inf, "n": None}, title="a title \ud800")
    loaded = store.load(new)
    assert loaded.question == {"command": ["python"], "x": math.inf, "n": None}
    assert (loaded.id, loaded.status, loaded.answer) == (new, "created", None)
    assert loaded.title == "a title ?"
    assert loaded.created_s == 1_700_000_000.0
    assert len(new) == 8


def test_create_within_one_second_gives_different_ids_in_order(make_store: MakeStore) -> None:
    store = make_store(lambda: 1_700_000_000.25)
    ids = [store.create({}, title=str(idx)) for idx in range(20)]
    assert len(set(ids)) == 20
    assert ids == sorted(ids)
    assert [item.title for item in store.list()] == [str(idx) for idx in reversed(range(20))]


def test_load_by_prefix_last_and_whole_id(make_store: MakeStore) -> None:
    times = iter([float(0x10000000), float(0x20000000), float(0x20000001)])
    store = make_store(lambda: next(times))
    ids = [store.create({}, title="") for _ in range(3)]
    assert store.load("1").id == ids[0]
    assert store.load("20000001").id == store.load("last").id == ids[2]
    with pytest.raises(InputError, match=r"ambiguous.*2 bisections") as caught:
        store.load("2")
    assert "bisect-train list" in caught.value.hint
    for unknown in ("3", "", "zz", "%", "_"):
        with pytest.raises(InputError, match="no bisection"):
            store.load(unknown)


def test_load_last_of_an_empty_store_is_an_input_error(store: Store) -> None:
    assert store.list() == ()
    with pytest.raises(InputError, match="'last'"):
        store.load("last")


def test_append_numbers_events_from_one_per_bisection(store: Store) -> None:
    first, second = store.create({}, title="a"), store.create({}, title="b")
    assert [store.append(first, "note", {"i": idx}) for idx in range(3)] == [1, 2, 3]
    assert store.append(second, "note", {}) == 1
    assert [(event.seq, event.data["i"]) for event in store.events(first, after=1)] == [(2, 1), (3, 2)]
    assert [event.kind for event in store.events(second)] == ["note"]
    assert store.events(first, after=3) == ()


def test_events_keep_nan_and_infinity(store: Store) -> None:
    new = store.create({}, title="")
    store.append(new, "note", {"nan": math.nan, "inf": [-math.inf], "text": "\0\ud800", "tuple": (1,)})
    data = store.events(new)[0].data
    assert math.isnan(data["nan"])
    assert (data["inf"], data["text"], data["tuple"]) == ([-math.inf], "\0\ud800", [1])


def test_changing_what_was_given_or_returned_changes_nothing_stored(store: Store) -> None:
    data = {"list": [1]}
    new = store.create(data, title="")
    store.append(new, "note", data)
    data["list"].append(2)
    store.events(new)[0].data["list"].append(3)
    store.load(new).question["list"].append(4)
    assert store.events(new)[0].data == store.load(new).question == {"list": [1]}


def test_data_that_is_not_json_is_refused_and_leaves_no_event(store: Store) -> None:
    new = store.create({}, title="")
    with pytest.raises(TypeError):
        store.append(new, "note", {"x": object()})
    with pytest.raises(TypeError):
        store.save_result(new, "k", result_of("k"), spec={"x": object()})
    assert store.events(new) == ()
    assert store.find_result("k") is None


def test_events_come_in_pages(store: Store) -> None:
    new = store.create({}, title="")
    for idx in range(5):
        store.append(new, "note", {"i": idx})
    assert [event.seq for event in store.events(new, limit=2)] == [1, 2]
    assert [event.seq for event in store.events(new, after=2, limit=2)] == [3, 4]
    assert [event.seq for event in store.events(new, after=4, limit=2)] == [5]
    assert store.events(new, after=5, limit=2) == store.events(new, limit=0) == ()


def test_bisections_come_in_pages(make_store: MakeStore) -> None:
    times = iter([1e9, 2e9, 2e9, 2e9, 3e9, 4e9])
    store = make_store(lambda: next(times))
    ids = [store.create({}, title="") for _ in range(5)][::-1]
    part = store.create({"part_of": ids[0]}, title="a part")
    assert [item.id for item in store.page(limit=3)] == [part, *ids[:2]]
    assert [item.id for item in store.page(limit=3, parts=False)] == ids[:3]
    seen: list[str] = []
    while page := store.page(limit=2, before=seen[-1] if seen else None):
        assert len(page) <= 2
        seen += [item.id for item in page]
    assert seen == [item.id for item in store.list()] == [part, *ids]
    assert store.page(before=ids[-1]) == ()
    with pytest.raises(InputError, match="no bisection"):
        store.page(before="00000000")


def test_page_has_status_and_answer(store: Store) -> None:
    first, second = store.create({}, title=""), store.create({}, title="")
    store.append(first, "started", {})
    store.append(first, "finished", {"answer": {"status": "isolated"}})
    assert [(item.id, item.status, item.answer) for item in store.page()] == [
        (second, "created", None),
        (first, "finished", {"status": "isolated"}),
    ]


def test_updates_name_each_bisection_once_with_its_last_number(store: Store) -> None:
    assert store.updates(0) == () and store.last_update() == 0
    first, second = store.create({}, title=""), store.create({}, title="")
    known = store.last_update()
    assert [item.bisection_id for item in store.updates(0)] == [first, second]
    assert store.updates(known) == ()
    store.append(second, "note", {})
    store.save_result(first, "aa", result_of("aa"), spec={})
    store.save_result(first, "aa", result_of("aa"), spec={})  # nothing new
    store.append(second, "note", {})
    news = store.updates(known)
    assert [item.bisection_id for item in news] == [first, second]
    assert known < news[0].number < news[1].number == store.last_update()
    assert store.updates(known, limit=1) == news[:1]
    store.request_cancel(first)
    store.reuse_result(second, "aa", {})
    assert [item.bisection_id for item in store.updates(news[1].number)] == [first, second]
    assert store.updates(store.last_update()) == ()


def test_who_watches_while_threads_write_misses_nothing(store: Store) -> None:
    ids = [store.create({}, title="") for _ in range(4)]
    seen, number, is_over = dict.fromkeys(ids, 0), 0, threading.Event()

    def work(name: str) -> None:
        for _ in range(15):
            store.append(name, "note", {})

    def look() -> int:
        news = store.updates(number, limit=3)
        for item in news:
            seen[item.bisection_id] += len(store.events(item.bisection_id, after=seen[item.bisection_id]))
        return news[-1].number if news else number

    threads = [threading.Thread(target=work, args=(name,)) for name in ids]
    for thread in threads:
        thread.start()
    while not is_over.is_set():
        if not any(thread.is_alive() for thread in threads):
            is_over.set()
        number = look()
    while (after := look()) != number:
        number = after
    assert seen == dict.fromkeys(ids, 15)


def test_unknown_bisection_is_an_input_error_everywhere(store: Store) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.append("00000000", "note", {}),
        lambda: store.events("00000000"),
        lambda: store.save_result("00000000", "k", result_of("k"), spec={}),
        lambda: store.reuse_result("00000000", "k", {}),
        lambda: store.results("00000000"),
        lambda: store.lock("00000000").__enter__(),
        lambda: store.is_running("00000000"),
        lambda: store.request_cancel("00000000"),
        lambda: store.cancel_requested("00000000"),
    ]
    for call in calls:
        with pytest.raises(InputError, match="no bisection '00000000'"):
            call()
    assert store.find_result("k") is None


def test_save_result_gives_it_back_exactly_and_appends_one_event(store: Store) -> None:
    new = store.create({}, title="")
    store.save_result(new, "aa11", result_of("aa11"), spec={"seed": 1})
    assert store.find_result("aa11") == result_of("aa11")
    (event,) = store.events(new)
    assert (event.kind, event.data) == ("probe_finished", {"key": "aa11", "spec": {"seed": 1}})
    (probe,) = store.results(new)
    assert (probe.key, probe.bisection_id, probe.spec, probe.time_s) == ("aa11", new, {"seed": 1}, event.time_s)
    assert probe.result == result_of("aa11")


def test_save_result_keeps_nan(store: Store) -> None:
    new = store.create({}, title="")
    store.save_result(new, "aa", result_of("aa", math.nan), spec={})
    found = store.find_result("aa")
    assert found is not None
    assert math.isnan(found.fingerprint.ranks[0].steps[0].loss or 0.0)


def test_save_result_of_a_key_that_counts_already_changes_nothing(store: Store) -> None:
    new = store.create({}, title="")
    store.save_result(new, "aa", result_of("aa", 1.0), spec={"n": 1})
    store.save_result(new, "aa", result_of("aa", 2.0), spec={"n": 2})
    store.reuse_result(new, "aa", {"n": 3})
    assert len(store.events(new)) == 1
    assert [probe.result for probe in store.results(new)] == [result_of("aa", 1.0)]


def test_reuse_result_counts_in_both_and_keeps_what_was_seen(store: Store) -> None:
    first, second, third = (store.create({}, title="") for _ in range(3))
    store.save_result(first, "aa", result_of("aa", 1.0), spec={"n": 1})
    store.save_result(second, "bb", result_of("bb", 5.0), spec={"n": 5})
    store.reuse_result(second, "aa", {"n": 2})
    store.save_result(third, "aa", result_of("aa", 9.0), spec={"n": 9})
    assert store.find_result("aa") == result_of("aa", 1.0)
    seen = [(probe.key, probe.spec["n"], probe.result) for probe in store.results(second)]
    assert seen == [("bb", 5, result_of("bb", 5.0)), ("aa", 2, result_of("aa", 1.0))]
    assert store.events(second)[-1].kind == "probe_reused"
    assert [probe.result for probe in store.results(third)] == [result_of("aa", 9.0)]
    assert {probe.bisection_id for probe in store.results(second)} == {second}


def test_reuse_result_of_an_unknown_key_is_an_input_error(store: Store) -> None:
    new = store.create({}, title="")
    with pytest.raises(InputError, match="no result"):
        store.reuse_result(new, "aa", {})
    assert store.events(new) == ()


def test_find_probe_by_prefix(store: Store) -> None:
    first, second = store.create({}, title=""), store.create({}, title="")
    store.save_result(first, "aa11", result_of("aa11"), spec={"n": 1})
    store.save_result(second, "aa22", result_of("aa22"), spec={"n": 2})
    store.reuse_result(second, "aa11", {"n": 3})
    found = store.find_probe("aa1")
    assert (found.key, found.bisection_id, found.spec) == ("aa11", first, {"n": 1})
    with pytest.raises(InputError, match="ambiguous"):
        store.find_probe("aa")
    for unknown in ("b", "", "%", "a_11"):
        with pytest.raises(InputError, match="no probe"):
            store.find_probe(unknown)


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([], "created"),
        (["note"], "created"),
        (["started", "note"], "running"),
        (["started", "interrupted"], "interrupted"),
        (["started", "interrupted", "started"], "running"),
        (["started", "cancel_requested", "cancelled"], "cancelled"),
        (["started", "finished", "note"], "finished"),
        (["started", "finished", "started"], "running"),
        (["started", "finished", "marked"], "changed"),
        (["started", "interrupted", "undone", "note"], "changed"),
        (["started", "finished", "undone", "started"], "running"),
    ],
)
def test_status_follows_the_last_lifecycle_event(store: Store, kinds: list[str], status: str) -> None:
    new = store.create({}, title="")
    for kind in kinds:
        store.append(new, kind, {"answer": {"status": "isolated"}} if kind == "finished" else {})
    loaded = store.load(new)
    assert loaded.status == status == store.list()[0].status
    assert loaded.answer == ({"status": "isolated"} if status == "finished" else None)


def test_cancel_request_holds_until_the_next_start(store: Store) -> None:
    new = store.create({}, title="")
    store.append(new, "started", {})
    assert not store.cancel_requested(new)
    store.request_cancel(new)
    assert store.cancel_requested(new)
    store.append(new, "cancelled", {})
    assert store.cancel_requested(new)
    store.append(new, "started", {})
    assert not store.cancel_requested(new)


def test_lock_lets_one_coordinator_in_per_bisection(store: Store) -> None:
    first, second = store.create({}, title=""), store.create({}, title="")
    assert not store.is_running(first)
    with store.lock(first):
        assert store.is_running(first)
        assert not store.is_running(second)
        with pytest.raises(InputError, match=f"bisection {first} is being run"), store.lock(first):
            pass
        assert store.is_running(first)
        with store.lock(second):
            store.append(first, "note", {})
    assert not store.is_running(first)
    with store.lock(first):
        pass


def test_lock_is_given_back_after_an_exception(store: Store) -> None:
    new = store.create({}, title="")
    with pytest.raises(ZeroDivisionError), store.lock(new):
        raise ZeroDivisionError
    assert not store.is_running(new)


def test_threads_append_without_gaps(store: Store) -> None:
    new = store.create({}, title="")
    numbers: list[int] = []

    def work() -> None:
        numbers.extend([store.append(new, "note", {}) for _ in range(10)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 41))


def test_close_can_be_called_twice(store: Store) -> None:
    store.close()
    store.close()
