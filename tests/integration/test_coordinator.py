"""The loop of a bisection on a real small repository with a virtual clock: faults, resume, reuse, budget, cancel."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator import Coordinator, CoordinatorEvent, Ended, ProbeGone, ProbeStarted, load_state
from bisect_train.coordinator.spending import Spending
from bisect_train.core.errors import InterruptedByUser, JudgeError
from bisect_train.core.fingerprint import Ending, EndingKind, JudgeResult
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings
from bisect_train.core.question import Limits, Question
from bisect_train.core.verdict import Criterion
from bisect_train.store.contract import Store
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.simulated_bisection import Lab, drive, fingerprint_of, limits, store_at


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.build(tmp_path_factory.mktemp("lab"))


def culprit_of(lab: Lab, ended: Ended) -> list[str]:
    space = lab.space(lab.question())
    return [space.changes[idx].id for culprit in ended.answer.culprits for idx in culprit.changes]


def kinds_of(store: Store, bisection_id: str) -> Counter[str]:
    return Counter(event.kind for event in store.events(bisection_id))


def keys_of(store: Store, bisection_id: str, kind: str) -> list[str]:
    return [event.data["key"] for event in store.events(bisection_id) if event.kind == kind]


def essence_of(ended: Ended) -> list[object]:
    """Return what was answered; how sure the search was may differ with the probes that happened to run."""
    proved = [
        (culprit.changes, culprit.is_necessary, culprit.is_sufficient, [claim.status for claim in culprit.claims])
        for culprit in ended.answer.culprits
    ]
    return [ended.answer.status, proved]


def assert_isolated(lab: Lab, ended: Ended) -> None:
    assert ended.answer.status == "isolated", ended.answer
    assert culprit_of(lab, ended) == [lab.commits[lab.culprit]]


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

    def slow_in_the_middle(job: ProbeJob) -> SimulatedRun:
        run = lab.run_of(job)
        return replace(run, duration_s=50.0 if 2 < len(lab.parts_of(job)) < 6 else 1.0)

    def listen(event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeGone):
            gone.append(event.reason)

    executor = lab.executor(slow_in_the_middle, slots=6)
    _, ended = drive(lab, store, executor=executor, listener=listen)
    assert_isolated(lab, ended)
    assert "obsolete" in gone
    assert executor.now_s < 50.0, "nothing waits for a probe that no longer matters"


def lossy(lab: Lab, is_lost: Callable[[ProbeJob, int], bool]) -> Callable[[ProbeJob], SimulatedRun]:
    """Return a script whose probes are lost where `is_lost(job, try)` says so."""
    tries: Counter[str] = Counter()

    def script(job: ProbeJob) -> SimulatedRun:
        tries[job.id] += 1
        if is_lost(job, tries[job.id]):
            return SimulatedRun(None, reason="the node died")
        return lab.run_of(job)

    return script


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


def test_second_bisection_runs_only_repeats_and_the_proof(lab: Lab) -> None:
    store = MemoryStore()
    drive(lab, store, executor=lab.executor(slots=1))
    name, ended = drive(lab, store, executor=lab.executor(slots=1))
    assert_isolated(lab, ended)
    specs = [event.data["spec"] for event in store.events(name) if event.kind == "probe_finished"]
    assert specs and all(spec["repeat"] > 0 or spec["attempt"] > 0 for spec in specs)
    assert ended.num_reused == kinds_of(store, name)["probe_reused"] > 0


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


def stop_after(num_started: int) -> Callable[[CoordinatorEvent], None]:
    """Return a listener that raises KeyboardInterrupt, as Ctrl-C would, when so many probes were started."""
    started = 0

    def listen(event: CoordinatorEvent) -> None:
        nonlocal started
        started += isinstance(event, ProbeStarted)
        if started == num_started:
            raise KeyboardInterrupt

    return listen


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


def test_spent_budget_is_an_answer_of_its_own(lab: Lab) -> None:
    store = MemoryStore()
    question = lab.question(limits=limits(max_probes=9))
    name, ended = drive(lab, store, question=question)
    assert ended.answer.status == "budget" and ended.num_probes == 9
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer


GPU_HOURS = 2 * 12.0 / 3600  # two GPUs a probe, 12 s


def gpu_question(lab: Lab, *, gpu_hours: float | None = GPU_HOURS, **more: int) -> Question:
    return lab.question(settings=RunSettings("python", gpus=2.0), limits=limits(gpu_hours=gpu_hours, **more))


def gpu_hours_of(store: Store, name: str) -> float:
    return sum(probe.result.wall_s for probe in store.results(name)) * 2.0 / 3600


@pytest.mark.parametrize("slots", [1, 3])
def test_spent_gpu_hours_are_an_answer_of_their_own(lab: Lab, slots: int) -> None:
    store = MemoryStore()
    question = gpu_question(lab)
    name, ended = drive(lab, store, question=question, executor=lab.executor(slots=slots))
    used = gpu_hours_of(store, name)
    assert ended.answer.status == "budget" and ended.gpu_hours == pytest.approx(used)
    longest = 3.0 * 2.0 / 3600
    assert GPU_HOURS <= used < GPU_HOURS + slots * longest
    assert ended.answer.reason == f"the budget of {GPU_HOURS:g} GPU-hours is spent ({used:.3g} used)"
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer


def test_gpu_hours_that_suffice_and_none_at_all_change_nothing(lab: Lab) -> None:
    found = [drive(lab, MemoryStore(), question=gpu_question(lab, gpu_hours=limit))[1] for limit in (None, 1.0)]
    for ended in found:
        assert_isolated(lab, ended)
    assert found[0].num_probes == found[1].num_probes and found[0].gpu_hours == found[1].gpu_hours > 0.0


def test_probes_before_a_resume_count_as_gpu_hours_and_those_of_other_bisections_do_not(lab: Lab) -> None:
    store = MemoryStore()
    question = gpu_question(lab)
    with pytest.raises(InterruptedByUser):
        drive(lab, store, question=question, listener=stop_after(4))
    name = store.list()[0].id
    assert gpu_hours_of(store, name) > 0.0
    _, ended = drive(lab, store, question=question, bisection_id=name)
    assert ended.answer.status == "budget" and ended.gpu_hours == pytest.approx(gpu_hours_of(store, name))
    num_probes = ended.num_probes
    _, again = drive(lab, store, question=question, bisection_id=name)
    assert again.answer.reason == ended.answer.reason and again.num_probes == num_probes
    other_name, other = drive(lab, store, question=question)
    assert other.num_reused > 0 and other.num_probes + other.num_reused > num_probes
    resumed = Spending(gpus=2.0)
    resumed.load(store.events(other_name), store.results(other_name))
    assert resumed.hours == pytest.approx(other.gpu_hours) and other.gpu_hours < gpu_hours_of(store, other_name)


def test_lost_and_unwanted_probes_count_as_gpu_hours() -> None:
    store = MemoryStore()
    name = store.create({}, title="spending")
    store.append(name, "probe_lost", {"key": "a", "reason": "gone", "tries": 1, "wall_s": 30.0})
    store.append(name, "probe_lost", {"key": "a", "reason": "as an earlier version stored it", "tries": 2})
    store.append(name, "probe_cancelled", {"key": "b", "wall_s": 60.0})
    spending = Spending(gpus=4.0, limit_hours=0.1)
    spending.load(store.events(name), store.results(name))
    assert spending.hours == pytest.approx(0.1)
    assert spending.why_spent(0) == "the budget of 0.1 GPU-hours is spent (0.1 used)"
    other = Spending(gpus=1.0, limit_hours=1.0)
    other.add_finished(1200.0)
    assert [bool(other.why_spent(num)) for num in (0, 1, 2)] == [False, False, True]


def test_time_of_probes_that_are_lost_or_no_longer_wanted_is_stored(lab: Lab) -> None:
    store = MemoryStore()
    executor = lab.executor(lossy(lab, lambda job, num: num == 1 and job.id < "8"), slots=6)
    question = gpu_question(lab, gpu_hours=None)
    name = store.create(question.to_json(), title="simulated")
    coordinator = Coordinator(
        question, bisection_id=name, space=lab.space(question), store=store, executor=executor, clock=lambda: executor.now_s
    )
    ended = coordinator.run()
    wasted = [event.data["wall_s"] for event in store.events(name) if event.kind in ("probe_lost", "probe_cancelled")]
    kinds = kinds_of(store, name)
    assert kinds["probe_lost"] > 0 and kinds["probe_cancelled"] > 0 and sum(wasted) > 0.0
    assert ended.gpu_hours == pytest.approx(gpu_hours_of(store, name) + 2.0 * sum(wasted) / 3600)


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
