"""`doctor --recipe`: what a few simulated runs say of a user's program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli import checkup, doctor_command
from bisect_train.cli.checkup import Finding
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeResult
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedRun
from tests.support.command_bench import Bench
from tests.support.triage_runs import two_ranks

RECIPE = "command: [python, train.py]\nshrink: {steps: [8, 30, end], ranks: [1, 2]}\n"


@pytest.fixture
def recipe(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe, on a machine that is fine."""
    monkeypatch.setattr(doctor_command, "check_machine", lambda python, repo: iter([Finding("machine", True, "fine")]))
    place = tmp_path / "recipe.yaml"
    place.write_text(RECIPE)
    return place


def healthy(job: ProbeJob) -> Fingerprint:
    run = two_ranks(num_steps=job.spec.rung.steps or 1, num_ranks=job.spec.rung.ranks)
    gradients = Event("gradients", 0, {"missing": [], "zero": [], "num_missing": 0, "num_zero": 0, "num": 6})
    return replace(run, ranks=tuple(replace(rank, events=(*rank.events, gradients)) for rank in run.ranks))


def lines_of(out: str) -> dict[str, str]:
    return {line[6:18].strip(): line for line in out.splitlines() if line[:4] in ("ok  ", "FAIL")}


def test_doctor_of_a_healthy_program_says_that_all_is_well_and_tells_each_rung(bench: Bench, recipe: Path) -> None:
    bench.script = lambda job: SimulatedRun(healthy(job), duration_s=float(job.spec.rung.ranks))
    out = bench.succeed("doctor", "--recipe", str(recipe))
    assert "all is well" in out
    for name in ("starts", "loss", "gradients", "parameters", "repeats"):
        assert lines_of(out)[name].startswith("ok"), name
    assert "all 6 get a gradient" in out
    assert "8 steps x 1 rank: deterministic" in out and "30 steps x 1 rank: deterministic" in out
    assert "30 steps x 2 ranks: deterministic, two runs are equal bit for bit, 2.0 s a run" in out
    assert "end x 2 ranks: not run, it lets the program finish by itself" in out


def test_doctor_runs_the_sanity_check_on_one_rank_and_each_rung_twice(bench: Bench, recipe: Path) -> None:
    ran = []

    def script(job: ProbeJob) -> SimulatedRun:
        ran.append((job.spec.rung.steps, job.spec.rung.ranks))
        assert job.settings.triage and job.settings.every_step
        return SimulatedRun(healthy(job))

    bench.script = script
    bench.succeed("doctor", "--recipe", str(recipe))
    assert ran == [(8, 1)] * 2 + [(30, 1)] * 2 + [(8, 2)] * 2 + [(30, 2)] * 2


def broken(what: str, job: ProbeJob, num: int) -> Fingerprint:
    run = healthy(job)
    record = run.ranks[0]
    steps = record.steps
    if what == "loss":
        steps = tuple(replace(step, loss=1.0 + 0.01 * step.step) for step in steps)
    elif what == "gradients":
        steps = tuple(replace(step, grad_norm=math.inf if step.step == 5 else 1.0) for step in steps)
    elif what == "repeats":
        steps = tuple(replace(step, param_hash=f"{num}") for step in steps)
    events = record.events
    if what == "parameters":
        data = {"missing": ["head.bias"], "zero": [], "num_missing": 1, "num_zero": 0, "num": 6}
        events = (*record.events[:-1], Event("gradients", 0, data))
    return replace(run, ranks=(replace(record, steps=steps, events=events), *run.ranks[1:]))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("loss", "it does not fall"),
        ("gradients", "not finite at step 5"),
        ("parameters", "1 without a gradient, 0 with a zero one at the first step: head.bias"),
        ("repeats", "not deterministic: two runs differ at step 0 in the hash of the parameters"),
    ],
)
def test_doctor_says_what_is_wrong_with_a_program(bench: Bench, recipe: Path, what: str, said: str) -> None:
    num = 0

    def script(job: ProbeJob) -> SimulatedRun:
        nonlocal num
        num += 1
        return SimulatedRun(broken(what, job, num))

    bench.script = script
    status, out, _ = bench.call("doctor", "--recipe", str(recipe))
    assert status == 1 and "need attention" in out
    assert lines_of(out)[what].startswith("FAIL") and said in lines_of(out)[what]
    assert lines_of(out)["starts"].startswith("ok")


def test_doctor_of_a_program_that_does_not_start_stops_there(bench: Bench, recipe: Path) -> None:
    missing = "ModuleNotFoundError: No module named 'wandb'"
    ran = []

    def script(job: ProbeJob) -> SimulatedRun:
        ran.append(job.id)
        ending = Ending(EndingKind.CRASHED, missing, missing, exit_status=1, missing_module="wandb")
        run = two_ranks(num_steps=0, num_ranks=1, ending=ending)
        return SimulatedRun(run, result=ProbeResult("", run, log_tail=missing))

    bench.script = script
    status, out, _ = bench.call("doctor", "--recipe", str(recipe))
    assert status == 1 and len(ran) == 1
    assert "wandb" in lines_of(out)["starts"] and "rung" not in lines_of(out)


def test_doctor_of_a_recipe_that_cannot_be_read_says_why(bench: Bench, recipe: Path) -> None:
    recipe.write_text("comand: [python, train.py]\n")
    status, out, _ = bench.call("doctor", "--recipe", str(recipe))
    assert status == 1 and "comand" in lines_of(out)["recipe"] and bench.lab.ran == []


def test_doctor_of_a_machine_that_is_not_fine_runs_no_program(
    bench: Bench, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_command, "check_machine", lambda python, repo: iter([Finding("git", False, "not found")]))
    status, out, _ = bench.call("doctor", "--recipe", str(recipe))
    assert status == 1 and "not looked at" in lines_of(out)["recipe"] and bench.lab.ran == []


def test_doctor_needs_no_executor_for_the_machine_alone(bench: Bench, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refuse(question: Question, home: Path) -> Iterator[Executor]:
        raise AssertionError("nothing is to be run")
        yield

    monkeypatch.setattr(checkup, "open_executor", refuse)
    assert "all is well" in bench.succeed("doctor")
