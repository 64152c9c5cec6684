"""What every executor promises, run on the Ray executor and on the simulated one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_train.core.executor import Executor, ExecutorEvent, ProbeFinished, ProbeLost, ProbeProgress
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.ray_executor import RayExecutor
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.probes import FOREVER, TinyRepo, make_job, make_settings

PROGRAMS = {
    "finish": "print('done')\n",
    "crash": "raise ValueError('broken')\n",
    "forever": FOREVER,
    # The Ray worker is the parent of the supervisor, which is the parent of the program.
    "lose": "import os, psutil, time\npsutil.Process(os.getppid()).parent().kill()\ntime.sleep(60)\n",
}
SETTINGS = make_settings(needs_recorder=False, timeout_s=100.0)


@dataclass
class Case:
    """An executor and a way to make jobs that behave as named in PROGRAMS."""

    executor: Executor
    make: Callable[[str], ProbeJob]
    start: Callable[[], Executor]

    def collect(self, *job_ids: str, limit_s: float = 60.0) -> list[ExecutorEvent]:
        """Wait until all these jobs have ended; returns all events."""
        events: list[ExecutorEvent] = []
        deadline = time.monotonic() + limit_s
        while {id_of(event) for event in events if is_end(event)} < set(job_ids):
            assert time.monotonic() < deadline, events
            events += self.executor.wait(2.0)
        return events


def is_end(event: ExecutorEvent) -> bool:
    return not isinstance(event, ProbeProgress)


def id_of(event: ExecutorEvent) -> str:
    return event.result.job_id if isinstance(event, ProbeFinished) else event.job_id


def simulate(job: ProbeJob) -> SimulatedRun:
    kind = job.id.split("-")[0]
    if kind == "lose":
        return SimulatedRun(None, 1.0)
    endings = {"crash": Ending(EndingKind.CRASHED, signature="ValueError: broken @ <module>", exit_status=1)}
    return SimulatedRun(Fingerprint(endings.get(kind, Ending(EndingKind.FINISHED))), 1e9 if kind == "forever" else 1.0)


@pytest.fixture(scope="module", params=["simulated", "ray"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    folder: Path = tmp_path_factory.mktemp("executor")
    repo = TinyRepo(folder / "r")
    commits = {kind: repo.commit({"train.py": program}) for kind, program in PROGRAMS.items()}
    counter = itertools.count()

    def make(kind: str) -> ProbeJob:
        return make_job(commits[kind], id=f"{kind}-{next(counter)}", settings=SETTINGS)

    def start() -> Executor:
        if request.param == "simulated":
            return SimulatedExecutor(simulate, slots=2)
        return RayExecutor(SETTINGS, node_home=folder / "n", cpus=2)

    executor = start()
    yield Case(executor, make, start)
    executor.close()


def test_executor_has_facts(case: Case) -> None:
    facts = case.executor.facts()
    assert facts.hardware_class and facts.interpreter and facts.slots == 2
    assert case.executor.facts() == facts


def test_executor_finishes_a_probe_once(case: Case) -> None:
    job = case.make("finish")
    case.executor.submit(job)
    ends = [event for event in case.collect(job.id) if is_end(event)]
    assert len(ends) == 1 and isinstance(ends[0], ProbeFinished)
    assert ends[0].result.fingerprint.ending.kind is EndingKind.FINISHED
    assert case.executor.wait(0.2) == []


def test_executor_reports_a_crash_as_data(case: Case) -> None:
    job = case.make("crash")
    case.executor.submit(job)
    last = case.collect(job.id)[-1]
    assert isinstance(last, ProbeFinished)
    assert last.result.fingerprint.ending.kind is EndingKind.CRASHED
    assert last.result.fingerprint.ending.signature == "ValueError: broken @ <module>"


def test_executor_reports_a_dead_worker_as_lost_once(case: Case) -> None:
    job = case.make("lose")
    case.executor.submit(job)
    ends = [event for event in case.collect(job.id) if is_end(event)]
    assert len(ends) == 1 and isinstance(ends[0], ProbeLost) and ends[0].reason
    assert case.executor.wait(0.2) == []


def test_executor_runs_a_lost_id_again(case: Case) -> None:
    job = case.make("finish")
    for _ in range(2):
        case.executor.submit(job)
        assert isinstance(case.collect(job.id)[-1], ProbeFinished)


def test_executor_refuses_an_id_that_runs(case: Case) -> None:
    job = case.make("forever")
    case.executor.submit(job)
    with pytest.raises(ValueError, match=job.id):
        case.executor.submit(job)
    case.executor.cancel(job.id)


def test_executor_runs_slots_in_parallel_and_queues_the_rest(case: Case) -> None:
    jobs = [case.make("finish") for _ in range(5)]
    for job in jobs:
        case.executor.submit(job)
    ends = [id_of(event) for event in case.collect(*[job.id for job in jobs]) if is_end(event)]
    assert sorted(ends) == sorted(job.id for job in jobs)


def test_executor_reports_nothing_after_cancel(case: Case) -> None:
    job, other = case.make("forever"), case.make("finish")
    case.executor.submit(job)
    seen: list[ExecutorEvent] = []
    while not any(isinstance(event, ProbeProgress) and event.phase == "run" for event in seen):
        seen += case.executor.wait(2.0)
    case.executor.cancel(job.id)
    case.executor.submit(other)
    assert job.id not in {id_of(event) for event in case.collect(other.id)}
    assert case.executor.wait(0.5) == []


def test_executor_cancels_what_still_queues(case: Case) -> None:
    jobs = [case.make("forever") for _ in range(4)]
    for job in jobs:
        case.executor.submit(job)
    for job in reversed(jobs):
        case.executor.cancel(job.id)
    last = case.make("finish")
    case.executor.submit(last)
    assert {id_of(event) for event in case.collect(last.id)} == {last.id}


def test_executor_ignores_cancel_of_unknown_ids(case: Case) -> None:
    case.executor.cancel("no such job")


def test_executor_wait_returns_after_its_time(case: Case) -> None:
    started = time.monotonic()
    assert case.executor.wait(0.3) == []
    assert time.monotonic() - started < 2.0


def test_executor_closes_twice_and_can_be_closed_unused(case: Case) -> None:
    fresh = case.start()
    fresh.close()
    fresh.close()


def test_executor_close_stops_what_runs(case: Case) -> None:
    # The last test: Ray is one per process, so this closes the shared one.
    case.executor.submit(case.make("forever"))
    case.executor.close()
    case.executor.close()
    assert case.executor.wait(0.1) == []
