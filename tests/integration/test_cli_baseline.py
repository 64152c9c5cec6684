"""Baselines and checks of the code by the command line: saved, taken as the good end, renewed, and told apart from mistakes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from bisect_train.cli import singles
from bisect_train.core.question import Question
from bisect_train.store.contract import PROBE_FINISHED
from bisect_train_workers.simulated import SimulatedExecutor
from tests.support.command_bench import CULPRIT, Bench

RUN = ("--steps", "4", "--", "python", "train.py")


@pytest.fixture
def desk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Single probes, too, are simulated; the commands work on the lab's repository."""

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[SimulatedExecutor]:
        yield bench.lab.executor(bench.script)

    monkeypatch.setattr(singles, "open_executor", open_executor)
    monkeypatch.chdir(bench.lab.repo.path)
    yield bench
    shutil.rmtree(bench.lab.repo.path / ".bisect-train", ignore_errors=True)  # the repository is shared with other tests


def file_of(desk: Bench, name: str = "main") -> Path:
    return desk.lab.repo.path / ".bisect-train" / "baselines" / f"{name}.yaml"


def good_end_runs(desk: Bench) -> list[tuple[int, int]]:
    specs = [event.data["spec"] for event in desk.events() if event.kind == PROBE_FINISHED]
    return sorted((spec["seed_idx"], spec["repeat"]) for spec in specs if spec["point"] == "0" and spec["attempt"] == 0)


def test_a_saved_baseline_is_the_good_end_of_a_bisection(desk: Bench) -> None:
    lab = desk.lab
    said = desk.succeed("baseline", "save", "main", "--rev", lab.commits[0], "--num-seeds", "4", *RUN)
    assert "4 seeds" in said and ".bisect-train/baselines/main.yaml" in said
    saved = yaml.safe_load(file_of(desk).read_text())
    assert saved["saved"]["commit"] == lab.commits[0]
    assert [run["seed"] for run in saved["platforms"][0]["runs"]] == [0, 1, 2, 3]
    assert "main" in desk.succeed("baseline", "list", "--no-color")
    out = desk.succeed("run", "--good", "baseline:main", "--bad", lab.commits[-1], *RUN)
    assert lab.commits[CULPRIT][:8] in out and "baseline main" in out
    assert good_end_runs(desk) == [(0, 1)]


def test_a_baseline_of_another_number_of_steps_is_noted_and_the_good_end_run_anew(desk: Bench) -> None:
    lab = desk.lab
    desk.succeed("baseline", "save", "main", "--rev", lab.commits[0], *RUN)
    text = file_of(desk).read_text().replace("measure: ", "measure: x")
    file_of(desk).write_text(text)
    status, _, err = desk.call("run", "--good", "baseline:main", "--bad", lab.commits[-1], *RUN)
    assert status == 0 and "the good end is run anew" in err
    assert (0, 0) in good_end_runs(desk)


def test_another_commit_is_taken_by_renew_only_and_the_history_stays(desk: Bench) -> None:
    lab = desk.lab
    desk.succeed("baseline", "save", "main", "--rev", lab.commits[0], "--reason", "first", *RUN)
    err = desk.refuse("baseline", "save", "main", "--rev", lab.commits[1], *RUN)
    assert "renew main" in err
    desk.succeed(
        "baseline",
        "renew",
        "main",
        "--rev",
        lab.commits[CULPRIT],
        "--reason",
        "new rate",
        "--expect",
        lab.commits[CULPRIT],
        *RUN,
    )
    saved = yaml.safe_load(file_of(desk).read_text())
    assert saved["saved"]["commit"] == saved["expect"][0]["commit"] == lab.commits[CULPRIT]
    assert [item["reason"] for item in saved["history"]] == ["first"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run", "--good", "baseline:nothing", *RUN), "no baseline 'nothing'"),
        (("run", "--good", "baseline:../x", *RUN), "no name of a baseline"),
        (("run", "--good", "baseline:main", "--good", "HEAD~1", *RUN), "beside other good ends"),
        (("baseline", "save", "a/b", *RUN), "no name of a baseline"),
        (("baseline", "save", "main", "--judge", "true", *RUN), "judge"),
        (("baseline", "renew", "nothing", "--reason", "x", *RUN), "no baseline 'nothing'"),
        (("check", "--against", "baseline:nothing", *RUN), "no baseline 'nothing'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(desk: Bench, args: tuple[str, ...], said: str) -> None:
    assert said in desk.refuse(*args)
    assert not desk.lab.ran


def test_an_intended_change_is_labelled_and_the_search_goes_on_behind_it(desk: Bench) -> None:
    lab = desk.lab
    args = ("run", "--good", lab.commits[0], "--bad", lab.commits[-1], "--expect", lab.commits[CULPRIT])
    status, out, err = desk.call(*args, *RUN)
    assert status == 4, err
    assert f"{lab.commits[CULPRIT][:8]} is an intended change; now what comes after it" in err
    assert lab.commits[CULPRIT][:8] in out and "NO REGRESSION" in out.upper()


def test_an_intended_change_at_the_very_end_leaves_nothing_to_ask(desk: Bench) -> None:
    lab = desk.lab
    end = lab.commits[CULPRIT]
    status, _, err = desk.call("run", "--good", lab.commits[0], "--bad", end, "--expect", end, *RUN)
    assert status == 4 and "nothing comes after it" in err


def test_check_without_configs_asks_about_the_working_tree(desk: Bench) -> None:
    lab = desk.lab
    assert "NO REGRESSION" in desk.succeed("check", *RUN).upper()  # nothing is uncommitted
    status, out, _ = desk.call("check", "--rev", lab.commits[-1], "--against", lab.commits[0], *RUN)
    assert status == 5 and lab.commits[CULPRIT][:8] in out
