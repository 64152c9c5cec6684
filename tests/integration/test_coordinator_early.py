"""Whole bisections whose search stops runs early: the same answer, fewer steps, and no part of a run taken for a whole one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator import CoordinatorEvent, ProbeDone, ProbeGone, ProbeStarted, load_state
from bisect_train.coordinator.early import count_early
from bisect_train.coordinator.observing import count_rounds
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeJob, Rung
from bisect_train.core.question import Question
from bisect_train.store.contract import StoredProbe
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.early_curves import read_curves
from tests.support.simulated_bisection import (
    STEPS,
    Lab,
    assert_isolated,
    drive,
    essence_of,
    keys_of,
    limits,
    module_lab,
    stop_after,
    store_at,
)

lab = module_lab


def early_question(lab: Lab) -> Question:
    return lab.question(limits=limits(early=True), rung=Rung(STEPS))


def whole_question(lab: Lab) -> Question:
    return lab.question(rung=Rung(STEPS))


def early_probes(store: MemoryStore, name: str) -> list[StoredProbe]:
    return [probe for probe in store.results(name) if probe.result.fingerprint.early is not None]


@pytest.mark.parametrize("slots", [1, 2, 6])
def test_search_stops_runs_early_and_the_answer_is_the_same(lab: Lab, slots: int) -> None:
    store = MemoryStore()
    _, whole = drive(lab, MemoryStore(), question=whole_question(lab), executor=lab.executor(slots=slots))
    name, ended = drive(lab, store, question=early_question(lab), executor=lab.executor(slots=slots))
    assert_isolated(lab, ended)
    assert essence_of(ended) == essence_of(whole)
    stopped = early_probes(store, name)
    assert stopped
    for probe in stopped:
        assert not (probe.spec["attempt"] or probe.spec["repeat"] or probe.spec["part"])
        assert probe.result.fingerprint.num_steps < STEPS
    assert count_early(store.results(name), early_question(lab)) == (
        len(stopped),
        sum(STEPS - probe.result.fingerprint.num_steps for probe in stopped),
    )


def test_answer_is_read_from_the_store_and_resumed_after_any_event(lab: Lab) -> None:
    store, question = MemoryStore(), early_question(lab)
    name, ended = drive(lab, store, question=question)
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer
    events = store.events(name)
    first = min(event.seq for event in events if event.data.get("key") in {p.key for p in early_probes(store, name)})
    for num in range(first - 2, len(events), 3):
        left = store_at(store, name, num)
        done = {probe.key for probe in left.results(name)}
        lab.ran.clear()
        _, again = drive(lab, left, question=question, bisection_id=name)
        assert essence_of(again) == essence_of(ended), f"killed after event {num}"
        assert not done & set(lab.ran), "a finished probe is not run again"


def test_another_bisection_runs_whole_what_was_stopped_here(lab: Lab) -> None:
    store = MemoryStore()
    first, _ = drive(lab, store, question=early_question(lab), executor=lab.executor(slots=1))
    stopped = {probe.key for probe in early_probes(store, first)}
    second, ended = drive(lab, store, question=whole_question(lab), executor=lab.executor(slots=1))
    assert_isolated(lab, ended)
    assert stopped and not stopped & {probe.key for probe in store.results(second)}
    assert not early_probes(store, second) and keys_of(store, second, "probe_reused")
    third, _ = drive(lab, store, question=early_question(lab), executor=lab.executor(slots=1))
    assert not stopped & {probe.key for probe in store.results(third)}
    assert not early_probes(store, third), "whole runs that are known are taken in place of new ones"


def test_run_that_might_have_been_stopped_and_was_not_is_a_whole_run(lab: Lab) -> None:
    store = MemoryStore()

    def unlike_both(job: ProbeJob) -> SimulatedRun:
        run = lab.run_of(job)
        return SimulatedRun(_with_own_bits(run.fingerprint, job), run.duration_s) if job.early is not None else run

    done: list[str] = []
    begun: list[str] = []

    def listen(event: CoordinatorEvent) -> None:
        begun.extend([event.key] if isinstance(event, ProbeStarted) else [])
        done.extend([event.key] if isinstance(event, ProbeDone) and not event.is_reused else [])
        done.extend([event.key] if isinstance(event, ProbeGone) else [])

    executor = lab.executor(unlike_both, slots=2)
    name, ended = drive(lab, store, question=early_question(lab), executor=executor, listener=listen)
    assert_isolated(lab, ended)
    assert not early_probes(store, name)
    assert set(done) <= set(begun), "whoever saw a probe begin is told under the same key that it has ended"
    assert count_rounds(store.events(name)) >= ended.num_probes // 2
    second, _ = drive(lab, store, question=whole_question(lab), executor=lab.executor(slots=2))
    searched = {probe.key for probe in store.results(name) if "begun_as" in probe.spec}
    assert searched and searched & set(keys_of(store, second, "probe_reused"))


def _with_own_bits(fingerprint: Fingerprint | None, job: ProbeJob) -> Fingerprint:
    """Return the run with bits of its own: a harmless change of rounding."""
    assert fingerprint is not None
    (rank,) = fingerprint.ranks
    salt = int(job.spec.variant.id[:4], 16) * 1e-9
    steps = tuple(replace(step, loss=(step.loss or 0.0) + salt) for step in rank.steps)
    return replace(fingerprint, ranks=(replace(rank, steps=steps),))


def test_interrupted_while_runs_may_be_stopped_goes_on(lab: Lab) -> None:
    store, question = MemoryStore(), early_question(lab)
    name = store.create(question.to_json(), title="simulated")
    with pytest.raises(InterruptedByUser):
        drive(lab, store, question=question, bisection_id=name, listener=stop_after(10))
    _, ended = drive(lab, store, question=question, bisection_id=name)
    assert_isolated(lab, ended)


# ---- runs that never repeat themselves ----------------------------------------------------------------------------------


class NoisyRuns:
    """Gives each probe a recorded training of its kind; no two probes get the same one, until all were given."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._curves = read_curves()
        self.num_steps = len(self._curves["good"][0])
        self._order: dict[str, int] = {}

    def __call__(self, job: ProbeJob) -> SimulatedRun:
        runs = self._curves["bad" if self._lab.level_of(job) > 1.5 else "good"]
        chosen = self._order.setdefault(job.id, len(self._order)) % len(runs)
        steps = tuple(StepRecord(idx, loss=loss, step_s=0.06) for idx, loss in enumerate(runs[chosen]))
        return SimulatedRun(Fingerprint(Ending(EndingKind.STOPPED), (RankRecord(0, steps),)), 10.0)


def test_real_noisy_runs_are_stopped_early_and_the_answer_is_the_same(tmp_path: Path) -> None:
    lab = Lab.build(tmp_path, num_commits=18, culprit=11)
    runs = NoisyRuns(lab)
    for is_early in (False, True):
        store = MemoryStore()
        question = lab.question(limits=limits(early=is_early), rung=Rung(runs.num_steps))
        name, ended = drive(lab, store, question=question, executor=lab.executor(runs, slots=1))
        assert_isolated(lab, ended)
        stopped = [probe.result.fingerprint for probe in early_probes(store, name)]
        assert bool(stopped) == is_early
        for fingerprint in stopped:
            assert fingerprint.early is not None and fingerprint.early.how == "curve"
            assert fingerprint.num_steps < 0.6 * runs.num_steps
