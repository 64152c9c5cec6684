"""`resume` with other limits, through the command line: a bisection whose budget was spent goes on. Nothing is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.probe import RunSettings
from bisect_train.core.question import Limits
from tests.support.command_bench import CULPRIT, Bench, culprits_of


def ask(bench: Bench, limits: Limits, *, gpus: float = 0.0) -> str:
    """Store the lab's question with limits; return the id."""
    question = replace(bench.lab.question(), limits=limits, settings=RunSettings("python", gpus=gpus))
    with bench.store() as store:
        return store.create(question.to_json(), title="limited")


def num_probes(bench: Bench, name: str = "last") -> int:
    return sum(event.kind == "probe_finished" for event in bench.events(name))


def changes_of(bench: Bench) -> list[dict[str, object]]:
    return [event.data for event in bench.events() if event.kind == "limits_changed"]


def test_larger_number_of_probes_lets_a_spent_bisection_go_on(bench: Bench) -> None:
    name = ask(bench, Limits(max_probes=9))
    assert bench.report("resume", "--quiet")["status"] == "budget" and num_probes(bench) == 9
    command = f"bisect-train resume {name} --max-probes N"
    assert f"To go on, give a larger budget: `{command}`" in " ".join(bench.call("report")[1].split())
    before = set(bench.lab.ran)
    assert bench.report("resume", "--max-probes", "12", "--quiet")["status"] == "budget" and num_probes(bench) == 12
    report = bench.report("resume", "--max-probes", "200", "--quiet")
    assert report["status"] == "isolated" and culprits_of(report) == [bench.commit(CULPRIT)]
    assert len(bench.lab.ran) == len(set(bench.lab.ran)) > len(before), "no finished probe is run again"
    assert changes_of(bench) == [{"max_probes": 12}, {"max_probes": 200}]
    assert "limits_changed   max_probes=12" in bench.succeed("log")


def test_limit_in_force_holds_for_later_resumes_and_replays(bench: Bench) -> None:
    ask(bench, Limits(max_probes=9))
    bench.report("resume", "--quiet")
    bench.report("resume", "--max-probes", "11", "--quiet")
    assert "the budget of 11 probes is spent" in bench.call("resume", "--quiet")[1] and num_probes(bench) == 11
    assert "the budget of 11 probes is spent" in bench.call("report")[1]
    assert changes_of(bench) == [{"max_probes": 11}]
    place = bench.lab.home / "runs.txt"
    bench.succeed("log", "--observations", "--out", str(place))
    bench.report("replay", str(place), "--quiet")
    with bench.store() as store:
        assert store.load("last").question["limits"]["max_probes"] == 11


def test_limit_that_is_in_force_already_is_not_stored_again(bench: Bench) -> None:
    ask(bench, Limits(max_probes=9))
    bench.report("resume", "--max-probes", "9", "--quiet")
    assert changes_of(bench) == []


def test_bisection_without_a_limit_can_be_given_one(bench: Bench) -> None:
    bench.interrupt(4)
    num = num_probes(bench)
    assert bench.report("resume", "--max-probes", str(num + 1), "--quiet")["status"] == "budget"
    assert num_probes(bench) == num + 1


def test_limit_below_what_is_spent_is_refused(bench: Bench) -> None:
    name = ask(bench, Limits(max_probes=9))
    bench.report("resume", "--quiet")
    said = bench.refuse("resume", "--max-probes", "8")
    assert f"--max-probes 8 is less than the 9 probes that bisection {name} has run already" in said and "17" in said
    assert "no probe uses a GPU" in bench.refuse("resume", "--budget-gpu-hours", "3")
    assert changes_of(bench) == []
    with bench.store() as store:
        assert store.load(name).status == "finished", "it is still the answer that it was"


def test_larger_number_of_gpu_hours_lets_a_spent_bisection_go_on(bench: Bench) -> None:
    hours = 2 * 12.0 / 3600
    ask(bench, Limits(gpu_hours=hours), gpus=2.0)
    assert bench.report("resume", "--quiet")["status"] == "budget"
    assert "--budget-gpu-hours H" in " ".join(bench.call("report")[1].split())
    said = bench.refuse("resume", "--budget-gpu-hours", "0.001")
    assert "--budget-gpu-hours 0.001 is less than the 0.00" in said and "used already" in said
    assert bench.report("resume", "--budget-gpu-hours", "1", "--quiet")["status"] == "isolated"


def test_answer_that_no_budget_ended_is_only_reported(bench: Bench) -> None:
    ask(bench, Limits())
    bench.report("resume", "--quiet")
    bench.lab.ran.clear()
    started = sum(event.kind == "started" for event in bench.events())
    assert bench.report("resume", "--max-probes", "500", "--quiet")["status"] == "isolated"
    assert not bench.lab.ran and sum(event.kind == "started" for event in bench.events()) == started


@pytest.mark.parametrize("args", [("--max-probes", "0"), ("--max-probes", "many"), ("--budget-gpu-hours", "-1")])
def test_limits_that_are_none_are_refused(bench: Bench, args: tuple[str, str]) -> None:
    bench.ask()
    assert args[0] in bench.refuse("resume", *args)


def test_running_bisection_keeps_its_limits(bench: Bench) -> None:
    name = ask(bench, Limits(max_probes=9))
    with bench.store() as store, store.lock(name):
        assert "is being run by process" in bench.refuse("resume", "--max-probes", "20")
    assert changes_of(bench) == []
