"""`run --metric step_cpu_s` as a command, on generated costs: what the report says, and what it says on a noisy machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisect_train.changes.repository import Repository
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, RankRecord, Reference, StepRecord
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.scenarios.library.replay import run_command
from tests.scenarios.library.scenario import Built, check_report
from tests.scenarios.library.throughput import SLIDING_WINDOW

STOPPED = Ending(EndingKind.STOPPED)
OPERATION = "aten::_scaled_dot_product_flash_attention_for_cpu"


class Machine:
    """Runs whose steps cost what the files of their tree say: the mask 36 %, the summary of the losses 3 %."""

    def __init__(self, repository: Repository, *, noise: float, is_cpu_noisy: bool = True) -> None:
        self._repository = repository
        self._noise = noise
        self._is_cpu_noisy = is_cpu_noisy
        self._rng = np.random.default_rng(5)
        self.jobs: list[ProbeJob] = []

    def run(self, job: ProbeJob) -> SimulatedRun:
        self.jobs.append(job)
        reference = Reference(STOPPED, (self._record(self._cost_of(job.reference.variant.tree)),)) if job.reference else None
        record = self._record(self._cost_of(job.spec.variant.tree), is_profiled=job.settings.profile)
        return SimulatedRun(Fingerprint(STOPPED, (record,), reference=reference), 2.0)

    def _cost_of(self, tree: str) -> float:
        model, train = (self._repository.git.text("cat-file", "blob", f"{tree}:{name}") for name in ("model.py", "train.py"))
        return 0.004 * (1.0 + 0.36 * ("attn_mask" in model) + 0.03 * ("json.dumps" in train))

    def _record(self, cost_s: float, *, is_profiled: bool = False) -> RankRecord:
        level = cost_s * np.exp(self._noise * self._rng.normal())
        cpu_s = level if self._is_cpu_noisy else cost_s
        steps = tuple(
            StepRecord(idx, loss=1.0, step_s=float(level), step_cpu_s=float(cpu_s * (1 + 0.02 * jitter)), data_s=0.0)
            for idx, jitter in enumerate(self._rng.random(12))
        )
        rows = [[OPERATION, 10 * (cost_s - 0.003), 0.0, 10, 0], ["aten::copy_", 0.002, 0.0, 10, 0]]
        data = {"steps": 10, "wall_s": 10 * cost_s, "operations": rows, "others": {"num": 0, "cpu_s": 0.0, "device_s": 0.0}}
        return RankRecord(0, steps, (Event("profile", 11, data),) if is_profiled else ())


def bisect(folder: Path, *, noise: float, metric: str = "step_cpu_s") -> tuple[Built, Machine, int, dict[str, Any]]:
    built = SLIDING_WINDOW.build(folder)
    built = replace(built, options=tuple(metric if item == "step_cpu_s" else item for item in built.options))
    home = folder / "home"
    machine = Machine(Repository.open(built.path, home=home), noise=noise, is_cpu_noisy=metric == "step_cpu_s")

    @contextlib.contextmanager
    def open_simulated(question: Question, home: Path) -> Iterator[Executor]:
        yield SimulatedExecutor(machine.run, slots=2)

    return built, machine, *run_command(built, home, open_simulated)


def test_slower_commit_is_named_in_percent_with_the_operation_that_grew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built, machine, status, report = bisect(tmp_path, noise=0.015)
    check_report(SLIDING_WINDOW.truth, built, report, status)
    effect = report["culprits"][0]["effect"]
    assert (effect["metric"], effect["unit"]) == ("step_cpu_s", "%") and effect["num_bad"] >= 3
    assert report["triage"]["second_look"]["kind"] == "profile"
    assert OPERATION in " ".join(report["triage"]["second_look"]["said"])
    assert [job.settings.profile for job in machine.jobs[-2:]] == [True, True]
    assert all(job.reference is None for job in machine.jobs if job.settings.profile)
    said = capsys.readouterr().out
    assert "A second run of both sides, with torch's profiler" in said and OPERATION in said
    assert "one pair at a time" in said


def test_noisy_machine_says_so_with_status_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, status, report = bisect(tmp_path, noise=0.8)
    assert (status, report["status"], report["culprits"]) == (4, "not_reproduced", [])
    assert "too noisy to tell" in report["summary"], report["summary"]
    assert "too noisy to tell" in capsys.readouterr().out


def test_wall_time_that_tells_nothing_points_to_the_cpu_time_of_the_same_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, status, report = bisect(tmp_path, noise=0.8, metric="step_s")
    assert (status, report["status"]) == (4, "not_reproduced")
    assert "--metric step_cpu_s is less disturbed" in report["summary"]
    assert "By CPU time the same runs differ by" in " ".join(capsys.readouterr().out.split())
