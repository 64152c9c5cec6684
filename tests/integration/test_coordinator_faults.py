"""What the loop of a bisection makes of lost probes, killed programs, judges, and results that cannot be trusted."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator import load_state
from bisect_train.core.errors import InterruptedByUser, JudgeError
from bisect_train.core.fingerprint import Ending, EndingKind, JudgeResult
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings
from bisect_train.core.question import Limits
from bisect_train.core.verdict import Criterion
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.simulated_bisection import (
    Lab,
    assert_isolated,
    drive,
    fingerprint_of,
    keys_of,
    kinds_of,
    lossy,
    module_lab,
    stop_after,
)

lab = module_lab


def test_lost_probe_is_run_again(lab: Lab) -> None:
    store = MemoryStore()
    name, ended = drive(lab, store, executor=lab.executor(lossy(lab, lambda job, num: num <= 2)))
    assert_isolated(lab, ended)
    lost = Counter(keys_of(store, name, "probe_lost"))
    assert {lost[key] for key in keys_of(store, name, "probe_finished")} == {2}
    assert kinds_of(store, name)["given_up"] == 0


def test_probe_lost_three_times_is_untestable_and_blames_nobody(lab: Lab) -> None:
    store = MemoryStore()
    executor = lab.executor(lossy(lab, lambda job, num: len(lab.parts_of(job)) == lab.culprit + 1))
    name, ended = drive(lab, store, executor=executor)
    lost = Counter(keys_of(store, name, "probe_lost"))
    assert lost and set(lost.values()) == {3}
    assert ended.answer.status == "candidates"
    space = lab.space(lab.question())
    named = {space.changes[idx].id for idx, _ in ended.answer.candidates}
    assert {lab.commits[lab.culprit], lab.commits[lab.culprit + 1]} <= named
    question = lab.question()
    assert load_state(store, name, question).plan(question, space).answer == ended.answer


def test_end_that_is_always_lost_is_a_failure_not_a_verdict(lab: Lab) -> None:
    executor = lab.executor(lossy(lab, lambda job, num: lab.culprit in lab.parts_of(job)))
    _, ended = drive(lab, MemoryStore(), executor=executor)
    assert (ended.answer.status, ended.answer.end) == ("failed", "bad")
    assert "the node died" in ended.answer.reason


def ended_by(lab: Lab, number: int, *, tries: int) -> Callable[[ProbeJob], SimulatedRun]:
    """Return a script whose probes end by a signal at their first tries."""
    seen: Counter[str] = Counter()

    def script(job: ProbeJob) -> SimulatedRun:
        seen[job.id] += 1
        if seen[job.id] > tries:
            return lab.run_of(job)
        ending = Ending(EndingKind.KILLED, f"killed: {number}", signal=number)
        return SimulatedRun(fingerprint_of(1.0, seed_idx=0, ending=ending))

    return script


def test_probe_killed_from_outside_is_run_again(lab: Lab) -> None:
    store = MemoryStore()
    name, ended = drive(lab, store, executor=lab.executor(ended_by(lab, signal.SIGKILL, tries=2)))
    assert_isolated(lab, ended)
    assert all("killed by signal 9" in event.data["reason"] for event in store.events(name) if event.kind == "probe_lost")


def test_segmentation_fault_is_the_programs_own_and_is_not_run_again(lab: Lab) -> None:
    store = MemoryStore()

    def script(job: ProbeJob) -> SimulatedRun:
        if lab.culprit not in lab.parts_of(job):
            return lab.run_of(job)
        ending = Ending(EndingKind.KILLED, "killed: SIGSEGV", signal=signal.SIGSEGV)
        return SimulatedRun(fingerprint_of(1.0, seed_idx=0, ending=ending))

    name, ended = drive(lab, store, executor=lab.executor(script))
    assert_isolated(lab, ended)
    assert kinds_of(store, name)["probe_lost"] == 0


def test_reused_results_that_a_fresh_repeat_contradicts_are_dropped(lab: Lab) -> None:
    """Data outside git changed: yesterday every commit trained well, today the culprit shows."""
    store = MemoryStore()

    def yesterday(job: ProbeJob) -> SimulatedRun:
        return SimulatedRun(fingerprint_of(1.0, seed_idx=job.spec.seed_idx, salt=job.spec.variant.tree))

    drive(lab, store, executor=lab.executor(yesterday, slots=1))
    name, ended = drive(lab, store, executor=lab.executor(slots=1))
    assert_isolated(lab, ended)
    assert kinds_of(store, name)["reuse_distrusted"] == 1
    question = lab.question()
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer


def test_no_result_is_reused_where_that_was_asked(lab: Lab) -> None:
    store = MemoryStore()
    drive(lab, store, executor=lab.executor(slots=1))
    question = lab.question(limits=Limits(reuse=False))
    name, ended = drive(lab, store, question=question, executor=lab.executor(slots=1))
    assert_isolated(lab, ended)
    assert kinds_of(store, name)["probe_reused"] == 0


@pytest.mark.parametrize("kind", [EndingKind.TIMEOUT, EndingKind.OUT_OF_MEMORY, EndingKind.KILLED, EndingKind.CANNOT_START])
def test_result_that_depends_on_limits_or_the_machine_is_not_reused(lab: Lab, kind: EndingKind) -> None:
    store = MemoryStore()

    def script(job: ProbeJob) -> SimulatedRun:
        return SimulatedRun(fingerprint_of(1.0, seed_idx=0, ending=Ending(kind, "sig", signal=9)))

    drive(lab, store, executor=lab.executor(script))
    name, ended = drive(lab, store)
    assert_isolated(lab, ended)
    assert kinds_of(store, name)["probe_reused"] == 0


def test_results_of_another_machine_are_never_mixed_in(lab: Lab) -> None:
    store = MemoryStore()
    other = MachineFacts("another CPU", "simulated", 1)

    def opposite(job: ProbeJob) -> SimulatedRun:
        return SimulatedRun(fingerprint_of(3.0 - lab.level_of(job), seed_idx=job.spec.seed_idx))

    stopper = stop_after(7)
    with pytest.raises(InterruptedByUser):
        drive(lab, store, executor=lab.executor(opposite, facts=other), listener=stopper)
    first = store.list()[0].id
    assert kinds_of(store, first)["probe_finished"] > 1
    name, ended = drive(lab, store, bisection_id=first)  # goes on elsewhere
    assert_isolated(lab, ended)
    question = lab.question()
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer
    _, again = drive(lab, store)  # and a new one
    assert_isolated(lab, again)


def test_variants_that_cannot_be_built_leave_the_answer_honest(tmp_path: Path) -> None:
    lab = Lab.build(tmp_path, num_commits=8, culprit=4)
    lab.repo.commit({"train.py": "all of it is new\n"}, message="rewrite")  # the culprit cannot be left out any more
    lab.commits.append(lab.repo.head)
    levels = lab.level_of
    lab.level_of = lambda job: levels(job) if lab.parts_of(job) else 2.0  # type: ignore[method-assign]
    store = MemoryStore()
    name, ended = drive(lab, store)
    points = [event.data["point"] for event in store.events(name) if event.kind == "unbuildable"]
    assert any("-" in point for point in points)
    assert_isolated(lab, ended)
    assert ended.answer.culprits[0].is_necessary is None
    question = lab.question()
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer


JUDGED = RunSettings(python="python", judge=("python", "judge.py"), needs_recorder=False)


def judged_by(lab: Lab, status_of: Callable[[ProbeJob], int]) -> Callable[[ProbeJob], SimulatedRun]:
    def script(job: ProbeJob) -> SimulatedRun:
        run = lab.run_of(job)
        assert run.fingerprint is not None
        judge = JudgeResult(status_of(job), "judge.py: no such file")
        return replace(run, fingerprint=replace(run.fingerprint, judge=judge))

    return script


@pytest.mark.parametrize("status", [126, 127])
def test_judge_that_cannot_be_started_is_bad_input(lab: Lab, status: int) -> None:
    store = MemoryStore()
    question = lab.question(settings=JUDGED, criterion=Criterion.JUDGE)
    with pytest.raises(JudgeError, match=rf"could not be started \(status {status}\): judge.py: no such file") as caught:
        drive(lab, store, question=question, executor=lab.executor(judged_by(lab, lambda job: status)))
    assert caught.value.exit_status == 2
    assert not store.results(store.list()[0].id)


def test_judge_decides_and_a_killed_judge_is_asked_again(lab: Lab) -> None:
    store = MemoryStore()
    question = lab.question(settings=JUDGED, criterion=Criterion.JUDGE)
    tries: Counter[str] = Counter()

    def status_of(job: ProbeJob) -> int:
        tries[job.id] += 1
        return 137 if tries[job.id] == 1 else int(lab.culprit in lab.parts_of(job))

    name, ended = drive(lab, store, question=question, executor=lab.executor(judged_by(lab, status_of)))
    assert_isolated(lab, ended)
    lost = Counter(keys_of(store, name, "probe_lost"))
    assert {lost[key] for key in keys_of(store, name, "probe_finished")} == {1}


def test_verdicts_of_a_judge_outside_the_checkout_are_not_reused(lab: Lab) -> None:
    store = MemoryStore()
    question = lab.question(settings=replace(JUDGED, judge=("python", "/home/ada/judge.py")), criterion=Criterion.JUDGE)
    script = judged_by(lab, lambda job: int(lab.culprit in lab.parts_of(job)))
    drive(lab, store, question=question, executor=lab.executor(script))
    name, ended = drive(lab, store, question=question, executor=lab.executor(script))
    assert_isolated(lab, ended)
    assert kinds_of(store, name)["probe_reused"] == 0
