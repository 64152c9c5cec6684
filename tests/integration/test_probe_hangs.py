"""Real hangs, slow starts and dying ranks: what the probe says, whose stacks it shows, and that nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.fingerprint import EndingKind, RankRecord
from bisect_train.core.probe import ProbeResult
from bisect_train_workers.injection import RECORDER_FOLDER
from bisect_train_workers.processes import find_marked
from tests.support import hanging_programs as programs
from tests.support.probes import job_of, make_settings, result_of

BUSY_START = """
import fake_training, time
ends = time.monotonic() + {first_s}
while time.monotonic() < ends:
    sum(range(10000))  # the compiler of the first step: silent, and it computes
fake_training.step(1.0)
while True:
    time.sleep({later_s})
    fake_training.step(1.0)
"""


def run_torch(folder: Path, program: str, *, limit_s: float, **changes: Any) -> ProbeResult:
    """Run a program with the real recorder; nothing of it may be left afterwards."""
    name = f"hang-{folder.name[-12:]}"
    job = job_of(folder / "r", program, **{"id": name, "settings": make_settings(timeout_s=limit_s), **changes})
    result = result_of(job, folder / "n", recorder=RECORDER_FOLDER)
    assert find_marked(lambda marker: marker.startswith(f"{name}:")) == []
    assert result.wall_s < limit_s + 30.0
    return result


def standing(record: RankRecord) -> dict[str, Any]:
    """Return where a rank stood at the time limit."""
    (event,) = [event for event in record.events if event.name == "at_limit"]
    return event.data


@pytest.mark.parametrize(("first_s", "later_s"), [(60.0, 0.0), (1.8, 60.0)], ids=["under way", "just over"])
def test_slow_first_step_is_no_hang(tmp_path: Path, first_s: float, later_s: float) -> None:
    program = BUSY_START.format(first_s=first_s, later_s=later_s)
    result = result_of(job_of(tmp_path / "r", program, settings=make_settings(timeout_s=3.0)), tmp_path / "n")
    assert result.fingerprint.ending.signature == "timeout: slow"
    if first_s > 3.0:
        assert "but it was computing" in result.fingerprint.ending.message
        assert standing(result.fingerprint.ranks[0])["cores"] > 0.1


def test_program_that_waits_for_a_child_that_waits_hangs(tmp_path: Path) -> None:
    program = "import fake_training, subprocess, sys\nsubprocess.run(['sleep', '60'])\n"
    result = result_of(job_of(tmp_path / "r", program, settings=make_settings(timeout_s=2.0)), tmp_path / "n")
    assert result.fingerprint.ending.signature == "timeout: hang"
    assert standing(result.fingerprint.ranks[0])["waits_in"] in ("_try_wait", "wait", "_wait")


@pytest.mark.slow
def test_rank_that_waits_for_one_that_never_started_hangs_in_init(tmp_path: Path) -> None:
    result = run_torch(tmp_path, programs.INIT, limit_s=20.0, command=("python", "train.py", "{port}"))
    ending = result.fingerprint.ending
    assert (ending.kind, ending.signature) == (EndingKind.TIMEOUT, "timeout: hang")
    assert "rank 0 waits in init_process_group; only 1 of 2 ranks came" in ending.message
    assert any("init_process_group" in text for _, text in result.stacks)


@pytest.mark.scenario
def test_hang_in_the_last_barrier_shows_where_each_rank_waits(tmp_path: Path) -> None:
    command = ("python", "train.py", "{out}")
    result = run_torch(tmp_path, programs.LAST_BARRIER, limit_s=45.0, command=command, ranks=2, steps=None)
    assert result.fingerprint.ending.signature == "timeout: hang", result.fingerprint.ending
    assert [len(record.steps) for record in result.fingerprint.ranks] == [6, 6]
    assert [standing(record)["waits_in"] for record in result.fingerprint.ranks] == ["barrier", "all_reduce"]
    text_of = {name.split("-")[1]: text for name, text in result.stacks if "train.py" in text}
    assert "barrier" in text_of["rank0"] and "all_reduce" in text_of["rank1"]


EXPECTED = {
    "raises": (EndingKind.CRASHED, "ValueError: bad batch of rank 1"),
    "exits": (EndingKind.CRASHED, "rank 1 ended with exit status 3"),
    "killed": (EndingKind.KILLED, "rank 1: ended by SIGKILL"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "how"),
    [
        *((fault, "torchrun") for fault in programs.FAULTS),
        *(pytest.param(fault, "spawn", marks=() if fault == "killed" else pytest.mark.scenario) for fault in programs.FAULTS),
    ],
)
def test_rank_that_dies_is_the_ending_and_not_those_that_lost_it(tmp_path: Path, fault: str, how: str) -> None:
    ranks = 2 if how == "torchrun" else 1
    program = programs.dying(fault, how)
    result = run_torch(tmp_path, program, limit_s=120.0, command=("python", "train.py", "{port}"), ranks=ranks)
    kind, message = EXPECTED[fault]
    assert result.fingerprint.ending.kind is kind
    assert result.fingerprint.ending.message.startswith(message)
    assert [record.rank for record in result.fingerprint.ranks] == [0, 1]  # spawned ranks have no RANK in their environment


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raises", pytest.param("exits", marks=pytest.mark.scenario)])
def test_rank_that_dies_unwatched_is_the_ending(tmp_path: Path, fault: str) -> None:
    program = programs.dying(fault, "processes")  # the parent ends with status 0
    result = run_torch(tmp_path, program, limit_s=120.0, command=("python", "train.py", "{port}"))
    said = {"raises": "ValueError: bad batch of rank 1", "exits": "rank 1 ended after 2 steps without an exception"}[fault]
    assert result.fingerprint.ending.kind is EndingKind.CRASHED
    assert result.fingerprint.ending.message.startswith(said)
