"""Several nodes of one probe: records laid beside each other, one outcome, and nobody who waits for ranks that failed."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from bisect_train_workers import gang
from bisect_train_workers.gang import PID_STRIDE, News, RunningGang, has_failed, join_outcomes, lay_beside, shift_log
from bisect_train_workers.program import Outcome, RunningProgram, SupervisorLostError
from bisect_train_workers.records import RecordReader, pick_ranks

OK, FAILED, ORDERED = Outcome(status=0), Outcome(status=1), Outcome(ended_by="orders", status=None)


def line(**more: Any) -> bytes:
    return json.dumps(more).encode() + b"\n"


def start(rank: int, pid: int = 7, t: float = 100.0) -> bytes:
    return line(type="start", rank=rank, world_size=2, pid=pid, t=t)


def step(idx: int, loss: float, t: float = 101.0) -> bytes:
    return line(type="step", step=idx, loss=loss, t=t)


@dataclass
class FakeMember:
    """A member that says one thing after the other."""

    said: list[News]
    calls: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def news(self) -> News:
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    def stop(self) -> News:
        self.calls.append("stop")
        return replace(self.said[-1], log="stopped", outcome=self.said[-1].outcome or ORDERED)


class FakeProgram:
    """The program of this node."""

    def __init__(self, outcome: Outcome | None) -> None:
        self.result, self.has_been_ended = outcome, False

    def wait(self, timeout_s: float) -> bool:
        return self.result is not None

    def outcome(self) -> Outcome:
        return self.result or Outcome(ended_by="orders", status=None)

    def end(self) -> None:
        self.has_been_ended = True


def gang_of(tmp_path: Path, own: FakeProgram, *members: FakeMember) -> RunningGang:
    return RunningGang(cast(RunningProgram, own), tmp_path, members)


def test_records_of_nodes_with_the_same_process_id_are_those_of_different_ranks(tmp_path: Path) -> None:
    (tmp_path / "rank0-pid7.jsonl").write_bytes(start(0) + step(0, 0.1))
    lay_beside(News((("rank1-pid7.jsonl", 0, start(1) + step(0, 0.2)),), now_t=0.0), tmp_path, idx=1, offset_s=0.0)
    lay_beside(News((("rank1-pid7.jsonl", 99, step(1, 1.0 / 3.0)),), now_t=0.0), tmp_path, idx=1, offset_s=0.0)
    ranks = pick_ranks(RecordReader(tmp_path).read())
    assert [record.pid for record in ranks.values()] == [7, 7 + PID_STRIDE]
    assert [record.steps[0]["loss"] for record in ranks.values()] == [0.1, 0.2]
    assert ranks[1].steps[1]["loss"] == 1.0 / 3.0, "to the last bit"


def test_times_of_another_clock_are_set_to_this_one_by_the_news_that_came_quickest(tmp_path: Path) -> None:
    now = time.time()
    slow = News((("rank1-pid7.jsonl", 0, start(1, t=1000.0)),), now_t=1000.0)  # said to have taken no time at all
    quick = News((("rank1-pid7.jsonl", 9, step(0, 0.5, t=1000.0)),), now_t=1010.0)
    running = gang_of(tmp_path, FakeProgram(None), FakeMember([slow, quick, quick]))
    assert not running.wait(0.0) and not running.wait(0.0)
    (record,) = RecordReader(tmp_path).read()
    assert record.start["t"] == pytest.approx(now, abs=5.0)
    assert record.steps[0]["t"] == pytest.approx(now - 10.0, abs=5.0)


@pytest.mark.parametrize("name", ["../rank1-pid7.jsonl", "rank1-pid7.jsonl/..", "settings.json", "rank1-pid7.txt.jsonl", ""])
def test_file_of_another_name_is_not_written(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    lay_beside(News(((name, 0, b"{}\n"),), now_t=0.0), folder, idx=1, offset_s=0.0)
    assert list(tmp_path.rglob("*")) == [folder]


@pytest.mark.parametrize("content", [b"not json\n", b"[1]\n", b'{"pid": "x", "t": null}\n', b"\xff\xfe\n", b"[" * 9999 + b"\n"])
def test_lines_that_are_none_of_the_recorders_are_kept_as_they_are(tmp_path: Path, content: bytes) -> None:
    lay_beside(News((("rank1-pid7.jsonl", 0, content),), now_t=0.0), tmp_path, idx=1, offset_s=0.0)
    (path,) = tmp_path.iterdir()
    written = path.read_bytes()
    assert written == content or json.loads(written) == json.loads(content)


def test_stacks_are_laid_beside_with_the_process_that_they_are_of(tmp_path: Path) -> None:
    lay_beside(News((("stacks-rank1-pid7.txt", 0, b"Current thread\n"),), now_t=0.0), tmp_path, idx=2, offset_s=0.0)
    assert (tmp_path / f"stacks-rank1-pid{7 + 2 * PID_STRIDE}.txt").read_bytes() == b"Current thread\n"


def test_what_torchrun_says_of_a_process_is_said_of_the_one_in_the_records() -> None:
    log = "  rank      : 1 (local_rank: 0)\n  exitcode  : -9 (pid: 41)\n"
    assert shift_log(log, idx=1) == f"  rank      : 1 (local_rank: 0)\n  exitcode  : -9 (pid: {41 + PID_STRIDE})\n"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (OK, False),
        (FAILED, True),
        (Outcome(status=-9), True),
        (Outcome(start_error="no such file"), True),
        (Outcome(ended_by="timeout", status=None), True),
        (Outcome(ended_by="orders", status=None), False),
    ],
)
def test_failure_is_what_was_not_ordered(outcome: Outcome, expected: bool) -> None:
    assert has_failed(outcome) == expected


def test_outcome_of_all_nodes_is_that_of_the_first_failure() -> None:
    own = Outcome(status=1, run_s=7.0, left_pids=(3,), dropped_bytes=1, cores={3: 0.5})
    other = Outcome(status=-6, run_s=8.0, left_pids=(3,), dropped_bytes=2, cores={3: 0.25})
    found = join_outcomes(own, [(1, other), (2, None)], first_failure=other)
    assert (found.status, found.run_s, found.dropped_bytes) == (-6, 8.0, 3), "as long as the longest"
    assert found.left_pids == (3, 3 + PID_STRIDE) and found.cores == {3: 0.5, 3 + PID_STRIDE: 0.25}
    assert join_outcomes(OK, [(1, OK)], first_failure=None).status == 0


def test_gang_has_ended_when_all_its_nodes_have(tmp_path: Path) -> None:
    member = FakeMember([News(), News(outcome=OK, log="there")])
    running = gang_of(tmp_path, FakeProgram(OK), member)
    assert not running.wait(0.0)
    assert running.wait(0.0)
    running.end()
    assert running.outcome().status == 0 and running.logs() == ["there"] and member.calls == []


def test_ranks_that_wait_for_failed_ones_are_ended_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "GRACE_S", 0.05)
    own, waiting, failed = FakeProgram(None), FakeMember([News()]), FakeMember([News(outcome=FAILED, oom_kills=1)])
    running = gang_of(tmp_path, own, waiting, failed)
    assert not running.wait(0.0)
    time.sleep(0.1)
    assert running.wait(0.0)
    running.end()
    assert own.has_been_ended and (waiting.calls, failed.calls) == (["stop"], [])
    assert running.logs() == ["stopped", ""], "what a node said last is not lost"
    assert (running.outcome().status, running.outcome().ended_by, running.oom_kills) == (1, "itself", 1)


def test_first_failure_stands_whatever_the_others_say_later(tmp_path: Path) -> None:
    own, member = FakeProgram(None), FakeMember([News(outcome=Outcome(status=-11))])
    running = gang_of(tmp_path, own, member)
    assert not running.wait(0.0)
    own.result = FAILED
    assert running.wait(0.0)
    assert running.outcome().status == -11


def test_share_that_somebody_else_ended_says_nothing_of_the_variant(tmp_path: Path) -> None:
    running = gang_of(tmp_path, FakeProgram(FAILED), FakeMember([News(outcome=ORDERED)]))
    with pytest.raises(SupervisorLostError, match="not by this probe"):
        running.wait(0.0)


def test_member_that_is_gone_at_the_end_disturbs_nothing(tmp_path: Path) -> None:
    class Gone(FakeMember):
        def stop(self) -> News:
            raise OSError("gone")

    own = FakeProgram(None)
    running = gang_of(tmp_path, own, Gone([News()]))
    running.end()
    assert own.has_been_ended
