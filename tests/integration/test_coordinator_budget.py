"""The limits of a bisection on a virtual clock: probes, GPU-hours, what counts as spent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.coordinator import Coordinator, Ended, limits_left, load_state
from bisect_train.coordinator.limits import change_limits
from bisect_train.coordinator.loop import WAIT_S
from bisect_train.coordinator.observing import active_s, worked_s
from bisect_train.coordinator.spending import Spending, say_spent
from bisect_train.core.errors import InputError, InterruptedByUser
from bisect_train.core.probe import ProbeJob, RunSettings
from bisect_train.core.question import Question
from bisect_train.store.contract import Store, StoredEvent
from bisect_train.store.memory import MemoryStore
from tests.support.simulated_bisection import (
    Lab,
    assert_isolated,
    drive,
    kinds_of,
    limits,
    lossy,
    module_lab,
    stop_after,
)

lab = module_lab


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
    found = []
    for limit in (None, 1.0):
        lab.ran.clear()  # how long a probe takes depends on how many ran before
        found.append(drive(lab, MemoryStore(), question=gpu_question(lab, gpu_hours=limit))[1])
        assert_isolated(lab, found[-1])
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
    begun: list[str] = []

    def is_lost(job: ProbeJob, num: int) -> bool:
        """Lose the first try of every other probe, in the order in which they begin."""
        begun.extend([job.id] if num == 1 else [])
        return num == 1 and len(begun) % 2 == 0

    executor = lab.executor(lossy(lab, is_lost), slots=6)
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


def test_what_a_person_does_long_after_is_no_time_of_the_bisection() -> None:
    kinds = ("started", "probe_finished", "finished", "marked", "undone", "limits_changed", "started")
    times_s = (0.0, 10.0, 11.0, 500.0, 600.0, 700.0, 800.0)
    events = [StoredEvent(idx + 1, kind, time_s, {}) for idx, (kind, time_s) in enumerate(zip(kinds, times_s, strict=True))]
    assert active_s(events) == 10.0


def timed(lab: Lab, *, wall_s: float, slots: int = 1, **more: object) -> tuple[Store, str, Ended]:
    """Drive a bisection whose time is that of the virtual clock."""
    store, executor = MemoryStore(), lab.executor(slots=slots)
    question = lab.question(limits=limits(wall_s=wall_s))
    name, ended = drive(lab, store, question=question, executor=executor, clock=lambda: executor.now_s, **more)  # type: ignore[arg-type]
    return store, name, ended


@pytest.mark.parametrize("slots", [1, 3])
def test_spent_time_is_an_answer_of_its_own_and_nothing_runs_beyond_it(lab: Lab, slots: int) -> None:
    store, name, ended = timed(lab, wall_s=10.0, slots=slots)
    assert ended.answer.status == "budget" and "the budget of 10 s is spent" in ended.answer.reason
    assert ended.wall_s <= 10.0 + WAIT_S, "what is still running then is ended"
    assert kinds_of(store, name)["budget_spent"] == 1


def test_time_that_suffices_changes_nothing(lab: Lab) -> None:
    _, _, ended = timed(lab, wall_s=10_000.0)
    assert_isolated(lab, ended)


def test_a_probe_that_cannot_end_in_time_is_not_started_and_one_that_runs_on_is_ended() -> None:
    spending = Spending(0.0, limit_s=100.0)
    assert not spending.why_spent(1, worked_s=99.0), "nothing is known of how long a probe takes"
    spending.add_finished(30.0)
    assert not spending.why_spent(0, worked_s=69.0)
    assert spending.why_spent(0, worked_s=70.0) == "the budget of 100 s is spent (70 s used, a probe takes 30 s)"
    assert not spending.is_late(99.9) and spending.is_late(100.0)
    assert not Spending(0.0).is_late(1e9)


def test_time_is_counted_over_all_coordinators_and_parts_and_can_be_raised(lab: Lab) -> None:
    store, question = MemoryStore(), lab.question(limits=limits(wall_s=50.0))
    name = store.create(question.to_json(), title="t")
    store.append(name, "started", {})
    times = {1: 0.0, 2: 20.0, 3: 100.0, 4: 115.0}
    kinds = {1: "started", 3: "started"}
    events = [StoredEvent(seq, kinds.get(seq, "probe_started"), time_s, {}) for seq, time_s in times.items()]
    assert (active_s(events), worked_s(events)) == (20.0, 35.0)
    assert limits_left(store, question, [name]).wall_s == pytest.approx(50.0, abs=1.0)
    assert change_limits(store, name, question, wall_s=80.0).limits.wall_s == 80.0
    with pytest.raises(InputError, match=r"is less than the .* has taken already"):
        change_limits(store, name, question, wall_s=-1.0)
    left = replace(question.limits, wall_s=0.0)
    assert say_spent(question.limits, left) == "the budget of 50 s is spent"
    assert not say_spent(question.limits, question.limits)
