"""The executor of threads that the show for GPUs falls back to: real probes, two at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_train.core.executor import ExecutorEvent, ProbeFinished
from bisect_train.core.fingerprint import EndingKind
from tests.gpu.threads import ThreadExecutor
from tests.support.probes import FOREVER, TinyRepo, make_job, make_settings

MEET = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / sys.argv[2]).touch()
while len(list(here.iterdir())) < 2:
    time.sleep(0.02)
"""
LIMIT_S = 120.0


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[ThreadExecutor]:
    made = ThreadExecutor(make_settings(), tmp_path / "node", slots=2)
    yield made
    made.close()


def wait_for(executor: ThreadExecutor, num: int) -> dict[str, ExecutorEvent]:
    """Return the ends of so many probes, by id."""
    ended: dict[str, ExecutorEvent] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < num and time.monotonic() < deadline:
        events = executor.wait(1.0)
        ended.update({event.result.job_id: event for event in events if isinstance(event, ProbeFinished)})
    return ended


def test_two_probes_run_at_the_same_time(executor: ThreadExecutor, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    commit = TinyRepo(tmp_path / "repo").commit({"train.py": MEET})
    for name in ("a" * 16, "b" * 16):
        settings = make_settings(needs_recorder=False)
        executor.submit(make_job(commit, id=name, command=("python", "train.py", str(meeting), name), settings=settings))
    ended = wait_for(executor, 2)
    kinds = {event.result.fingerprint.ending.kind for event in ended.values() if isinstance(event, ProbeFinished)}
    assert len(ended) == 2 and kinds == {EndingKind.FINISHED}


def test_cancelled_probe_is_not_reported(executor: ThreadExecutor, tmp_path: Path) -> None:
    commit = TinyRepo(tmp_path / "repo").commit({"train.py": FOREVER})
    executor.submit(make_job(commit, id="c" * 16, settings=make_settings(needs_recorder=False, timeout_s=60.0)))
    assert executor.wait(LIMIT_S), "it has begun"
    executor.cancel("c" * 16)
    assert executor.wait(0.5) == []


def test_facts_are_those_of_this_machine(executor: ThreadExecutor) -> None:
    facts = executor.facts()
    assert facts.slots == 2 and sys.version.split()[0] in facts.interpreter
