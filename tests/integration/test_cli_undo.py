"""The person in the loop: `undo`, through the command line. Nothing is trained."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator import CoordinatorEvent, ProbeDone
from bisect_train.core.changes import Point
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.simulated import SimulatedRun
from tests.support.command_bench import CULPRIT, Bench, Script, culprits_of, requests_of
from tests.support.simulated_bisection import Lab, drive, fingerprint_of, stop_after


def is_between(point: Point) -> bool:
    return point.is_prefix and 0 < point.prefix < 13


def lie_of(lab: Lab) -> Script:
    """Return a script whose first run between the ends is wrong: a stale cache, say."""
    lies: list[str] = []

    def run(job: ProbeJob) -> SimulatedRun:
        if lies or len(lab.parts_of(job)) in (1, len(lab.commits) - len(lab.same_tree)):
            return lab.run_of(job)
        lies.append(job.id)
        lab.ran.append(job.id)
        return SimulatedRun(fingerprint_of(3.0 - lab.level_of(job), seed_idx=job.spec.seed_idx), 1.0)

    return run


def stop_at_lie(bench: Bench) -> tuple[str, str, Point]:
    """Run the lab's question until a lie is stored; return the bisection's id, the lie's key, and where it was told."""
    done: list[ProbeDone] = []

    def stop_after_the_lie(event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeDone) and is_between(event.observation.point):
            done.append(event)
            raise KeyboardInterrupt

    with bench.store() as store:
        name = store.create(bench.lab.question().to_json(), title="simulated")
        executor = bench.lab.executor(lie_of(bench.lab), slots=1)
        with pytest.raises(InterruptedByUser):
            drive(bench.lab, store, bisection_id=name, executor=executor, listener=stop_after_the_lie)
    return name, done[0].key, done[0].observation.point


def test_undone_observation_is_run_again_and_not_taken_from_the_store(bench: Bench) -> None:
    """Results are known by key, in this bisection and in the store: the lie would come back from either."""
    name, lie, at = stop_at_lie(bench)
    point = at.to_text()
    out = bench.succeed("undo", name)
    assert f"taken back: the run at {point}, " in out and lie in out
    bench.lab.ran.clear()
    report = bench.report("resume", name, "--quiet")
    assert report["status"] == "isolated" and culprits_of(report) == [bench.commit(CULPRIT)]
    assert lie not in bench.lab.ran, "it has a new key"
    assert lie not in {probe["key"] for probe in report["probes"]}
    assert requests_of(bench.events(name)).count((point, 0, 0)) == 2, "the first is still in the store"
    assert "1 run taken back by hand" in report["warnings"]


def test_undone_result_does_not_come_back_for_another_state_with_the_same_files(bench: Bench, tmp_path: Path) -> None:
    bench.lab = replace(Lab.build(tmp_path / "alike", culprit=CULPRIT, same_tree=(5, 6, 7, 8)), home=bench.lab.home)
    bench.script = bench.lab.run_of
    name, _, point = stop_at_lie(bench)
    assert 4 <= point.prefix <= 8, "one of the states that have the same files"
    bench.succeed("undo", name)
    bench.succeed("mark", bench.commit(point.prefix), "untestable")
    bench.lab.ran.clear()
    bench.report("resume", name, "--quiet")
    specs = [event.data["spec"] for event in bench.events(name) if event.kind == "probe_finished"]
    searched = {(spec["point"], spec["seed_idx"]) for spec in specs if spec["attempt"] == 0}
    assert searched & {(str(version), 0) for version in range(4, 9) if version != point.prefix}, "run afresh, not known"


def test_answer_is_no_answer_once_something_is_undone(bench: Bench) -> None:
    name = bench.ask()
    assert bench.report("resume", "--quiet")["status"] == "isolated"
    before = {event.data["key"] for event in bench.events() if event.kind == "probe_finished"}
    assert bench.succeed("undo", "--last", "3").count("taken back: ") == 3
    assert "  changed" in bench.succeed("status") and "resume" in bench.succeed("status")
    assert "changed" in bench.succeed("list")
    assert "has no answer yet" in bench.refuse("report")
    bench.lab.ran.clear()
    report = bench.report("resume", "--quiet")
    assert report["status"] == "isolated" and len(bench.lab.ran) == 3 and not before & set(bench.lab.ran)
    assert any("of a proof" in text for text in report["warnings"])
    with bench.store() as store:
        assert store.load(name).status == "finished"
    bench.lab.ran.clear()
    assert "FOUND THE CULPRIT" in bench.succeed("report").upper() and not bench.lab.ran


def test_same_run_can_be_undone_twice(bench: Bench) -> None:
    bench.ask()
    bench.report("resume", "--quiet")
    keys = set()
    for _ in range(3):
        bench.succeed("undo")
        bench.lab.ran.clear()
        assert bench.report("resume", "--quiet")["status"] == "isolated"
        assert len(bench.lab.ran) == 1
        keys.update(bench.lab.ran)
    assert len(keys) == 3


def test_undo_takes_back_a_mark_and_then_the_one_before_holds(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(5), "good")
    bench.succeed("mark", bench.commit(5), "bad")
    assert f"taken back: mark {bench.commit(5)[:12]} bad" in bench.succeed("undo")
    assert f"mark {bench.commit(5)[:12]} good" in bench.succeed("log", "--observations")
    bench.succeed("undo")
    assert "\nmark " not in bench.succeed("log", "--observations")
    assert "has 0 observations and marks, not 1" in bench.refuse("undo")


def test_bisection_that_was_undone_survives_a_kill(bench: Bench) -> None:
    """Undo, go on, stop again after each start: the taken-back run never comes back."""
    name = bench.interrupt(14)
    bench.succeed("undo", name, "--last", "4")
    finished = Counter(requests_of(bench.events(name)))
    for num in (1, 2, 3):
        with bench.store() as store, pytest.raises(InterruptedByUser):
            drive(bench.lab, store, bisection_id=name, executor=bench.lab.executor(slots=1), listener=stop_after(num))
    report = bench.report("resume", name, "--quiet")
    assert report["status"] == "isolated"
    again = Counter(requests_of(bench.events(name))) - finished
    assert sum((again & finished).values()) == 4, "each is run again, once"
