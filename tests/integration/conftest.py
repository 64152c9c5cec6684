"""Fixtures of several files of tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli import driving
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedExecutor
from tests.support.command_bench import CULPRIT, Bench
from tests.support.simulated_bisection import Lab


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.build(tmp_path_factory.mktemp("person"), culprit=CULPRIT)


@pytest.fixture
def bench(built: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    lab = replace(built, home=tmp_path / "home", ran=[])
    lab.home.mkdir()
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(lab.home))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(lab.repo.path)
    made = Bench(lab, capsys, monkeypatch, lab.run_of)

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[SimulatedExecutor]:
        yield made.lab.executor(made.script)

    monkeypatch.setattr(driving, "open_executor", open_executor)
    before = signal.getsignal(signal.SIGTERM)
    yield made
    signal.signal(signal.SIGTERM, before)
