"""A whole bisection on its ladder: it climbs where nothing shows, keeps the cheapest rung that does, and resumes anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bisect_train.coordinator import Coordinator, CoordinatorEvent, Ended
from bisect_train.coordinator.climb import RUNG_TAKEN, rung_in_force, rungs_left
from bisect_train.coordinator.events import ProbeDone, RungTaken
from bisect_train.coordinator.observing import load_state, of_rung
from bisect_train.core.errors import InputError
from bisect_train.core.executor import Executor
from bisect_train.core.probe import ProbeJob, Rung, RunSettings
from bisect_train.core.question import Question
from bisect_train.shrink.ladder import make_ladder
from bisect_train.shrink.moves import after_settling, weigh_trial
from bisect_train.store.contract import PROBE_FINISHED, Store
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.git_repos import question_of
from tests.support.simulated_bisection import Lab, assert_isolated, essence_of, fingerprint_of, limits, store_at

LADDER = make_ladder((4, 16, 64), (1,))
Levels = Callable[[Rung], tuple[float, float]]


def laddered(lab: Lab, *, ladder: tuple[Rung, ...] = LADDER) -> Question:
    return lab.question(ladder=ladder, rung=ladder[0])


def climb(
    lab: Lab,
    store: Store,
    question: Question,
    *,
    name: str = "",
    executor: Executor,
    events: list[CoordinatorEvent] | None = None,
) -> tuple[str, Ended]:
    """Run or resume a bisection on a ladder, as the command line does."""
    name = name or store.create(question.to_json(), title="simulated")
    asked = rung_in_force(question, store.events(name))
    with store.lock(name):
        coordinator = Coordinator(
            asked,
            bisection_id=name,
            space=lab.space(asked),
            store=store,
            executor=executor,
            listener=(events if events is not None else []).append,
            clock=lambda: 0.0,
            respace=lab.space,
        )
        return name, coordinator.run()


def script(lab: Lab, *, shows_from: int, job: ProbeJob) -> SimulatedRun:
    """The culprit shows on rungs of at least so many steps; a probe takes as many seconds as steps."""
    steps = job.spec.rung.steps or 1000
    level = lab.level_of(job) if steps >= shows_from else 1.0
    fingerprint = fingerprint_of(level, seed_idx=job.spec.seed_idx, salt=f"{steps}{lab.parts_of(job) if level > 1.0 else ''}")
    return SimulatedRun(fingerprint, duration_s=float(steps))


def rungs_run(store: Store, name: str) -> Counter[str]:
    return Counter(event.data["spec"]["rung"] for event in store.events(name) if event.kind == PROBE_FINISHED)


def test_climb_keeps_the_cheapest_rung_where_the_ends_differ(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    name, ended = climb(lab, store, laddered(lab), executor=lab.executor(partial(script_of, lab, 1), slots=1))
    assert_isolated(lab, ended)
    assert set(rungs_run(store, name)) == {LADDER[0].name}
    assert ended.question.rung == LADDER[0]


def script_of(lab: Lab, shows_from: int, job: ProbeJob) -> SimulatedRun:
    return script(lab, shows_from=shows_from, job=job)


@pytest.mark.parametrize(("shows_from", "idx"), [(16, 1), (64, 2)])
def test_climb_grows_until_the_ends_differ_and_finds_the_culprit_there(tmp_path: Path, shows_from: int, idx: int) -> None:
    lab, store, events = Lab.build(tmp_path), MemoryStore(), list[CoordinatorEvent]()
    executor = lab.executor(partial(script_of, lab, shows_from), slots=1)
    name, ended = climb(lab, store, laddered(lab), executor=executor, events=events)
    assert_isolated(lab, ended)
    assert ended.question.rung == LADDER[idx]
    taken = [event for event in events if isinstance(event, RungTaken)]
    assert [event.question.rung for event in taken] == list(LADDER[1 : idx + 1])
    counts = rungs_run(store, name)
    assert all(counts[rung.name] <= 8 for rung in LADDER[:idx]), counts
    left = rungs_left(ended.question, store.events(name), store.results(name))
    assert [(item.name, item.num_probes) for item in left] == [(rung.name, counts[rung.name]) for rung in LADDER[:idx]]


def test_climb_without_a_regression_answers_on_the_last_rung_only(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    name, ended = climb(lab, store, laddered(lab), executor=lab.executor(partial(script_of, lab, 1000), slots=1))
    assert ended.answer.status == "no_regression"
    assert ended.question.rung == LADDER[-1]
    assert len(rungs_run(store, name)) == 3


def test_free_workers_begin_with_the_ends_of_the_next_rung_and_those_runs_count_there(tmp_path: Path) -> None:
    lab, store, events = Lab.build(tmp_path), MemoryStore(), list[CoordinatorEvent]()
    executor = lab.executor(partial(script_of, lab, 16), slots=16)
    name, ended = climb(lab, store, laddered(lab), executor=executor, events=events)
    assert_isolated(lab, ended)
    position = next(at for at, event in enumerate(events) if isinstance(event, RungTaken))
    ahead = [event for event in events[:position] if isinstance(event, ProbeDone) and event.rung]
    submitted = Counter(executor.submitted)
    assert max(submitted.values()) == 1, "what ran ahead was run again"
    assert ended.num_probes == sum(rungs_run(store, name).values())
    assert all(event.rung == LADDER[1].name for event in ahead)


def test_what_runs_ahead_is_cancelled_once_the_ends_differ_on_the_cheap_rung(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    executor = lab.executor(partial(script_of, lab, 1), slots=16)
    name, ended = climb(lab, store, laddered(lab), executor=executor)
    assert_isolated(lab, ended)
    assert set(rungs_run(store, name)) == {LADDER[0].name}


def test_runs_of_one_rung_are_no_evidence_on_another(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    name, ended = climb(lab, store, laddered(lab), executor=lab.executor(partial(script_of, lab, 16), slots=1))
    state = load_state(store, name, ended.question)
    assert state.probes == of_rung(store.results(name), ended.question)
    assert len(state.probes) < len(store.results(name))
    plan = state.plan(ended.question, ended.space)
    assert plan.answer is not None and plan.answer.status == "isolated"


def test_a_climb_that_is_killed_after_any_event_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path, num_commits=8, culprit=5), MemoryStore()
    question = laddered(lab)
    name, whole = climb(lab, store, question, executor=lab.executor(partial(script_of, lab, 16), slots=2))
    num_events = len(store.events(name))
    assert any(event.kind == RUNG_TAKEN for event in store.events(name))
    for num in range(1, num_events, 3):
        copy = store_at(store, name, num)
        executor = lab.executor(partial(script_of, lab, 16), slots=2)
        _, again = climb(lab, copy, question, name=name, executor=executor)
        assert essence_of(again) == essence_of(whole), f"killed after {num} events"
        known = {event.data["key"] for event in store.events(name)[:num] if event.kind == PROBE_FINISHED}
        assert not known.intersection(executor.submitted), "a finished probe was run again"


def test_probes_of_all_rungs_count_against_the_limit(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    question = replace(laddered(lab), limits=limits(max_probes=12))
    name, ended = climb(lab, store, question, executor=lab.executor(partial(script_of, lab, 64), slots=1))
    assert ended.answer.status == "budget"
    assert sum(rungs_run(store, name).values()) == 12


def test_question_on_another_rung_has_its_overrides_ranks_and_cpus() -> None:
    ladder = (Rung(10, 1, ("accum=8",)), Rung(10, 4, ("accum=2",)))
    command = ("python", "train.py", "accum=8", "{overrides}")

    asked = replace(question_of("a" * 40, "b" * 40), ladder=ladder, rung=ladder[0], command=command, cpus_follow_ranks=True)
    above = asked.at_rung(1)
    assert above.command == ("python", "train.py", "accum=2", "{overrides}")
    assert (above.rung.ranks, above.settings.cpus) == (4, asked.settings.cpus + 3)
    assert above.at_rung(0) == asked
    assert Question.of_json(above.to_json()) == above


def test_a_trial_that_promised_too_much_goes_back_to_the_rung_whose_ends_differ() -> None:
    move = weigh_trial(LADDER, 0, low_cost=1.0, high_cost=1.5, low_sd=3.1, high_sd=7.7)
    assert (move.idx, move.fall_back) == (1, 0)
    back = after_settling(LADDER, 1, status="no_regression", fall_back=move.fall_back)
    assert back is not None and (back.idx, back.is_settled, back.fall_back) == (0, True, None)
    assert after_settling(LADDER, 1, status="isolated", fall_back=0) is None
    assert after_settling(LADDER, 0, status="no_regression", fall_back=None) is None


class SmallMachine(SimulatedExecutor):
    """A machine with one CPU: it refuses what Ray could never place."""

    def adopt(self, settings: RunSettings) -> None:
        if settings.cpus > 1.0:
            raise InputError("no node has the CPUs of one probe")

    def submit(self, job: ProbeJob) -> None:
        self.adopt(job.settings)
        super().submit(job)


@pytest.mark.parametrize("slots", [1, 16])
@pytest.mark.parametrize(("shows_from", "status"), [(1, "isolated"), (1000, "no_regression")])
def test_a_rung_that_no_node_has_room_for_takes_nothing_from_the_answer_of_a_smaller_one(
    tmp_path: Path, slots: int, shows_from: int, status: str
) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    ladder = make_ladder((4,), (1, 8))
    question = replace(laddered(lab, ladder=ladder), cpus_follow_ranks=True)
    executor = SmallMachine(partial(script_of, lab, shows_from), slots=slots)
    name, ended = climb(lab, store, question, executor=executor)
    assert ended.answer.status == status
    assert ended.question.rung == ladder[0]
    assert not any(event.kind == RUNG_TAKEN for event in store.events(name))
