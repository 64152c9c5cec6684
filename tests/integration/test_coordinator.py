"""The loop of a bisection on a real small repository with a virtual clock: slots, resume, reuse, cancel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator import CoordinatorEvent, ProbeGone, ProbeStarted, load_state
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.probe import ProbeJob
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.simulated_bisection import (
    Lab,
    assert_isolated,
    drive,
    essence_of,
    keys_of,
    kinds_of,
    limits,
    lossy,
    module_lab,
    stop_after,
    store_at,
)

lab = module_lab


def test_coordinator_finds_the_culprit_and_the_store_gives_the_same_answer(lab: Lab) -> None:
    store = MemoryStore()
    name, ended = drive(lab, store)
    assert_isolated(lab, ended)
    question = lab.question()
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer
    assert ended.num_probes == kinds_of(store, name)["probe_finished"] and ended.num_reused == 0
    assert len(set(keys_of(store, name, "probe_finished"))) == ended.num_probes


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_coordinator_with_any_number_of_slots_gives_the_same_culprit(lab: Lab, slots: int) -> None:
    executor = lab.executor(slots=slots)
    started: list[str] = []
    most = 0

    def listen(event: CoordinatorEvent) -> None:
        nonlocal most
        if isinstance(event, ProbeStarted):
            started.append(event.key)
        most = max(most, len(executor._running) + len(executor._queue))

    _, ended = drive(lab, MemoryStore(), executor=executor, listener=listen)
    assert_isolated(lab, ended)
    assert most == slots, "all slots are used, and no probe waits behind another one"


def test_coordinator_takes_no_more_slots_than_asked_for(lab: Lab) -> None:
    executor = lab.executor(slots=8)
    most = 0

    def listen(event: CoordinatorEvent) -> None:
        nonlocal most
        most = max(most, len(executor._running) + len(executor._queue))

    _, ended = drive(lab, MemoryStore(), question=lab.question(limits=limits(parallel=2)), executor=executor, listener=listen)
    assert_isolated(lab, ended)
    assert most == 2


def test_coordinator_cancels_probes_that_have_become_obsolete(lab: Lab) -> None:
    store = MemoryStore()
    gone: list[str] = []

    def slow_after_the_culprit(job: ProbeJob) -> SimulatedRun:
        run = lab.run_of(job)
        return replace(run, duration_s=50.0 if 10 < len(lab.parts_of(job)) < 13 else 1.0)

    def listen(event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeGone):
            gone.append(event.reason)

    executor = lab.executor(slow_after_the_culprit, slots=6)
    _, ended = drive(lab, store, executor=executor, listener=listen)
    assert_isolated(lab, ended)
    assert "obsolete" in gone
    assert executor.now_s < 50.0, "nothing waits for a probe that no longer matters"


def test_second_bisection_runs_only_repeats_and_the_proof(lab: Lab) -> None:
    store = MemoryStore()
    drive(lab, store, executor=lab.executor(slots=1))
    name, ended = drive(lab, store, executor=lab.executor(slots=1))
    assert_isolated(lab, ended)
    specs = [event.data["spec"] for event in store.events(name) if event.kind == "probe_finished"]
    assert specs and all(spec["repeat"] > 0 or spec["attempt"] > 0 for spec in specs)
    assert ended.num_reused == kinds_of(store, name)["probe_reused"] > 0


@pytest.mark.parametrize("num_started", [1, 4, 9, 13])
def test_interrupted_bisection_is_resumed_to_the_same_answer(lab: Lab, num_started: int) -> None:
    store = MemoryStore()
    _, undisturbed = drive(lab, MemoryStore())
    executor = lab.executor()
    with pytest.raises(InterruptedByUser, match="interrupted") as caught:
        drive(lab, store, executor=executor, listener=stop_after(num_started))
    assert caught.value.exit_status == 130
    name = store.list()[0].id
    assert store.load(name).status == "interrupted" and not store.is_running(name)
    assert not executor._running and not executor._queue, "nothing runs on"
    finished = set(keys_of(store, name, "probe_finished"))
    lab.ran.clear()
    _, ended = drive(lab, store, bisection_id=name)
    assert essence_of(ended) == essence_of(undisturbed)
    assert not finished & set(lab.ran), "no finished probe is run again"


def test_cancel_request_stops_the_coordinator(lab: Lab) -> None:
    store = MemoryStore()

    def listen(event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeStarted):
            store.request_cancel(store.list()[0].id)

    with pytest.raises(InterruptedByUser, match="cancelled") as caught:
        drive(lab, store, listener=listen)
    name = store.list()[0].id
    assert store.load(name).status == "cancelled" and f"resume {name}" in caught.value.hint
    _, ended = drive(lab, store, bisection_id=name)  # the old request does not stop it again
    assert_isolated(lab, ended)


def test_time_of_all_coordinators_counts(lab: Lab) -> None:
    now = iter(range(100_000))
    store = MemoryStore(clock=lambda: float(next(now)))
    with pytest.raises(InterruptedByUser):
        drive(lab, store, listener=stop_after(6))
    name = store.list()[0].id
    events = store.events(name)
    _, ended = drive(lab, store, bisection_id=name)
    assert ended.wall_s == events[-1].time_s - events[0].time_s > 0.0  # the second one's own clock stands still


def test_points_with_the_same_files_are_run_once_and_count_for_each(tmp_path: Path) -> None:
    lab = Lab.build(tmp_path, num_commits=12, culprit=6, same_tree=(5, 7, 8, 11))
    store = MemoryStore()
    name, ended = drive(lab, store, executor=lab.executor(slots=4))
    assert_isolated(lab, ended)
    assert kinds_of(store, name)["result_shared"] > 0
    started = keys_of(store, name, "probe_started")
    assert len(started) == len(set(started))
    question = lab.question()
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer


def test_coordinator_killed_after_any_event_is_resumed_to_the_same_answer(lab: Lab) -> None:
    """Each prefix of the stored events is what a kill -9 may leave behind."""
    store = MemoryStore()
    name, undisturbed = drive(lab, store, executor=lab.executor(lossy(lab, lambda job, num: num == 1 and job.id < "8")))
    num_events = len(store.events(name))
    assert num_events > 40
    for num in range(num_events):
        left = store_at(store, name, num)
        finished = set(keys_of(left, name, "probe_finished"))
        lab.ran.clear()
        _, ended = drive(lab, left, bisection_id=name)
        assert essence_of(ended) == essence_of(undisturbed), f"killed after event {num}"
        assert not finished & set(lab.ran), f"a finished probe was run again after event {num}"
