"""Runs one method on one history, for real, and counts: probes, training steps, wall and processor time, right or wrong.

Every method works in a clone of its own with one thread per process. The peers' programs are counted from outside (each step
appends a byte to a file), bisect-train's by its report; where the program counts itself, by the program for all of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from bisect_train.store.home import open_store
from tests.benchmarks.accounting import Spent, run_accounted
from tests.benchmarks.peers import FOLDER_VARIABLE, find_peer
from tests.benchmarks.scenarios_to_bisect import HOOK, Scenario, Script
from tests.support.git_repos import git

Limit = tuple[float, int]
JUDGED_RUN = Path(__file__).with_name("judged_run.py")


@dataclass(frozen=True)
class Cost:
    """What one method took on one history.

    Attributes:
        probes: runs of the program.
        steps: optimizer steps of all runs.
        wall_s, cpu_s: of the whole command, seconds; cpu_s None where it was not run for real.
        is_right: whether it named the culprit, and nothing else.
        ray_s: of wall_s, until Ray was up; None for the others.
        note: what a reader should know.
    """

    probes: int
    steps: int
    wall_s: float
    cpu_s: float | None
    is_right: bool
    ray_s: float | None = None
    note: str = ""


def clone_of(scenario: Scenario, folder: Path) -> Path:
    """Return a fresh clone with the bad end checked out and the files that the program needs."""
    shutil.rmtree(folder, ignore_errors=True)
    git(folder.parent, "clone", "-q", str(scenario.repo), str(folder))
    git(folder, "checkout", "-q", "--detach", scenario.bad)
    for name, source in scenario.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    return folder


def environment(**more: str) -> dict[str, str]:
    """Return the environment of all methods: one thread, nothing of git's or ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "RAY_", "BISECT_TRAIN", "STEP_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


class Bench:
    """The folder of one history, and its thresholds."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        folder.mkdir()
        self._steps, self._runs = folder / "steps", folder / "runs"
        given = scenario.thresholds
        self._thresholds: tuple[Limit, Limit] | None = ((given[0], 1), (given[1], 1)) if given is not None else None

    def _env_of(self, script: Script) -> dict[str, str]:
        env = {"STEP_LOG": str(self._steps), "STOP_AFTER": str(script.stop_after)}
        return env if self.scenario.has_own_count else {**env, "PYTHONPATH": str(HOOK)}

    def threshold(self, script: Script) -> Limit:
        """Return the metric halfway between the ends, and 1 if the bad end lies above it, else -1; measured once."""
        scripts = (self.scenario.full, self.scenario.short)
        if self._thresholds is None:
            self._thresholds = (self._halfway(scripts[0]), self._halfway(scripts[1]))
        return self._thresholds[scripts.index(script)]

    def _halfway(self, script: Script) -> Limit:
        clone, values = clone_of(self.scenario, self.folder / "ends"), []
        for commit in (self.scenario.good, self.scenario.bad):
            git(clone, "checkout", "-q", "--detach", commit)
            env = environment(**self._env_of(script))
            done = subprocess.run(script.command, cwd=clone, env=env, capture_output=True, text=True, check=True)
            values.append(float(re.findall(self.scenario.pattern, done.stdout)[-1]))
        assert values[0] != values[1], values
        return sum(values) / 2, 1 if values[0] < values[1] else -1

    def _judging(self, script: Script) -> list[str]:
        """Return the command that trains and judges, as `git bisect run` takes it; the counters start anew."""
        threshold, sign = self.threshold(script)
        told = {
            "command": script.command,
            "env": self._env_of(script),
            "pattern": self.scenario.pattern,
            "threshold": threshold,
            "sign": sign,
            "runs": str(self._runs),
        }
        path = self.folder / "judged.json"
        path.write_text(json.dumps(told))
        self._forget()
        return [sys.executable, str(JUDGED_RUN), str(path)]

    def _forget(self) -> None:
        for path in (self._steps, self._runs):
            path.unlink(missing_ok=True)

    def _counted(self, spent: Spent, *, is_right: bool, note: str = "") -> Cost:
        probes = len(self._runs.read_text().splitlines()) if self._runs.exists() else 0
        steps = self._steps.stat().st_size if self._steps.exists() else 0
        return Cost(probes, steps, spent.wall_s, spent.cpu_s, is_right, note=note)

    # ---- the methods ----------------------------------------------------------------------------------------------

    def git_bisect(self, script: Script) -> Cost:
        """Run `git bisect run`, along the main line."""
        clone, judging = clone_of(self.scenario, self.folder / "git"), self._judging(script)
        git(clone, "bisect", "start", "--first-parent", self.scenario.bad, self.scenario.good)
        spent = run_accounted(["git", "bisect", "run", *judging], folder=clone, env=environment())
        named = re.findall(r"^([0-9a-f]{40}) is the first bad commit", spent.output, re.MULTILINE)
        return self._counted(spent, is_right=len(named) == 1 and named[0] in self.scenario.culprits)

    def bayesect(self, script: Script) -> Cost | None:
        """Run git-bayesect's own command line; None where it is not installed."""
        if find_peer("git_bayesect") is None:
            return None
        clone, judging = clone_of(self.scenario, self.folder / "bayesect"), self._judging(script)
        env = environment(PYTHONPATH=os.environ.get(FOLDER_VARIABLE, ""))
        command = [sys.executable, "-m", "git_bayesect"]
        ends = ["--old", self.scenario.good, "--new", self.scenario.bad]
        subprocess.run([*command, "start", *ends], cwd=clone, env=env, check=True, capture_output=True)
        spent = run_accounted([*command, "run", *judging], folder=clone, env=env)
        named = re.findall(r"^Bisection converged to ([0-9a-f]{7,40}) ", spent.output, re.MULTILINE)
        is_right = len(named) == 1 and any(culprit.startswith(named[0]) for culprit in self.scenario.culprits)
        return self._counted(spent, is_right=is_right)

    def bisect_train(self, home: Path) -> Cost:
        """Run `bisect-train run` with an empty home: nothing is known from before."""
        clone, report = clone_of(self.scenario, self.folder / "ours"), self.folder / "report.json"
        shutil.rmtree(home, ignore_errors=True)
        report.unlink(missing_ok=True)
        self._forget()
        env = environment(BISECT_TRAIN_HOME=str(home), STEP_LOG=str(self._steps))
        options, dashes, program = _split(self.scenario.asked)
        ends = ["--good", self.scenario.good, "--bad", self.scenario.bad, "--json", str(report), "--quiet"]
        command = [sys.executable, "-m", "bisect_train.cli.main", "run", *ends, *options, *dashes, *program]
        spent = run_accounted(command, folder=clone, env=env)
        if not report.exists():
            return Cost(0, 0, spent.wall_s, spent.cpu_s, False, note=f"status {spent.status}: {spent.output[-300:]}")
        told = json.loads(report.read_text())
        named = [change["id"] for culprit in told["culprits"] for change in culprit["changes"]]
        is_right = told["status"] == "isolated" and len(named) == 1 and named[0] in self.scenario.culprits
        cost = Cost(told["cost"]["probes"], told["cost"]["steps"], spent.wall_s, spent.cpu_s, is_right, _ray_s(home, spent))
        if self.scenario.has_own_count:
            cost = replace(cost, steps=self._steps.stat().st_size)
        return replace(cost, note="" if is_right else f"{told['status']}: {told['summary']}")


def _split(asked: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    if "--" not in asked:
        return list(asked), [], []
    idx = asked.index("--")
    return list(asked[:idx]), ["--"], list(asked[idx + 1 :])


def _ray_s(home: Path, spent: Spent) -> float:
    """Return the time from the command's start until its first probe could be started, seconds: Ray is up then."""
    store = open_store(home)
    try:
        events = (event for stored in store.list() for event in store.events(stored.id))  # a look inside may have none
        first = min(event.time_s for event in events if event.kind == "probe_started")
    finally:
        store.close()
    return first - spent.began_s
