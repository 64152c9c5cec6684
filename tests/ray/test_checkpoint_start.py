"""A divergence at step 50,000 is bisected from the user's checkpoint of step 49,900; and one that only a restart shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo
from tests.support.restart_programs import resuming_program

TRAIN = """
import json, random, sys
import schedule

state = json.load(open(sys.argv[sys.argv.index("--resume") + 1]))
random.seed(state["step"])
weight = state["weight"]
for step in range(state["step"], state["step"] + 120):
    weight -= schedule.rate(step) * (weight - 1.0 + random.gauss(0.0, 0.01))
    print(f"step {step} loss {(weight - 1.0) ** 2:.9f}")
"""
RATES = {False: "def rate(step):\n    return 0.1\n", True: "def rate(step):\n    return 0.1 if step < 50_000 else 2.2\n"}


@pytest.mark.scenario
def test_divergence_behind_a_checkpoint_is_bisected_from_it(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commits = []
    for idx in range(8):
        files = {"train.py": TRAIN, "schedule.py": RATES[idx >= 5], "notes.txt": f"{idx}\n"}
        commits.append(repo.commit(files, message=f"part {idx}"))
    (tmp_path / "step49900.json").write_text(json.dumps({"step": 49_900, "weight": 1.05}))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "command: [python, train.py, --resume, state.json]\n"
        f"data: {{link: [{{from: {tmp_path}/step49900.json, to: state.json}}]}}\n"
        "metrics: {end_loss: {pattern: 'loss (?P<value>[-+0-9.e]+|nan|inf)', reduce: last}}\n"
    )
    line = CommandLine(repo.path, tmp_path / "home")
    wanted = ["--good", commits[0], "--bad", commits[-1], "--recipe", str(recipe), "--steps", "end"]
    status, said = line.run("run", *wanted, "--json", str(tmp_path / "report.json"), timeout_s=200)
    assert status == 0, said
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["status"] == "isolated"
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[5]]


@pytest.mark.slow
def test_probe_of_a_recipe_with_a_restart_shows_both_runs(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    repo.commit({"train.py": resuming_program("optimizer")})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        'command: [python, train.py, "{out}"]\nshrink: {steps: 9}\nrestart: {save_at: 5, command: ["{command}", --resume]}\n'
    )
    line = CommandLine(repo.path, tmp_path / "home")
    target = tmp_path / "probe.json"
    status, said = line.run("probe", "--recipe", str(recipe), "--json", str(target), timeout_s=200)
    assert status == 0, said
    fingerprint = json.loads(target.read_text())["result"]["fingerprint"]
    whole, restarted = (fingerprint[name][0]["steps"] for name in ("uninterrupted", "ranks"))
    same = [one["param_hash"] == other["param_hash"] for one, other in zip(whole, restarted, strict=True)]
    assert same == [True] * 6 + [False] * 3
    status, said = line.run("probe", "--recipe", str(recipe), "--steps", "6", timeout_s=100)
    assert status == 2 and "restart.save_at: 5 leaves no step for the resumed run" in said
