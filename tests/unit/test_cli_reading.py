"""A history that takes long to read is read while what runs the probes starts; a mistake in it ends both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bisect_train.cli import driving, reading
from bisect_train.core.errors import InputError
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.simulated_bisection import Lab


class Stage:
    """Stands for what starts and closes executors; notes what was done while the changes were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, slow_s: float, error: Exception | None = None) -> None:
        self.events: list[str] = []
        self.is_reading = threading.Event()
        real = reading.build_space

        def read(*args: Any) -> Any:
            self.is_reading.set()
            time.sleep(slow_s)
            self.is_reading.clear()
            if error is not None:
                raise error
            return real(*args)

        @contextmanager
        def open_executor(question: object, home: Path) -> Iterator[SimulatedExecutor]:
            self.events.append("started while reading" if self.is_reading.is_set() else "started")
            try:
                yield SimulatedExecutor(lambda job: SimulatedRun(None))
            finally:
                self.events.append("closed")

        monkeypatch.setattr(reading, "build_space", read)
        monkeypatch.setattr(driving, "open_executor", open_executor)


def test_a_short_history_is_read_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, stage = Lab.build(tmp_path, num_commits=4, culprit=2), Stage(monkeypatch, slow_s=0.0)
    monkeypatch.setattr(reading, "SLOW_READ_S", 60.0)
    with reading.read_changes(lab.repo.open(lab.home), lab.question(), lab.home) as (space, executor):
        assert len(space.changes) == 3
        assert executor is None
    assert stage.events == []


def test_while_a_long_history_is_read_the_executor_starts_and_is_closed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, stage = Lab.build(tmp_path, num_commits=4, culprit=2), Stage(monkeypatch, slow_s=0.5)
    monkeypatch.setattr(reading, "SLOW_READ_S", 0.05)
    with reading.read_changes(lab.repo.open(lab.home), lab.question(), lab.home) as (space, executor):
        assert len(space.changes) == 3
        assert executor is not None
        assert stage.events == ["started while reading"]
    assert stage.events[-1] == "closed"


def test_a_history_that_cannot_be_read_closes_what_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab.build(tmp_path, num_commits=4, culprit=2)
    stage = Stage(monkeypatch, slow_s=0.3, error=InputError("no such thing"))
    monkeypatch.setattr(reading, "SLOW_READ_S", 0.05)
    with (
        pytest.raises(InputError, match="no such thing"),
        reading.read_changes(lab.repo.open(lab.home), lab.question(), lab.home),
    ):
        pytest.fail("nothing was read")
    assert stage.events == ["started while reading", "closed"]
