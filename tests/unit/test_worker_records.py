"""From the recorder's files to the fingerprint's ranks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bisect_train_workers.records import RecordReader, describe_processes, pick_ranks, to_rank_records, to_step_record


def write(folder: Path, name: str, *lines: dict[str, Any] | str) -> None:
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    with (folder / name).open("a") as file:
        file.write("".join(texts))


def start(**more: Any) -> dict[str, Any]:
    return {"type": "start", "rank": 0, "world_size": 1, "t": 1.0, **more}


def step(idx: int, loss: float, **more: Any) -> dict[str, Any]:
    return {"type": "step", "step": idx, "loss": loss, "t": 10.0 + idx, **more}


def test_reader_takes_the_last_line_of_a_step_and_no_torn_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rank0-pid1.jsonl",
        start(),
        step(0, 1.0, provisional=True),
        step(0, 2.0),
        step(1, 3.0),
        '{"type": "step", "st',
    )
    (rank,) = to_rank_records(pick_ranks(RecordReader(tmp_path).read()), num_steps=None)
    assert [(item.step, item.loss) for item in rank.steps] == [(0, 2.0), (1, 3.0)]


def test_reader_goes_on_where_it_stopped(tmp_path: Path) -> None:
    reader = RecordReader(tmp_path)
    assert reader.read() == []
    write(tmp_path, "rank0-pid1.jsonl", start(), step(0, 1.0), '{"type": "step", "step": 1, ')
    assert len(reader.read()[0].steps) == 1
    write(tmp_path, "rank0-pid1.jsonl", '"loss": 5.0}\n', "garbage\n", "[1]\n", step(2, 6.0))
    assert [line["loss"] for line in reader.read()[0].steps.values()] == [1.0, 5.0, 6.0]


def test_reader_keeps_nan_and_infinity(tmp_path: Path) -> None:
    write(tmp_path, "rank0-pid1.jsonl", step(0, math.nan), step(1, math.inf))
    steps = RecordReader(tmp_path).read()[0].steps
    assert math.isnan(steps[0]["loss"]) and steps[1]["loss"] == math.inf


def test_rank_is_the_process_with_the_most_steps(tmp_path: Path) -> None:
    write(tmp_path, "rank0-pid1.jsonl", start(pid=1))
    write(tmp_path, "rank0-pid2.jsonl", start(pid=2, t=2.0), step(0, 1.0), step(1, 1.0))
    write(tmp_path, "rank0-pid3.jsonl", start(pid=3, t=3.0), step(0, 9.0))
    assert pick_ranks(RecordReader(tmp_path).read())[0].start["pid"] == 2


def test_rank_without_steps_is_not_its_launcher_nor_its_helper(tmp_path: Path) -> None:
    torch = {"type": "event", "name": "torch_imported", "data": {}}
    write(tmp_path, "rank0-pid1.jsonl", start(pid=1), torch)  # torchrun itself
    write(tmp_path, "rank0-pid2.jsonl", start(pid=2, t=2.0, world_size=2), torch)
    write(tmp_path, "rank0-pid3.jsonl", start(pid=3, t=3.0, world_size=2))  # started by the rank
    write(tmp_path, "rank1-pid4.jsonl", start(pid=4, t=2.0, world_size=2, rank=1))
    ranks = pick_ranks(RecordReader(tmp_path).read())
    assert {rank: process.start["pid"] for rank, process in ranks.items()} == {0: 2, 1: 4}


def test_rank_comes_from_the_process_group_where_there_is_one(tmp_path: Path) -> None:
    group = {"type": "event", "name": "process_group", "data": {"rank": 1, "world_size": 2, "backend": "gloo"}}
    write(tmp_path, "rank0-pid1.jsonl", start(), {**group, "data": {"rank": 0, "world_size": 2}}, step(0, 1.0))
    write(tmp_path, "rank0-pid2.jsonl", start(), group, step(0, 2.0))
    ranks = pick_ranks(RecordReader(tmp_path).read())
    assert sorted(ranks) == [0, 1] and ranks[1].world_size == 2


def test_ranks_leave_out_steps_after_the_last(tmp_path: Path) -> None:
    write(tmp_path, "rank0-pid1.jsonl", *[step(idx, 1.0) for idx in range(5)])
    (rank,) = to_rank_records(pick_ranks(RecordReader(tmp_path).read()), num_steps=3)
    assert [item.step for item in rank.steps] == [0, 1, 2]


def test_step_record_merges_dtypes_and_tolerates_missing_keys() -> None:
    line = {
        "param_dtypes": ["float32"],
        "grad_dtypes": ["bfloat16"],
        "autocast": "cpu:bfloat16",
        "lr": [0.1, None],
        "micro": None,
    }
    record = to_step_record({"step": 4, **line})
    assert record.dtypes == ("param:float32", "grad:bfloat16", "autocast:cpu:bfloat16")
    assert (record.lr, record.micro, record.loss, record.missing_grads, record.skipped) == ((0.1,), (), None, 0, False)


def test_facts_come_from_the_start_line_and_torch(tmp_path: Path) -> None:
    torch = {"type": "event", "name": "torch_imported", "data": {"version": "2.13", "threads": 1}}
    write(tmp_path, "rank0-pid1.jsonl", start(python="3.11.7", executable="/p", recorder="1", channel="sitecustomize"), torch)
    processes = RecordReader(tmp_path).read()
    facts = describe_processes(processes, pick_ranks(processes))
    assert facts == {
        "python": "3.11.7",
        "executable": "/p",
        "recorder": "1",
        "channel": "sitecustomize",
        "world_size": "1",
        "torch": "2.13",
        "threads": "1",
    }
    assert describe_processes([], {}) == {}


def test_written_outside_is_what_the_last_event_says(tmp_path: Path) -> None:
    early, late = (
        {"type": "event", "name": "outside_files", "step": 0, "data": {"written": paths, "read": ["/d"]}}
        for paths in (["/a"], ["/b", "/c"])
    )
    write(tmp_path, "rank0-pid1.jsonl", start(), early, late)
    write(tmp_path, "rank1-pid2.jsonl", start(rank=1))
    assert [process.written_outside for process in RecordReader(tmp_path).read()] == [["/b", "/c"], []]
