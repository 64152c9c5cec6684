"""A coordinator of a service: its share of the slots, what it reports, and that it stops when the service is gone."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.cli.coordinating import SharedExecutor
from bisect_train.cli.coordinator_pipes import Reporter, Share
from bisect_train.core.changes import Variant
from bisect_train.core.executor import ProbeFinished
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeSpec, Rung, RunSettings
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.simulated_bisection import fingerprint_of

FACTS = MachineFacts("cpu", "python", 5)
SETTINGS = RunSettings("python")


def job(name: str, *, seed_idx: int = 0) -> ProbeJob:
    variant = Variant(commit="c" * 40, tree="t" * 40, command=("python", "t.py"))
    return ProbeJob(name, ProbeSpec(variant, Rung(4), seed_idx=seed_idx, repeat=2), SETTINGS, "repo")


def shared(pipe: io.StringIO, *, num: int = 1) -> tuple[SharedExecutor, Share]:
    executor = SimulatedExecutor(
        lambda job: SimulatedRun(fingerprint_of(1.0, seed_idx=0), duration_s=1.0), slots=5, facts=FACTS
    )
    share = Share()
    share.num = num
    return SharedExecutor(executor, share, Reporter(pipe)), share


@given(st.integers(1, 200), st.integers(1, 50))
def test_shares_leave_no_slot_idle_and_never_nothing(slots: int, num: int) -> None:
    share = Share()
    share.num = num
    mine = share.of(slots)
    assert 1 <= mine <= slots and mine * num >= slots and (mine - 1) * num < slots


def test_slots_follow_the_share_while_it_runs() -> None:
    executor, share = shared(io.StringIO())
    assert executor.facts().slots == 5
    share.num = 2
    assert executor.facts().slots == 3 and executor.facts().hardware_class == "cpu"
    share.num = 9
    assert executor.facts().slots == 1


def test_what_runs_is_reported_a_message_a_line() -> None:
    pipe = io.StringIO()
    executor, _ = shared(pipe)
    executor.submit(job("a", seed_idx=3))
    executor.submit(job("b"))
    executor.cancel("b")
    ended = []
    while not ended:
        ended = [event for event in executor.wait(10.0) if isinstance(event, ProbeFinished)]
    executor.close()
    said = [json.loads(line) for line in pipe.getvalue().splitlines()]
    assert said[0] == {"kind": "started", "key": "a", "seed_idx": 3, "repeat": 2}
    assert [item for item in said if item["kind"] == "gone"] == [{"kind": "gone", "key": "b"}, {"kind": "gone", "key": "a"}]


def test_reader_that_is_gone_disturbs_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        report = Reporter(pipe)
        for _ in range(3):
            report({"kind": "started", "key": "a"})
        os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.fileno())  # what was not written goes nowhere at the end


PROGRAM = """
import sys, time
from bisect_train.cli.coordinator_pipes import piped
with piped() as (report, share):
    print("for a person")
    report({"kind": "started", "key": "k"})
    try:
        while share.num == 1:
            time.sleep(0.01)
        report({"kind": "share", "num": share.num})
        time.sleep(60)
    except KeyboardInterrupt:
        report({"kind": "interrupted"})
"""


@pytest.mark.parametrize("trap", ["", "trap '' INT; "], ids=["usual", "service in the background"])
def test_process_hears_its_share_and_interrupts_itself_once_its_service_is_gone(trap: str) -> None:
    pipe = subprocess.PIPE
    command = ["sh", "-c", f'{trap}exec "$@"', "sh", sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"] == "started"
        process.stdin.write('nonsense\n{"share": "x"}\n{"share": 4}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"kind": "share", "num": 4}
        process.stdin.close()
        assert json.loads(process.stdout.readline()) == {"kind": "interrupted"}
        assert "for a person" in process.stderr.read()
