"""The virtual clock and the scripts of the simulated executor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bisect_train.core.changes import Variant
from bisect_train.core.executor import ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeSpec, Rung, RunSettings
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun, script_of

GOOD = Fingerprint(Ending(EndingKind.STOPPED))


def job(name: str) -> ProbeJob:
    return ProbeJob(name, ProbeSpec(Variant("0" * 40, "1" * 40, ("x",)), Rung(1)), RunSettings("python"), "r")


def ends(executor: SimulatedExecutor, *, until_s: float) -> list[tuple[float, str]]:
    seen = []
    while executor.now_s < until_s and (events := executor.wait(until_s)):
        seen += [(executor.now_s, event.result.job_id) for event in events if isinstance(event, ProbeFinished)]
    return seen


def test_simulated_time_is_shared_by_the_slots() -> None:
    durations = {"a": 3.0, "b": 1.0, "c": 1.0}
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD, durations[j.id]), slots=2)
    for name in durations:
        executor.submit(job(name))
    assert ends(executor, until_s=10.0) == [(1.0, "b"), (2.0, "c"), (3.0, "a")]
    assert executor.busy_s == 5.0


def test_simulated_wait_moves_the_clock_by_its_time_when_nothing_ends() -> None:
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD, 5.0))
    executor.submit(job("a"))
    executor.wait(1.0)  # the progress event is there at once
    assert executor.wait(1.5) == [] and executor.now_s == 1.5


def test_simulated_cancel_frees_the_slot_at_once() -> None:
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD, 5.0))
    executor.submit(job("a"))
    executor.submit(job("b"))
    executor.wait(1.0)
    executor.cancel("a")
    assert ends(executor, until_s=100.0) == [(5.0, "b")]


def test_simulated_script_loses_unknown_probes() -> None:
    executor = SimulatedExecutor(script_of({"a": GOOD}), slots=2)
    executor.submit(job("a"))
    executor.submit(job("b"))
    events = executor.wait(1.0) + executor.wait(1.0)
    assert isinstance(events[-2], ProbeFinished) and isinstance(events[-1], ProbeLost)


def test_simulated_executor_needs_no_ray() -> None:
    root = Path(__file__).resolve().parents[2]
    code = "import sys; sys.path[:0] = sys.argv[1:]; import bisect_train_workers.simulated; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(root), str(root / "workers")], check=True)
