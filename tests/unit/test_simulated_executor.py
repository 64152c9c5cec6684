"""The virtual clock and the scripts of the simulated executor."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.core.changes import Variant
from bisect_train.core.errors import MachineError
from bisect_train.core.executor import ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeSpec, Rung, RunSettings
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedNode, SimulatedRun, script_of

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


# ---- a cluster ----------------------------------------------------------------------------------------------------


def finished_on(executor: SimulatedExecutor, *, until_s: float = 50.0) -> dict[str, str]:
    """Return where each probe ended."""
    places = {}
    while executor.now_s < until_s and (events := executor.wait(until_s)):
        places.update({event.result.job_id: event.result.node for event in events if isinstance(event, ProbeFinished)})
    return places


def test_simulated_nodes_are_filled_evenly_and_told_of() -> None:
    nodes = [SimulatedNode("a", 2), SimulatedNode("b", 2)]
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD), nodes=nodes)
    assert (executor.facts().nodes, executor.facts().slots) == (("a", "b"), 4)
    for name in "1234":
        executor.submit(job(name))
    assert finished_on(executor) == {"1": "a", "2": "b", "3": "a", "4": "b"}


def test_simulated_job_waits_for_a_node_that_it_need_not_avoid() -> None:
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD), nodes=[SimulatedNode("a"), SimulatedNode("b")])
    for name in ("1", "2"):
        executor.submit(job(name))
    executor.submit(replace(job("3"), avoid=("b",)))
    executor.submit(replace(job("4"), avoid=("a", "b")))  # there is no other one
    places = finished_on(executor)
    assert places["3"] == "a"
    assert places["4"] in "ab"


def test_simulated_node_that_dies_loses_what_runs_there_and_is_gone() -> None:
    nodes = [SimulatedNode("a", dies_at_s=0.5), SimulatedNode("b", joins_at_s=2.0)]
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD), nodes=nodes)
    executor.submit(job("1"))
    executor.submit(job("2"))
    events = executor.wait(9.0) + executor.wait(9.0)
    assert [(event.job_id, event.node) for event in events if isinstance(event, ProbeLost)] == [("1", "a")]
    with pytest.raises(MachineError, match="no node of the cluster is left"):
        executor.facts()
    assert finished_on(executor) == {"2": "b"}
    assert executor.facts().nodes == ("b",)


def test_simulated_nodes_can_be_slow_lossy_and_wrong() -> None:
    crash = Fingerprint(Ending(EndingKind.CRASHED))
    nodes = [
        SimulatedNode("slow", slowness=5.0),
        SimulatedNode("lossy", loses=lambda j: True),
        SimulatedNode("wrong", distorts=lambda j, true: crash),
    ]
    executor = SimulatedExecutor(lambda j: SimulatedRun(GOOD), nodes=nodes)
    for name in "123":
        executor.submit(job(name))
    events = [event for _ in range(3) for event in executor.wait(9.0)]
    lost = [event.node for event in events if isinstance(event, ProbeLost)]
    ended = {event.result.node: event.result for event in events if isinstance(event, ProbeFinished)}
    assert lost == ["lossy"]
    assert ended["slow"].wall_s == 5.0
    assert ended["wrong"].fingerprint == crash
