"""Record files and metric files that no recorder and no library writes: what is not as it should be counts as not there."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import MetricPattern
from bisect_train_workers.dead_rank import DeadRank, find_dead_ranks, is_peer_gone
from bisect_train_workers.ending import Evidence, decide_ending
from bisect_train_workers.process_record import ProcessRecord
from bisect_train_workers.program import Outcome
from bisect_train_workers.program_log import find_child_status
from bisect_train_workers.record_lines import clean_line
from bisect_train_workers.records import RecordReader, describe_processes, pick_ranks, to_rank_records
from bisect_train_workers.sources.csv_rows import read_csv
from bisect_train_workers.sources.mlflow_metrics import read_store
from bisect_train_workers.sources.reading import FilesBefore, read_metrics
from bisect_train_workers.whole_norms import WholeNorms


def record_of(*lines: Any) -> ProcessRecord:
    record = ProcessRecord()
    for line in lines:
        record.take(line)
    return record


def event(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "event", "name": name, "t": 1.0, "data": data}


@pytest.mark.parametrize(
    "line",
    [
        None,
        [],
        "step",
        {},
        {"type": "step"},
        {"type": "step", "step": "1"},
        {"type": "step", "step": True},
        {"type": "step", "step": -1},
        {"type": "step", "step": 10**40},
        {"type": "event"},
        {"type": "event", "name": ["exit"]},
        {"type": ["start"]},
    ],
)
def test_what_is_no_line_of_the_recorder_is_passed_over(line: Any) -> None:
    record = record_of(line)
    assert clean_line(line) is None and not record.steps and not record.events and not record.start


def test_step_keeps_what_is_of_the_right_type() -> None:
    strange = {
        "grad_norm": "1.5",
        "lr": [0.1, "x"],
        "micro": 3,
        "param_dtypes": 7,
        "samples": 5,
        "t": "now",
        "missing_grads": None,
    }
    record = record_of(
        {"type": "step", "step": 0, "loss": 2.5, "param_hash": "ab", **strange, "rss_mib": 10**400, "other": [1]}
    )
    (rank,) = to_rank_records({0: record}, num_steps=None)
    (step,) = rank.steps
    assert (step.loss, step.param_hash) == (2.5, "ab")
    assert (step.grad_norm, step.lr, step.micro, step.dtypes, step.samples, step.rss_mib) == (None, (), (), (), None, None)
    assert record.last_progress_t == 0.0 and record.longest_gap_s == 0.0 and record.steps[0]["other"] == [1]


def test_nan_and_infinity_of_a_run_that_diverges_are_numbers() -> None:
    record = record_of({"type": "step", "step": 0, "loss": math.nan, "grad_norm": math.inf, "lr": [None, 0.1]})
    (rank,) = to_rank_records({0: record}, num_steps=None)
    assert math.isnan(rank.steps[0].loss or 0.0) and rank.steps[0].grad_norm == math.inf and rank.steps[0].lr == (0.1,)


@pytest.mark.parametrize(
    "group", [{"rank": "a"}, {"rank": [1]}, {"rank": -1}, {"world_size": {}}, {"rank": 1e3}, {"rank": None}]
)
def test_rank_that_is_no_number_is_that_of_the_start(group: dict[str, Any]) -> None:
    record = record_of({"type": "start", "rank": 1, "world_size": 2, "pid": {}, "t": "x"}, event("process_group", **group))
    assert (record.rank, record.world_size, record.pid) == (1, 2, 0)
    assert pick_ranks([record])[1] is record and describe_processes([record], {1: record})["world_size"] == "2"


def test_events_with_data_of_another_shape_say_nothing() -> None:
    record = record_of(
        event("imports", outside=[1]),
        event("outside_files", written=5),
        event("exit", code="x"),
        event("step_function", is_found=True),
        {"type": "event", "name": "exception", "data": "boom", "t": "late"},
        {"type": "event", "name": "imports", "data": [1]},
    )
    assert record.written_outside == [] and record.exit_code is None and record.last_event_t == 1.0
    evidence = Evidence(Outcome(status=0), [record], {0: record}, "", Path("/w"), 3, False, 60.0, 1.0, 2.0)
    assert decide_ending(evidence).kind is EndingKind.FINISHED


def test_line_nested_beyond_reason_is_passed_over(tmp_path: Path) -> None:
    deep = '{"type": "step", "step": 0, "loss": ' + "[" * 200_000 + "]" * 200_000 + "}\n"
    (tmp_path / "rank0-pid1.jsonl").write_text(deep + json.dumps({"type": "step", "step": 1, "loss": 1.0}) + "\n")
    assert list(RecordReader(tmp_path).read()[0].steps) == [1]


def test_norm_whose_square_is_beyond_any_number_is_not_finite() -> None:
    group = event("process_group", rank=0, world_size=2)
    ranks = {
        rank: record_of(
            {**group, "data": {"rank": rank, "world_size": 2}},
            {
                "type": "step",
                "step": 0,
                "param_norm": 1e200,
                "num_params": 5,
                "param_hash": f"h{rank}",
                "param_shares": [None, 1.0],
            },
        )
        for rank in range(2)
    }
    assert WholeNorms(ranks).at(0) == {"whole_param_norm": math.sqrt(2.0)}
    for record in ranks.values():
        del record.steps[0]["param_shares"]
    assert math.isnan(WholeNorms(ranks).at(0)["whole_param_norm"])


def mlflow(path: Path, *rows: tuple[Any, ...]) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE metrics (key, value, step, run_uuid, is_nan)")
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


def test_mlflow_store_with_cells_of_other_types_is_read(tmp_path: Path) -> None:
    path = mlflow(
        tmp_path / "mlflow.db", ("loss", 1.5, math.inf, None, 0), ("loss", 2.5, "x", None, 0), (b"bytes", 1.0, 0, "r", 0)
    )
    assert read_store(path, "loss")["None"].steps == [None, None]
    assert list(read_store(path, "other")[""].known) == ["loss", "b'bytes'"]
    before = FilesBefore(((tmp_path / "checkout", ""), (tmp_path, "{out}")), {})
    pattern = MetricPattern("m", source="mlflow", key="other")
    (series,) = read_metrics([pattern], "", before, ending=Ending(EndingKind.FINISHED))
    assert series.values == () and "b'bytes'" in series.origin.note


def test_carriage_return_inside_a_header_is_no_end_of_the_program() -> None:
    points = read_csv(b"step,lo\rss,x\n0,1,2\n", "x", is_whole=True)
    assert points.values == []


def test_log_of_empty_lines_does_not_take_for_ever() -> None:
    text = "step 1\n" + "\n" * 1_000_000 + "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 123)\n"
    assert find_dead_ranks(text, explained=()) == (DeadRank(1, -9, 123),)
    assert not is_peer_gone("NCCL " * 200_000) and is_peer_gone("NCCL error: remote process exited")


def test_numbers_of_thousands_of_digits_in_a_launchers_report_are_none() -> None:
    many = "9" * 5000
    text = f"  rank : 1 (x)\n  exitcode : {many} (pid: 1)\n  rank : 1 (x)\n  exitcode : 1 (pid: {many})\n"
    assert find_dead_ranks(text, explained=()) == ()
    assert find_child_status(f"exitcode : {many}\nexitcode : -9 (pid: 1)\n") == -9
