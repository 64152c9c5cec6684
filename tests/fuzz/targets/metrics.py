"""What a program prints and writes: logs, tracebacks, stacks, tables, event files, records of trackers, checkpoint states."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import MetricPattern
from bisect_train_workers.dead_rank import find_dead_ranks
from bisect_train_workers.program_log import find_child_status, find_failure, find_metrics, read_log
from bisect_train_workers.sources.csv_rows import read_csv
from bisect_train_workers.sources.json_files import global_step_of, read_json, read_json_lines
from bisect_train_workers.sources.mlflow_metrics import read_metric_file
from bisect_train_workers.sources.points import Points, join_runs
from bisect_train_workers.sources.reading import FilesBefore, read_metrics
from bisect_train_workers.sources.tensorboard_events import masked_crc32c, read_events
from bisect_train_workers.sources.text_lines import decode
from bisect_train_workers.sources.wandb_records import read_history, read_summary, records_of
from bisect_train_workers.standstill import read_frames
from tests.fuzz.engine import Target
from tests.fuzz.places import folder, write
from tests.fuzz.text_changes import change_bytes
from tests.fuzz.value_changes import STRANGE, change_value, json_text
from tests.support.log_files import DATA, WANDB_FILE

LOGS = (
    "step 1 loss 2.345 lr 1e-4\nstep 2 loss nan\r step 3: loss 1,234.5 | val loss 0.5\nval loss inf\n\x1b[31mred\x1b[0m\n",
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/w/train.py", line 10, in main\n[rank0]:     f(x)\n'
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB at 0x7fff (GPU 0; /tmp/x.py:12, 8x64)\n",
    "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 123)\nModuleNotFoundError: No module named 'apex.optim'\n"
    "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n",
    'Current thread 0x00007f (most recent call first):\n  File "/a/threading.py", line 320 in wait\n'
    '  File "t.py", line ?? in main\n'
    'Thread 0x1 (most recent call first):\n  File "/p/torch/distributed/distributed_c10d.py", line 1 in barrier\n',
)
PATTERNS = (
    MetricPattern("loss", r"loss (?P<value>[-+0-9.e,]+|nan|inf)", (r"l: (\d+)",)),
    MetricPattern("val", r"step (?P<step>\d+).* loss ([0-9.]+)"),
    MetricPattern("any", r"(\S+)$"),
)
LIGHTNING = (
    b"epoch,step,train_loss,val_loss\n0,4,3.25,\n0,4,,2.75\n1,9,2.5,\n1,9,,nan\nepoch,step,train_loss,val_loss\n0,2,1,1\n"
)
TRAINER_STATE: dict[str, Any] = {
    "epoch": 1.0,
    "global_step": 20,
    "best_metric": None,
    "log_history": [
        {"epoch": 0.5, "loss": 2.1234, "step": 10},
        {"eval": {"loss": 1.9}, "step": 10},
        {"loss": "NaN", "step": 20},
    ],
}
ROWS: tuple[dict[str, Any], ...] = (
    {"step": 0, "val": {"loss": 2.5}},
    {"step": 1},
    {"_step": 2, "val/loss": 1e-3, "loss": "NaN"},
)
KEYS = ("loss", "val.loss", "val/loss", "eval.loss", "step", "", "a.b.c")


def _make_log(rng: random.Random) -> bytes:
    return change_bytes(rng, rng.choice(LOGS).encode(), [text.encode() for text in LOGS])


def _read_log(data: bytes) -> None:
    text = read_log(write(folder("log") / "program.log", data))
    find_metrics(text, PATTERNS)
    find_failure(text, Path("/w"))
    find_child_status(text)
    find_dead_ranks(text, explained=())
    read_frames(text)


def _check(points: Points) -> None:
    assert len(points.values) == len(points.steps) and all(isinstance(value, float) for value in points.values)
    joined = join_runs([points, points])
    joined.known_steps()


def _make_table(rng: random.Random) -> tuple[bytes, str, bool]:
    return change_bytes(rng, LIGHTNING, [LIGHTNING]), rng.choice(("val_loss", "loss", "")), rng.random() < 0.5


def _read_table(case: tuple[bytes, str, bool]) -> None:
    data, column, is_whole = case
    _check(read_csv(data, column, is_whole=is_whole))
    _check(read_csv(data, column, "step", is_whole=is_whole))


def _make_lines(rng: random.Random) -> tuple[bytes, str]:
    rows = [rng.choice(ROWS) if rng.random() < 0.5 else change_value(rng, rng.choice(ROWS), ROWS) for _ in range(4)]
    data = "\n".join(json_text(rng, row) for row in rows).encode("utf-8", "surrogatepass")
    return (data if rng.random() < 0.5 else change_bytes(rng, data, [data])), rng.choice(KEYS)


def _read_lines(case: tuple[bytes, str]) -> None:
    _check(read_json_lines(*case))


def _make_state(rng: random.Random) -> tuple[bytes, str]:
    data = json_text(rng, change_value(rng, TRAINER_STATE, ROWS)).encode("utf-8", "surrogatepass")
    return (data if rng.random() < 0.5 else change_bytes(rng, data, [data])), rng.choice(KEYS)


def _read_state(case: tuple[bytes, str]) -> None:
    text = decode(case[0])
    _check(read_json(text, case[1]))
    _check(read_summary(text, case[1]))
    assert isinstance(global_step_of(text), int)


def _make_metric_file(rng: random.Random) -> bytes:
    seed = (DATA / "mlflow-val-loss").read_bytes()[:400]
    return change_bytes(rng, seed, [seed])


def _read_metric_file(data: bytes) -> None:
    _check(read_metric_file(data, is_whole=True))


@cache
def _events() -> tuple[bytes, ...]:
    """Return the payloads of real event files, without their frames."""
    found = []
    for path in [*sorted(DATA.glob("events.*")), *sorted((DATA / "tf").glob("events.*"))]:
        data, at = path.read_bytes(), 0
        while at + 12 <= len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            found.append(data[at + 12 : at + 12 + size])
            at += size + 16
    return tuple(dict.fromkeys(found))


def framed(events: list[bytes]) -> bytes:
    """Return an event file with right checksums, so that what is inside comes to be read."""
    parts = []
    for event in events:
        head = struct.pack("<Q", len(event))
        parts += [head, struct.pack("<I", masked_crc32c(head)), event, struct.pack("<I", masked_crc32c(event))]
    return b"".join(parts)


def _some_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return a message with a few bytes changed, most of them where lengths and types stand."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data = data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
            case 1:
                data = data[:at] + data[at + rng.randrange(1, 9) :]
            case 2:
                data = data[:at] + bytes([rng.choice((0, 1, 2, 5, 8, 10, 13, 18, 42, 127, 128, 255))]) + data[at + 1 :]
            case _:
                data = data[:at] + b"\xff" * rng.choice((1, 9, 11)) + data[at:]
    return data


def _make_events(rng: random.Random) -> tuple[bytes, str]:
    events = [rng.choice(_events()) for _ in range(rng.randrange(1, 5))]
    events = [_some_bytes(rng, event) if rng.random() < 0.6 else event for event in events]
    data = framed(events)
    if rng.random() < 0.2:
        data = _some_bytes(rng, data)
    return data, rng.choice(("train/loss", "acc", "val/loss", ""))


def _read_events(case: tuple[bytes, str]) -> None:
    _check(read_events(*case))


@cache
def wandb_records() -> tuple[bytes, ...]:
    """Return the records of a real offline run."""
    return tuple(records_of((DATA / WANDB_FILE).read_bytes()))


def wandb_file(records: list[bytes]) -> bytes:
    """Return a record file with right checksums; records that would go over a block are left out."""
    written = bytearray(b":W&B\xe1\xbe\x00")
    for body in records:
        if 32768 - len(written) % 32768 > len(body) + 7:
            written += struct.pack("<IHB", zlib.crc32(b"\1" + body), len(body), 1) + body
    return bytes(written)


def make_wandb(rng: random.Random) -> bytes:
    """Return the record file of a run, changed inside its records or as a whole."""
    records = [rng.choice(wandb_records()) for _ in range(rng.randrange(1, 6))]
    data = wandb_file([_some_bytes(rng, record) if rng.random() < 0.6 else record for record in records])
    return _some_bytes(rng, data) if rng.random() < 0.2 else data


def _make_history(rng: random.Random) -> tuple[bytes, str]:
    return make_wandb(rng), rng.choice(("train/loss", "val.loss", "val", ""))


def _read_history(case: tuple[bytes, str]) -> None:
    _check(read_history(*case))


def _make_store(rng: random.Random) -> tuple[list[list[Any]], str, int]:
    plain = [
        value
        for value in STRANGE
        if isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < 2**63) or value is None
    ]

    def cell(usual: Any) -> Any:
        value = rng.choice(plain) if rng.random() < 0.3 else usual
        return value.encode("utf-8", "surrogatepass") if isinstance(value, str) and rng.random() < 0.3 else value

    rows = [[cell("loss"), cell(0.5 + idx), cell(idx), cell(f"run{idx % 2}"), cell(0)] for idx in range(rng.randrange(5))]
    return rows, rng.choice(("loss", "x")), rng.choice((0, 0, 0, 0, 1, 2))


def _read_store(case: tuple[list[list[Any]], str, int]) -> None:
    """An MLflow store with strange cells, read as a metric of a run: no error at all is let out."""
    rows, key, damage = case
    out = folder("mlflow") / "out"
    path = write(out / "mlflow.db", b"")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE metrics (key, value, step, run_uuid, is_nan)")
        for row in rows:
            texts = [cell.encode("utf-8", "replace").decode() if isinstance(cell, str) else cell for cell in row]
            database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", texts)
        database.commit()
    data = path.read_bytes()
    if damage:
        path.write_bytes(data[: 1000 * damage] + b"\xff" * 9 + data[1009 * damage :])
    _read_all(out, "mlflow", key)


def _read_all(out: Path, source: str, key: str) -> None:
    before = FilesBefore(((folder("checkout"), ""), (out, "{out}")), {})
    pattern = MetricPattern("m", source=source, key=key, files=("**/*",))
    (series,) = read_metrics([pattern], "", before, ending=Ending(EndingKind.FINISHED))
    assert len(series.steps) in (0, len(series.values))
    json.dumps(series.origin.note)


def _make_files(rng: random.Random) -> tuple[str, str, list[bytes]]:
    source = rng.choice(("csv", "json", "jsonl", "tensorboard", "wandb", "mlflow"))
    makers: dict[str, Callable[[random.Random], Any]] = {
        "csv": _make_table, "json": _make_state, "jsonl": _make_lines, "tensorboard": _make_events, "wandb": _make_history,
        "mlflow": lambda rng: (_make_metric_file(rng), "loss"),
    }  # fmt: skip
    made = [makers[source](rng) for _ in range(rng.randrange(1, 4))]
    return source, str(made[0][1]), [item[0] for item in made]


def _read_files(case: tuple[str, str, list[bytes]]) -> None:
    source, key, files = case
    out = folder("files") / "out"
    for path in out.glob("*"):
        path.unlink()
    for idx, data in enumerate(files):
        write(out / ("trainer_state.json" if source == "json" and not idx else f"f{idx}"), data)
    _read_all(out, source, key)


TARGETS = (
    Target("log", _make_log, _read_log, (), 5.0),
    Target("csv", _make_table, _read_table, (), 8.0),
    Target("jsonl", _make_lines, _read_lines, (), 8.0),
    Target("trainer-state", _make_state, _read_state, (), 8.0),
    Target("mlflow-file", _make_metric_file, _read_metric_file, (), 10.0),
    Target("mlflow-store", _make_store, _read_store, (), 0.8),
    Target("tensorboard", _make_events, _read_events, (), 12.0),
    Target("wandb", _make_history, _read_history, (), 12.0),
    Target("metric-files", _make_files, _read_files, (), 2.0),
)
