"""Metrics from files: what the real libraries wrote is read back, and what is cut off or damaged gives no wrong value."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train_workers.sources.csv_rows import read_csv
from bisect_train_workers.sources.json_files import read_json, read_json_lines
from bisect_train_workers.sources.mlflow_metrics import read_metric_file, read_store
from bisect_train_workers.sources.points import Points, Precision, join_runs
from bisect_train_workers.sources.tensorboard_events import masked_crc32c, read_events
from bisect_train_workers.sources.text_lines import decode
from bisect_train_workers.sources.wandb_records import read_history, read_summary, records_of
from tests.support import log_files
from tests.support.log_files import DATA, LATE_LOSSES, LOSSES, PURGE_STEP, TF_VALUES, VAL_LOSSES, VAL_STEPS, as_float32

EVENTS = sorted(DATA.glob("events.*"))
WANDB = (DATA / log_files.WANDB_FILE).read_bytes()
LIGHTNING = "epoch,step,train_loss,val_loss\n0,4,3.25,\n0,4,,2.75\n1,9,2.5,\n1,9,,nan\n"
TRAINER_STATE = {
    "epoch": 1.0,
    "global_step": 20,
    "log_history": [
        {"epoch": 0.5, "grad_norm": 1.25, "learning_rate": 5e-05, "loss": 2.1234, "step": 10},
        {"epoch": 0.5, "eval_loss": 1.98765432, "step": 10},
        {"epoch": 1.0, "loss": math.nan, "step": 20},
        {"epoch": 1.0, "eval_loss": 1.5, "step": 20},
    ],
}
JSON_LINES = (
    '{"step": 0, "val": {"loss": 2.5}}\n{"step": 1}\n{"step": 2, "val": {"loss": NaN}}\n'
    '{"step": 3, "val": {"loss": -Infinity}}\n'
)
Read = Callable[[bytes], Points]
READERS: dict[str, tuple[bytes, Read]] = {
    "tensorboard": (EVENTS[0].read_bytes(), lambda data: read_events(data, "train/loss")),
    "wandb": (WANDB, lambda data: read_history(data, "val.loss")),
    "mlflow": ((DATA / "mlflow-val-loss").read_bytes(), lambda data: read_metric_file(data, is_whole=False)),
    "csv": (LIGHTNING.encode(), lambda data: read_csv(data, "val_loss", is_whole=False)),
    "jsonl": (JSON_LINES.encode(), lambda data: read_json_lines(data, "val.loss")),
    "json": (json.dumps(TRAINER_STATE, indent=2).encode(), lambda data: read_json(decode(data), "loss")),
}


def pairs_of(points: Points) -> list[tuple[int | None, str]]:
    """Return steps and values; nan is equal to itself as text."""
    return [(step, repr(value)) for step, value in zip(points.steps, points.values, strict=True)]


def expected(values: tuple[float, ...], steps: tuple[int, ...]) -> list[tuple[int | None, str]]:
    return [(step, repr(value)) for step, value in zip(steps, values, strict=True)]


VALS = expected(VAL_LOSSES, VAL_STEPS)


def test_tensorboard_scalars_are_read_back_in_float32() -> None:
    points = read_events(EVENTS[0].read_bytes(), "train/loss")
    assert points.values == [as_float32(loss) for loss in LOSSES] and points.steps == list(range(12))
    assert (points.precision.bits, points.precision.decimals) == (24, None)
    assert pairs_of(read_events(EVENTS[0].read_bytes(), "val/loss")) == VALS
    assert list(read_events(EVENTS[0].read_bytes(), "loss").known) == ["train/loss", "val/loss"]


def test_tensorboard_restart_makes_later_steps_void() -> None:
    joined = join_runs(read_events(path.read_bytes(), "train/loss") for path in EVENTS)
    early = [as_float32(loss) for loss in LOSSES[:PURGE_STEP]]
    assert joined.values == early + [as_float32(loss) for loss in LATE_LOSSES] and joined.steps == list(range(12))


def test_tensorboard_scalars_of_tensorflow_are_read() -> None:
    (path,) = (DATA / "tf").iterdir()
    assert pairs_of(read_events(path.read_bytes(), "acc")) == expected(TF_VALUES, (0, 1, 2))


def test_tensorboard_checksum_is_that_of_the_format() -> None:
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_wandb_history_is_read_back_with_all_digits() -> None:
    assert pairs_of(read_history(WANDB, "train/loss")) == expected(LOSSES, tuple(range(12)))
    assert pairs_of(read_history(WANDB, "val.loss")) == VALS
    assert (read_history(WANDB, "train/loss").precision.digits or 0) >= 16
    assert list(read_history(WANDB, "x").known) == ["train/loss", "val.loss"]


def test_wandb_record_over_several_blocks_is_put_together() -> None:
    item = message(1, message(1, b"loss") + message(16, b"1.5")) + message(
        1, message(1, b"text") + message(16, b'"' + b"x" * 90_000 + b'"')
    )
    data = chunked([message(2, item + message(2, b"\x08\x07"))] * 2)
    assert len(data) > 5 * 2**15
    assert pairs_of(read_history(data, "loss")) == [(7, "1.5"), (7, "1.5")]
    assert pairs_of(read_history(data[:-1], "loss")) == [(7, "1.5")]


def test_wandb_history_with_nested_values_as_json_is_read() -> None:
    """As wandb 0.16 writes them."""
    items = {"val": b'{"loss": 1.5, "f1": NaN}', "train/loss": b"2.5", "_step": b"3"}
    record = message(2, b"".join(message(1, message(1, name.encode()) + message(16, text)) for name, text in items.items()))
    for key, value in (("val.loss", "1.5"), ("val/f1", "nan"), ("train/loss", "2.5")):
        assert pairs_of(read_history(chunked([record]), key)) == [(3, value)]
    assert list(read_history(chunked([record]), "val").known) == ["val.loss", "val.f1", "train/loss"]


def test_wandb_summary_gives_the_last_value_and_says_so() -> None:
    points = read_summary('{"val": {"loss": 1.25}, "_step": 9, "best": "NaN"}', "val.loss")
    assert pairs_of(points) == [(9, "1.25")] and "last value only" in points.note
    assert pairs_of(read_summary('{"best": "NaN"}', "best")) == [(None, "nan")]
    assert read_summary('{"val": {"lo', "val.loss").values == []


def test_mlflow_file_is_read_back() -> None:
    assert pairs_of(read_metric_file((DATA / "mlflow-val-loss").read_bytes(), is_whole=True)) == VALS


def test_mlflow_store_is_read_and_left_alone(tmp_path: Path) -> None:
    path = make_store(tmp_path / "mlflow.db")
    before = sorted((item.name, item.stat().st_mtime_ns) for item in tmp_path.iterdir())
    assert {run: pairs_of(points) for run, points in read_store(path, "val/loss").items()} == {"r1": VALS}
    assert read_store(path, "big")["r1"].values == [-math.inf]
    assert list(read_store(path, "other")[""].known) == ["big", "val/loss"]
    assert sorted((item.name, item.stat().st_mtime_ns) for item in tmp_path.iterdir()) == before


def test_mlflow_store_that_is_cut_off_gives_no_wrong_value(tmp_path: Path) -> None:
    data = make_store(tmp_path / "whole.db").read_bytes()
    for size in (0, 50, 4096, 5000, len(data) - 4096, len(data) - 1):
        path = tmp_path / "cut.db"
        path.write_bytes(data[:size])
        try:
            found = read_store(path, "val/loss")
        except sqlite3.Error:
            continue
        assert pairs_of(found["r1"]) == VALS, size


def make_store(path: Path) -> Path:
    """Write the table of metrics that MLflow 3.17 makes."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,"
            " run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,"
            " CONSTRAINT metric_pk PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"
        )
        rows = [
            ("val/loss", 0.0 if math.isnan(v) else v, 1, "r1", s, math.isnan(v))
            for v, s in zip(VAL_LOSSES, VAL_STEPS, strict=True)
        ]
        database.executemany(
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", [*rows, ("big", -1.7976931348623157e308, 1, "r1", 0, False)]
        )
    return path


def test_csv_rows_may_be_sparse() -> None:
    points = read_csv(LIGHTNING.encode(), "val_loss", is_whole=False)
    assert pairs_of(points) == [(4, "2.75"), (9, "nan")]
    assert (points.precision.decimals, points.precision.digits) == (2, 3)
    assert pairs_of(read_csv(LIGHTNING.encode(), "train_loss", "epoch", is_whole=True)) == [(0, "3.25"), (1, "2.5")]


def test_csv_header_again_makes_redone_steps_void() -> None:
    text = 'step,loss\n0,3.0\n1,2.0\n2,1.0\nstep,loss\n2,"1.5"\n3,1.25\n'
    assert pairs_of(read_csv(text.encode(), "loss", is_whole=True)) == [(0, "3.0"), (1, "2.0"), (2, "1.5"), (3, "1.25")]
    torn = "step,loss\n0,3.0\n1,2.0\n2,1.step,loss\n1,1.5\n"
    assert pairs_of(read_csv(torn.encode(), "loss", is_whole=True)) == [(0, "3.0"), (1, "1.5")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_csv_of_any_delimiter_and_encoding_is_read(encoding: str) -> None:
    text = "step; note; loss\r\n1; é ; 2.5\r\n2; x; 0,35\r\n"
    assert pairs_of(read_csv(text.encode(encoding), "loss", is_whole=True)) == [(1, "2.5")]  # 0,35 is not 35


def test_csv_without_the_column_names_those_that_it_has() -> None:
    points = read_csv(b"step,train_loss\n1,2\n", "loss", is_whole=True)
    assert (points.values, list(points.known)) == ([], ["step", "train_loss"])


def test_last_line_without_its_end_counts_only_where_the_program_finished() -> None:
    assert read_csv(b"loss\n1.25\n1.2", "loss", is_whole=False).values == [1.25]
    assert read_csv(b"loss\n1.25\n1.2", "loss", is_whole=True).values == [1.25, 1.2]
    assert read_metric_file(b"1 0.5 0\n2 0.25 1", is_whole=False).values == [0.5]


def test_json_lines_are_read_nested_and_non_finite() -> None:
    points = read_json_lines(JSON_LINES.encode(), "val.loss")
    assert pairs_of(points) == [(0, "2.5"), (2, "nan"), (3, "-inf")]
    text = '{"val/loss": 1.0, "it": 5}\nnoise\n[1]\n{"val/loss": 0.{"val/loss": 2.0}\n{"val/loss": true}\n{"val/loss": "NaN"}'
    assert pairs_of(read_json_lines(text.encode(), "val/loss", "it")) == [(5, "1.0"), (None, "nan")]
    assert read_json_lines(b'{"a": ' + b"[" * 100_000, "a").values == []


def test_trainer_state_gives_its_history() -> None:
    text = json.dumps(TRAINER_STATE)
    assert pairs_of(read_json(text, "loss")) == [(10, "2.1234"), (20, "nan")]
    assert pairs_of(read_json(text, "eval_loss")) == [(10, "1.98765432"), (20, "1.5")]
    assert read_json(text, "loss").precision.decimals == 4


def test_json_results_are_a_number_or_a_list() -> None:
    assert pairs_of(read_json('{"val": {"loss": 1.5}, "step": 7}', "val.loss")) == [(7, "1.5")]
    assert read_json('{"losses": [3, 2.5]}', "losses").values == [3.0, 2.5]
    assert list(read_json('{"a": 1, "b": {"c": 2}}', "x").known) == ["a", "b.c"]


@pytest.mark.parametrize("name", list(READERS))
def test_file_that_is_cut_anywhere_gives_the_values_before(name: str) -> None:
    data, read = READERS[name]
    whole = pairs_of(read(data))
    assert whole
    fewer = len(whole)
    for size in range(len(data) - 1, max(0, len(data) - 200) - 1, -1):
        found = pairs_of(read(data[:size]))
        assert found == whole[: len(found)] and len(found) <= fewer, size
        fewer = len(found)
    if name != "json":  # which is whole or nothing
        assert len(pairs_of(read(data[: len(data) - 20]))) >= len(whole) - 3


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_file_with_a_damaged_byte_gives_no_wrong_value(name: str) -> None:
    data, read = READERS[name]
    whole = pairs_of(read(data))
    for at in range(7, len(data), 13):
        found = pairs_of(read(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]))
        assert found == whole[: len(found)], at


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(list(READERS)), st.integers(0, 200))
def test_readers_take_any_bytes(tail: bytes, name: str, kept: int) -> None:
    data, read = READERS[name]
    read(data[:kept] + tail)
    read(tail)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats()), max_size=8), st.text("ab,\"' \n;", max_size=6))
def test_csv_and_json_lines_come_back_as_written(rows: list[tuple[int, float]], note: str) -> None:
    written = io.StringIO()
    table = csv.writer(written)
    table.writerow(["step", "note", "loss"])
    table.writerows([step, note, repr(value)] for step, value in rows)
    wanted = [(step, repr(value)) for step, value in rows]
    assert pairs_of(read_csv(written.getvalue().encode(), "loss", is_whole=False)) == wanted
    lines = "".join(json.dumps({"step": step, "note": note, "a": {"loss": value}}) + "\n" for step, value in rows)
    assert pairs_of(read_json_lines(lines.encode(), "a.loss")) == wanted


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=6))
def test_wandb_chunks_come_back_as_written(values: list[float]) -> None:
    records = [
        message(2, message(1, message(2, b"a") + message(2, b"b") + message(16, json.dumps(v).encode()))) for v in values
    ]
    assert read_history(chunked(records), "a.b").values == values
    assert list(records_of(chunked(records))) == records


@pytest.mark.parametrize(
    ("text", "decimals", "digits"),
    [("2.31", 2, 3), ("-0.50", 2, 2), ("1.091492E+01", 5, 7), ("5e-05", 5, 1), ("1,234.5", 1, 5), ("12", 0, 2),
     ("nan", None, None), ("0.00", 2, 1), ("3e2", -2, 1)],
)  # fmt: skip
def test_precision_counts_the_digits_that_are_printed(text: str, decimals: int | None, digits: int | None) -> None:
    precision = Precision()
    precision.take(text)
    assert (precision.decimals, precision.digits) == (decimals, digits)


def message(number: int, content: bytes) -> bytes:
    """Return a field of bytes in the wire format."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    written = b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def chunked(records: list[bytes]) -> bytes:
    """Return records as chunks in blocks of 32 KiB."""
    data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        rest, is_first = record, True
        while rest or is_first:
            left = 2**15 - len(data) % 2**15
            if left < 7:
                data += bytes(left)
                left = 2**15
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if is_first else 4) if not rest else (2 if is_first else 3)
            data += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            is_first = False
    return bytes(data)
