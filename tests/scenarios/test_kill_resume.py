"""kill -9 of the coordinator, ten times at different moments: `resume` ends with the same answer, nothing is run twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bisect_train.store.contract import StoredEvent
from tests.support.command_line import CommandLine, family_of
from tests.support.training_repo import COMMAND, TrainingRepo, build_training_repo

NUM_KILLS = 10
GONE_S = 15.0


def options(folder: Path, *, ranks: int) -> list[str]:
    """Return the options of the run; each program that starts writes its probe into a file outside of its checkout."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(json.dumps({"data": {"env": {"RUNS_FILE": str(folder / "runs.txt")}}}))
    python = ["--python", sys.executable]
    return [*python, "--recipe", str(recipe), "--steps", "5", "--ranks", str(ranks), "--timeout", "120"]


def essence(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a report answers; how many runs it took may differ, and with them means and spreads a little."""
    kept = ("changes", "necessary", "sufficient", "conditions")
    culprits = [{key: culprit[key] for key in kept} for culprit in report["culprits"]]
    return {"status": report["status"], "kind": report["kind_of_change"], "culprits": culprits}


def wait_for_finished(line: CommandLine, process: subprocess.Popen[str], num: int) -> None:
    """Wait until so many probes are stored, or the command has ended."""
    while process.poll() is None:
        if sum(event.kind == "probe_finished" for event in line.events()) >= num:
            return
        time.sleep(0.2)


def kill_and_look(line: CommandLine, process: subprocess.Popen[str]) -> float:
    """Kill the coordinator alone; return how long the rest of it lived, seconds."""
    family = family_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return line.wait_until_gone(family, limit_s=GONE_S)


def restarted(events: tuple[StoredEvent, ...]) -> list[str]:
    """Return the probes that were started after they had finished."""
    finished: set[str] = set()
    again = []
    for event in events:
        if event.kind == "probe_finished":
            finished.add(event.data["key"])
        elif event.kind == "probe_started" and event.data["key"] in finished:
            again.append(event.data["key"])
    return again


def run_undisturbed(repo: TrainingRepo, folder: Path, arguments: list[str]) -> dict[str, Any]:
    line = CommandLine(repo.repo.path, folder / "home0")
    status, output = line.run("run", "--good", repo.good, "--json", str(folder / "0.json"), *arguments, "--", *COMMAND)
    assert status == 0, output
    (folder / "runs.txt").unlink()
    report: dict[str, Any] = json.loads((folder / "0.json").read_text())
    return report


@pytest.mark.scenario
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranks", [1, 2])
def test_coordinator_killed_ten_times_gives_the_same_answer(tmp_path: Path, ranks: int) -> None:
    repo = build_training_repo(tmp_path / "repo")
    arguments = options(tmp_path, ranks=ranks)
    undisturbed = run_undisturbed(repo, tmp_path, arguments)
    assert undisturbed["culprits"][0]["changes"][0]["id"] == repo.culprit
    num_probes = undisturbed["cost"]["probes"]
    line = CommandLine(repo.repo.path, tmp_path / "home")
    rng = random.Random(ranks)
    command = ["run", "--good", repo.good, *arguments, "--", *COMMAND]
    for idx in range(NUM_KILLS):
        with (tmp_path / f"out{idx}.txt").open("w") as output:
            process = line.start(*command, output=output)
            # the first kills come before a probe has ended, while Ray starts too
            wait_for_finished(line, process, max(0, (idx - 1) * num_probes // NUM_KILLS))
            time.sleep(rng.uniform(0.5, 6.0))
            assert process.poll() is None, (tmp_path / f"out{idx}.txt").read_text()
            gone_s = kill_and_look(line, process)
        num = sum(event.kind == "probe_finished" for event in line.events())
        print(f"kill {idx}: {num} probes finished, all gone after {gone_s:.1f} s", flush=True)
        command = ["resume"] if line.events() else command
    status, said = line.run("resume", "--json", str(tmp_path / "1.json"))
    print(said)
    assert status == 0
    assert essence(json.loads((tmp_path / "1.json").read_text())) == essence(undisturbed)
    events = line.events()
    assert not restarted(events)
    started = Counter(event.data["key"] for event in events if event.kind == "probe_started")
    ran = Counter((tmp_path / "runs.txt").read_text().splitlines())
    assert all(num <= started[text.split()[0]] for text, num in ran.items())
    assert len([event for event in events if event.kind == "started"]) >= NUM_KILLS - 2
    line.wait_until_gone([], limit_s=5.0)
