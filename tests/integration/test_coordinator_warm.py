"""When a coordinator lets programs be forked: after one proof, and never where a fork showed other bits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult
from bisect_train.core.question import Question
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.simulated_bisection import Lab, assert_isolated, drive, fingerprint_of, kinds_of, module_lab, stop_after

lab = module_lab


@dataclass
class Forks:
    """A script in which every probe that may be forked is; `fork_salt` makes forks show other bits than fresh processes."""

    lab: Lab
    fork_salt: str = ""
    ran: list[ProbeJob] = field(default_factory=list)

    def __call__(self, job: ProbeJob) -> SimulatedRun:
        self.ran.append(job)
        shown = self.show(job)
        return SimulatedRun(shown, result=ProbeResult(job.id, shown, is_warm=not job.is_fresh))

    def show(self, job: ProbeJob) -> Fingerprint:
        return fingerprint_of(self.lab.level_of(job), seed_idx=job.spec.seed_idx, salt="" if job.is_fresh else self.fork_salt)

    @property
    def forked(self) -> list[ProbeJob]:
        return [job for job in self.ran if not job.is_fresh]


def warm_question(lab: Lab) -> Question:
    question = lab.question()
    return replace(question, settings=replace(question.settings, warm=True))


@pytest.mark.parametrize("slots", [1, 2, 6])
def test_programs_are_forked_once_a_repeat_has_shown_the_bits_of_a_fresh_one(lab: Lab, slots: int) -> None:
    store, forks = MemoryStore(), Forks(lab)
    name, ended = drive(lab, store, question=warm_question(lab), executor=lab.executor(forks, slots=slots))
    assert_isolated(lab, ended)
    proof = forks.forked[0].spec
    before = [job.spec for job in forks.ran[: forks.ran.index(forks.forked[0])]]
    assert any((spec.variant.id, spec.seed_idx) == (proof.variant.id, proof.seed_idx) for spec in before)
    assert [event.data["is_proven"] for event in store.events(name) if event.kind == "warm_start"] == [True]
    if slots == 1:  # with one slot nothing runs beside the proof
        assert all(not job.is_fresh for job in forks.ran[len(before) :]) and len(before) <= 3


def test_forks_that_show_other_bits_are_thrown_away_and_never_used_again(lab: Lab) -> None:
    store, forks = MemoryStore(), Forks(lab, fork_salt="fork")
    name, ended = drive(lab, store, question=warm_question(lab), executor=lab.executor(forks, slots=1))
    assert_isolated(lab, ended)
    assert len(forks.forked) == 1
    later = forks.ran[forks.ran.index(forks.forked[0]) + 1 :]
    assert forks.forked[0].spec in [job.spec for job in later if job.is_fresh], "it is run again, fresh"
    assert kinds_of(store, name)["warm_start"] == 1
    assert all(not probe.result.is_warm for probe in store.results(name))


def test_forks_in_flight_when_another_one_fails_do_not_count(lab: Lab) -> None:
    store, forks = MemoryStore(), Forks(lab, fork_salt="fork")
    name, ended = drive(lab, store, question=warm_question(lab), executor=lab.executor(forks, slots=6))
    assert_isolated(lab, ended)
    assert len(forks.forked) > 1, "several were under way"
    assert all(not probe.result.is_warm for probe in store.results(name))


def test_what_was_proven_on_other_hardware_is_proven_anew(lab: Lab) -> None:
    store, question = MemoryStore(), warm_question(lab)
    name = store.create(question.to_json(), title="simulated")
    there = MachineFacts("other", "other", 1)
    with pytest.raises(InterruptedByUser):
        executor = lab.executor(Forks(lab), slots=1, facts=there)
        drive(lab, store, question=question, bisection_id=name, executor=executor, listener=stop_after(8))
    assert kinds_of(store, name)["warm_start"] == 1
    forks = Forks(lab)
    drive(lab, store, question=question, bisection_id=name, executor=lab.executor(forks, slots=1))
    assert forks.ran[0].is_fresh and kinds_of(store, name)["warm_start"] == 2


def test_a_resumed_bisection_knows_what_was_proven(lab: Lab) -> None:
    store = MemoryStore()
    question = warm_question(lab)
    name = store.create(question.to_json(), title="simulated")
    with pytest.raises(InterruptedByUser):
        executor = lab.executor(Forks(lab), slots=1)
        drive(lab, store, question=question, bisection_id=name, executor=executor, listener=stop_after(8))
    assert kinds_of(store, name)["warm_start"] == 1
    forks = Forks(lab)
    _, ended = drive(lab, store, question=question, bisection_id=name, executor=lab.executor(forks, slots=1))
    assert_isolated(lab, ended)
    assert forks.ran and not any(job.is_fresh for job in forks.ran)


def test_without_leave_nothing_is_forked(lab: Lab) -> None:
    forks = Forks(lab)
    store = MemoryStore()
    name, ended = drive(lab, store, executor=lab.executor(forks))
    assert_isolated(lab, ended)
    assert not forks.forked and not kinds_of(store, name)["warm_start"]


@pytest.mark.parametrize(("slots", "num_fresh"), [(1, 1), (2, 1), (6, None)])
def test_on_few_cores_one_program_only_is_started_fresh(lab: Lab, slots: int, num_fresh: int | None) -> None:
    """With two cores a second import of torch is in the way of the process that all others are forked from."""
    forks = Forks(lab)
    _, ended = drive(lab, MemoryStore(), question=warm_question(lab), executor=lab.executor(forks, slots=slots))
    assert_isolated(lab, ended)
    fresh = [job for job in forks.ran if job.is_fresh]
    assert len(fresh) == num_fresh if num_fresh else len(fresh) > 1


def test_who_must_be_fresh_is_not_held_back_for_long(lab: Lab) -> None:
    """The first program does not end: others wait for it for some seconds only."""
    forks = Forks(lab)

    def first_takes_long(job: ProbeJob) -> SimulatedRun:
        return replace(forks(job), duration_s=1.0 if forks.ran[1:] else 60.0)

    executor = lab.executor(first_takes_long, slots=2)
    _, ended = drive(lab, MemoryStore(), question=warm_question(lab), executor=executor, clock=lambda: executor.now_s)
    assert_isolated(lab, ended)
    assert [job.is_fresh for job in forks.ran[:2]] == [True, True]
    assert forks.ran[0].spec.variant != forks.ran[1].spec.variant


@pytest.mark.parametrize(("slots", "beside_fresh"), [(1, ()), (2, (1, 2)), (3, ())], ids=["busy", "a core is idle", "many"])
def test_the_seeds_that_come_soon_are_said(lab: Lab, slots: int, beside_fresh: tuple[int, ...]) -> None:
    forks = Forks(lab)
    drive(lab, MemoryStore(), question=warm_question(lab), executor=lab.executor(forks, slots=slots))
    fresh = [job.seeds_ahead for job in forks.ran if job.is_fresh]
    assert fresh[0] == beside_fresh and not any(fresh[1:]), "a fresh program leaves the second core idle while others wait"
    first, *_ = forks.forked
    assert (first.spec.repeat, first.seeds_ahead) == (1, (1, 2))
    seeds = [job.spec.seed_idx for job in forks.ran]
    said = [idx for job in forks.ran[: seeds.index(100)] for idx in job.seeds_ahead]
    assert 100 in said, "the proof's first seed is named while the search runs"
    assert set(said) <= set(seeds), "no process is started for a seed that is never run"
