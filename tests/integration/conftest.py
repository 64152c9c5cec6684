"""Fixtures of several files of tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli import driving
from bisect_train.cli.main import main
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedExecutor
from tests.support.command_bench import CULPRIT, Bench, Run
from tests.support.git_repos import UserRepo
from tests.support.simulated_bisection import Lab

TRAIN = "import settings\nprint(settings.LR)\n"


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


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> UserRepo:
    """Five commits on main, one on a side branch, one without a common ancestor."""
    made = UserRepo.create(tmp_path_factory.mktemp("cli") / "repo")
    for idx in range(5):
        made.commit({"train.py": TRAIN, "settings.py": f"LR = {idx}\n", "conf.yaml": f"lr: {idx}\n"}, message=f"step {idx}")
    made.git("tag", "old", "HEAD~4")
    made.git("checkout", "-q", "--orphan", "island")
    made.commit({"train.py": TRAIN + "# another\n"}, message="another history")
    made.git("checkout", "-q", "main")
    return made


@pytest.fixture
def run(repo: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs the command line in the repository, with a home of its own; returns status, stdout, stderr."""
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(repo.path)
    before = signal.getsignal(signal.SIGTERM)

    def call(*args: str, folder: Path | None = None) -> tuple[int, str, str]:
        if folder is not None:
            monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["bisect-train", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, captured.out, captured.err

    yield call
    signal.signal(signal.SIGTERM, before)
