"""The read set of a probe: what its processes told, united, and every doubt."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from bisect_train.core.changes import Variant
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import EnvironmentSettings, ProbeJob, ProbeSpec, RestartSettings, Rung, RunSettings
from bisect_train.core.reads import ReadSet, read_set_of_events, unite
from bisect_train_workers.read_sets import doubts_of_job, find_reads
from bisect_train_workers.records import ProcessRecord, to_rank_records

RANK = {"files": ["train.py"], "folders": [], "searched": [""], "natives": ["torch"], "doubts": [], "launcher": False}
LAUNCHER = {**RANK, "files": [], "doubts": ["subprocess.Popen /usr/bin/python3.11"], "launcher": True}
SETTINGS = RunSettings("/usr/bin/python3")


def spec(*command: str, **more: Any) -> ProbeSpec:
    return ProbeSpec(Variant("tree", "commit", command or ("python", "train.py"), **more), Rung(4))


def process(*told: dict[str, Any], rank: int = 0, world_size: int = 1) -> ProcessRecord:
    """Return the record of a process that told so much."""
    record = ProcessRecord(start={"rank": rank, "world_size": world_size, "pid": rank + 1})
    for data in told:
        record.take({"type": "event", "name": "files_read", "step": 0, "t": 0.0, "data": data})
    return record


def test_union_has_all_paths_once_in_order() -> None:
    told = [RANK, {**RANK, "files": ["b.py", "a.py", "train.py"], "folders": ["data"], "doubts": []}]
    assert read_set_of_events(told) == ReadSet(("a.py", "b.py", "train.py"), ("data",), ("",), ("torch",))


def test_silent_process_and_no_process_are_doubts() -> None:
    assert read_set_of_events([RANK]).is_complete
    assert read_set_of_events([RANK, None]).doubts == ("a run has not told what it read",)
    assert not read_set_of_events([]).is_complete and not unite([]).is_complete and not unite([None]).is_complete


def test_pythons_that_torchrun_starts_are_no_doubt_and_others_are() -> None:
    assert read_set_of_events([LAUNCHER, RANK, RANK]).is_complete
    for doubt in ("subprocess.Popen bash", "os.fork", "subprocess.Popen /usr/bin/git"):
        assert read_set_of_events([{**LAUNCHER, "doubts": [doubt]}, RANK]).doubts == (doubt,)
    assert not read_set_of_events([{**LAUNCHER, "launcher": False}]).is_complete, "a program that starts a python itself"


@pytest.mark.parametrize(
    ("changes", "command", "more"),
    [
        ({"setup": (("make",),)}, (), {}),
        ({"judge": ("./judge",)}, (), {}),
        ({"restart": RestartSettings(2, ("python", "train.py"))}, (), {}),
        ({"environment": EnvironmentSettings(files=("requirements.txt",))}, (), {}),
        ({}, (), {"launcher": ("docker", "run")}),
        ({}, ("bash", "run.sh"), {}),
        ({}, ("accelerate", "launch", "train.py"), {}),
        ({}, ("./train.py",), {}),
    ],
)
def test_whoever_else_may_read_the_checkout_is_a_doubt(
    changes: dict[str, Any], command: tuple[str, ...], more: dict[str, Any]
) -> None:
    assert len(doubts_of_job(spec(*command, **more), replace(SETTINGS, **changes))) == 1


@pytest.mark.parametrize("first", ["python", "python3", "/opt/x/bin/python3.12", "/usr/bin/python3", "torchrun"])
def test_python_and_torchrun_are_no_doubt(first: str) -> None:
    assert doubts_of_job(spec(first, "train.py"), SETTINGS) == ()


def test_reads_of_a_probe_need_every_rank_and_their_launcher() -> None:
    job = ProbeJob("id", spec(), SETTINGS, "repo")
    ranks = [process(RANK, rank=rank, world_size=2) for rank in range(2)]
    by_rank = dict(enumerate(ranks))
    assert find_reads([process(LAUNCHER), *ranks], by_rank, job).is_complete
    assert not find_reads([process(LAUNCHER), ranks[0]], {0: ranks[0]}, job).is_complete, "a rank has no record"
    assert not find_reads([process(), *ranks], by_rank, job).is_complete, "the launcher was killed"
    assert not find_reads([], {}, job).is_complete


def test_what_was_told_so_far_counts_only_where_the_run_was_stopped_early() -> None:
    job, early = ProbeJob("id", spec(), SETTINGS, "repo"), {**RANK, "so_far": True}
    one = process(early)
    assert not find_reads([one], {0: one}, job).is_complete
    assert find_reads([one], {0: one}, job, is_early=True).is_complete
    both = process(early, {**RANK, "files": ["later.py", "train.py"]})
    assert find_reads([both], {0: both}, job).files == ("later.py", "train.py")


def test_program_that_became_another_one_has_not_told_what_it_read() -> None:
    job, one = ProbeJob("id", spec(), SETTINGS, "repo"), process(RANK)
    for num_starts in (1, 2):
        one.take({"type": "start", "rank": 0, "world_size": 1, "pid": 1})
        assert find_reads([one], {0: one}, job).is_complete == (num_starts == 1)


def test_reads_travel_with_the_fingerprint_and_not_as_events() -> None:
    reads = ReadSet(("a\udcff.py",), doubts=("os.fork",))
    shown = Fingerprint(Ending(EndingKind.STOPPED), reads=reads)
    assert Fingerprint.of_json(json.loads(json.dumps(shown.to_json()))) == shown
    assert Fingerprint.of_json(Fingerprint(Ending(EndingKind.STOPPED)).to_json()).reads is None
    assert ReadSet.of_json(asdict(reads)) == reads
    (rank,) = to_rank_records({0: process(RANK)}, num_steps=None)
    assert rank.events == ()
