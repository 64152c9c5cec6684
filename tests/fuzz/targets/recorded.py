"""What the recorder's files and the database hold: torn and hostile lines, rows that somebody has changed, folders of runs."""

from __future__ import annotations

import functools
import json
import random
import shutil
import zlib
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from bisect_train.baseline import read_baseline
from bisect_train.changes.run_folder import read_run_folder
from bisect_train.cli.observation_log import read_lines
from bisect_train.core.changes import Variant
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, MetricSeries, RankRecord, StepRecord
from bisect_train.core.probe import ProbeJob, ProbeResult, ProbeSpec, Rung, RunSettings
from bisect_train.core.question import Question
from bisect_train.nightly.state import read_state
from bisect_train.store import codec, rows
from bisect_train.store.address import parse_address, show_address
from bisect_train.store.contract import StoredEvent
from bisect_train_workers.ending import Evidence, decide_ending
from bisect_train_workers.program import Outcome
from bisect_train_workers.read_sets import find_reads
from bisect_train_workers.records import RecordReader, describe_processes, pick_ranks, to_rank_records
from tests.fuzz.engine import Target
from tests.fuzz.places import folder, write
from tests.fuzz.targets.metrics import make_wandb
from tests.fuzz.text_changes import BOMB, change_bytes, change_text, to_bytes
from tests.fuzz.value_changes import change_value, json_text
from tests.support.findings import make_finding
from tests.support.git_repos import question_of

LINES: tuple[dict[str, Any], ...] = (
    {"type": "start", "rank": 0, "world_size": 2, "pid": 7, "t": 1.0, "python": "3.11", "executable": "/p", "recorder": "4"},
    {"type": "event", "name": "torch_imported", "t": 1.1, "data": {"version": "2.5", "threads": 1}},
    {"type": "event", "name": "process_group", "t": 1.2, "data": {"rank": 1, "world_size": 2, "backend": "gloo"}},
    {"type": "event", "name": "initial_params", "step": 0, "t": 1.3, "data": {"param_hash": "ab", "num_trained": 10}},
    {
        "type": "step",
        "step": 0,
        "t": 2.0,
        "loss": 2.5,
        "micro": [1.0, 1.5],
        "grad_norm": 1.0,
        "clip_norm": 1.0,
        "lr": [0.1],
        "missing_grads": 0,
        "skipped": False,
        "param_dtypes": "float32",
        "grad_dtypes": ["float32"],
        "autocast": None,
        "param_norm": 3.0,
        "param_hash": "ab",
        "rng_hash": "cd",
        "batch_hash": "ef",
        "step_s": 0.1,
        "rss_mib": 500.0,
        "num_params": 10,
        "grad_sq": 1.0,
        "samples": "0a1b2c3d",
        "collectives": "2:0a1b2c3d",
        "moved": 0.5,
    },
    {
        "type": "step",
        "step": 1,
        "t": 3.0,
        "loss": 2.0,
        "grad_shares": [1.0, 2.0],
        "param_shares": [None, 3.0],
        "clip_share": 1.0,
    },
    {"type": "event", "name": "files_read", "t": 3.1, "data": {"files": ["a.py"], "folders": [""], "doubts": []}},
    {"type": "event", "name": "outside_files", "t": 3.2, "data": {"written": ["/tmp/x"]}},
    {"type": "event", "name": "imports", "t": 3.2, "data": {"outside": {}}},
    {"type": "event", "name": "step_function", "t": 3.2, "data": {"function": "a:b", "is_found": True}},
    {"type": "event", "name": "stub", "t": 3.3, "data": {"what": "wandb"}},
    {"type": "event", "name": "exception", "t": 3.4, "data": {"exc_type": "a.ValueError", "message": "no", "signature": "s"}},
    {"type": "event", "name": "stop", "t": 3.5, "data": {}},
    {"type": "event", "name": "exit", "t": 3.6, "data": {"code": 1}},
)


def _make_records(rng: random.Random) -> list[list[bytes]]:
    """Return the pieces in which each of two processes writes its file."""

    def line() -> bytes:
        value = rng.choice(LINES)
        if rng.random() < 0.4:
            value = change_value(rng, value, LINES)
        data = json_text(rng, value).encode("utf-8", "surrogatepass")
        return change_bytes(rng, data, [data]) if rng.random() < 0.1 else data

    def file() -> list[bytes]:
        data = b"\n".join([json.dumps(LINES[0]).encode(), *(line() for _ in range(rng.randrange(1, 9))), b""])
        cut = rng.randrange(len(data) + 1)
        return [data[:cut], data[cut:]]

    return [file() for _ in range(rng.choice((1, 2)))]


@functools.cache
def _job() -> ProbeJob:
    spec = ProbeSpec(Variant("a" * 40, "b" * 40, ("python", "t.py")), Rung(2, 2))
    return ProbeJob("job", spec, RunSettings("/usr/bin/python3"), "repo")


def _read_records(case: list[list[bytes]]) -> None:
    """Everything that a worker makes of record files, while they grow and at the end, up to what is stored."""
    place = folder("records")
    for path in place.iterdir():
        path.unlink()
    reader = RecordReader(place)
    for piece in range(2):
        for idx, file in enumerate(case):
            with (place / f"rank{idx}-pid{idx + 1}.jsonl").open("ab") as opened:
                opened.write(file[piece] if piece < len(file) else b"")
        processes = reader.read()
        ranks = pick_ranks(processes)
        records = to_rank_records(ranks, num_steps=None)
    evidence = Evidence(
        Outcome(ended_by="timeout", status=1), processes, ranks, "", Path("/w"), None, True, 60.0, 1.0, 2.0
    )  # fmt: skip
    for outcome in (evidence.outcome, Outcome(status=1), Outcome(status=0)):
        decide_ending(Evidence(outcome, processes, ranks, "", Path("/w"), 3, True, 60.0, 1.0, 2.0))
    facts = describe_processes(processes, ranks)
    reads = find_reads(processes, ranks, _job())
    [process.written_outside for process in processes]
    fingerprint = Fingerprint(Ending(EndingKind.FINISHED), records, facts=tuple(facts.items()), reads=reads)
    again = codec.unpack_result(codec.pack_result(ProbeResult("job", fingerprint)))
    assert repr(again.fingerprint.ranks) == repr(fingerprint.ranks)


@functools.cache
def _result() -> dict[str, Any]:
    steps = (StepRecord(0, loss=1.0, micro=(1.0,), lr=(0.1,), dtypes=("param:float32",)), StepRecord(1, loss=2.0))
    ranks = (RankRecord(0, steps, (Event("stop", 1, {"a": 1}),)),)
    fingerprint = Fingerprint(Ending(EndingKind.CRASHED, "s", "m"), ranks, (MetricSeries("loss", (1.0, 2.0), (0, 1)),))
    stored = asdict(ProbeResult("job", fingerprint, stacks=(("a", "b"),), warnings=("w",)))
    return json.loads(
        json.dumps({**stored, "fingerprint": {**stored["fingerprint"], "facts": [["a", "b"]], "uninterrupted": []}})
    )


def _make_result(rng: random.Random) -> bytes:
    text = json_text(rng, change_value(rng, _result(), [_result()]))
    if rng.random() < 0.2:
        text = change_text(rng, text, [text])
    data = zlib.compress(to_bytes(text), 1)
    return change_bytes(rng, data, [data]) if rng.random() < 0.1 else data


def _read_result(data: bytes) -> None:
    codec.pack_result(codec.unpack_result(data))


@functools.cache
def _question() -> dict[str, Any]:
    question = question_of("a" * 40, "b" * 40)
    stored = json.loads(json.dumps(question.to_json()))
    return {**stored, "good_config": {"path": "a", "patch": {"name": "a", "text": "x"}}, "expected": [["a", "b"]]}


def _make_rows(rng: random.Random) -> tuple[str, str, bytes]:
    about = json_text(rng, change_value(rng, _question(), [_question()]))
    event = json_text(rng, change_value(rng, {"spec": {"point": "3", "seed": 0}, "wall_s": 1.0, "answer": {"status": "x"}}))
    if rng.random() < 0.2:
        event = change_text(rng, event, [event])
    return about, event, _make_result(rng) if rng.random() < 0.2 else zlib.compress(json.dumps(_result()).encode())


def _read_rows(case: tuple[str, str, bytes]) -> None:
    about, data, result = case
    row = SimpleNamespace(
        id="a", created_s=0.0, question=about, title="t", last_kind="finished", last_data=data, seq=1, kind="finished",
        time_s=0.0, data=data, key="k", bisection_id="b", result=result,
    )  # fmt: skip
    rows.event_of(row)  # type: ignore[arg-type]
    stored = rows.bisection_of(row)
    Question.of_json(stored.question).to_json()
    rows.probe_of(row)


@functools.cache
def _watch_events() -> tuple[dict[str, Any], ...]:
    kept = {"finding": make_finding().to_json(), "role": "newest", "before": "", "level_at": "", "night": 1}
    return tuple(
        json.loads(json.dumps(item))
        for item in (
            {"kind": "begun", "night": 1, "commit": "b" * 40, "asked": "x", "pinned": False},
            {"kind": "good", "commit": "a" * 40},
            {"kind": "finding", "kept": kept},
            {"kind": "level_at", "finding": make_finding().id, "commit": "b" * 40},
            {"kind": "expected", "commit": "b" * 40, "reason": "r"},
            {"kind": "ended", "exit_status": 0, "summary": "s"},
        )
    )


def _make_watch(rng: random.Random) -> list[Any]:
    events = list(_watch_events())
    return [change_value(rng, event, events) if rng.random() < 0.25 else event for event in events]


def _read_watch(case: list[Any]) -> None:
    known = [event for event in case if isinstance(event, dict)]
    read_state(StoredEvent(idx, str(event.get("kind")), 0.0, event) for idx, event in enumerate(known, start=1))


BASELINE = {
    "schema": 1,
    "saved": {"commit": "a" * 40, "date": "2026-11-30T00:00:00Z", "reason": "first"},
    "command": ["python", "train.py"],
    "metric": {"name": "loss", "reduce": "tail"},
    "expect": [{"commit": "b" * 40, "reason": "x"}],
    "history": [],
    "platforms": [
        {
            "hardware": "cpu",
            "interpreter": "py",
            "recorder": "4",
            "rung": "50 steps x 1 rank",
            "variant": "v",
            "measure": "m",
            "repeats_bitwise": True,
            "runs": [{"seed": 0, "value": 2.5, "bits": "d"}],
        }
    ],
}
BASELINE_TEXT = yaml.safe_dump(BASELINE, sort_keys=False)


def _make_baseline(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return json_text(rng, change_value(rng, BASELINE)).encode("utf-8", "surrogatepass")
    return change_bytes(rng, (BASELINE_TEXT if rng.random() < 0.95 else BOMB).encode(), [BASELINE_TEXT.encode()])


def _read_baseline(data: bytes) -> None:
    root = folder("baseline")
    write(root / ".bisect-train" / "baselines" / "main.yaml", data)
    read_baseline(root, "main")


SHA = "e1b5e9bb7d15ea568546d5b73d417eb44bcfc7d7"
RUNS: tuple[dict[str, str], ...] = (
    {
        "files/config.yaml": "wandb_version: 1\n_wandb: {desc: null, value: {cli_version: 0.16}}\n"
        "lr: {desc: null, value: 0.1}\n",
        "files/wandb-metadata.json": json.dumps(
            {"program": "/h/t.py", "codePath": "t.py", "root": "/h", "args": ["--lr", "1"], "git": {"commit": SHA}}
        ),
        "files/requirements.txt": "a==1\n",
    },
    {"run-x.wandb": ""},
    {
        "meta.yaml": "",
        "params/lr": "0.1",
        "params/m/depth": "2",
        "tags/mlflow.source.git.commit": SHA,
        "tags/mlflow.source.name": "t.py",
    },
    {
        ".hydra/config.yaml": f"lr: 0.1\ngit_hash: {SHA}\n",
        ".hydra/overrides.yaml": "- lr=0.1\n- +x=a b\n",
        ".hydra/hydra.yaml": "hydra:\n  job:\n    name: train\n    config_name: base\n",
    },
    {"checkout/.git/HEAD": f"{SHA}\n"},
    {"report.json": json.dumps({"ends": {"good": {"revision": SHA}, "bad": {"revision": "f" * 40}}})},
)


def _make_run(rng: random.Random) -> dict[str, bytes]:
    files = {name: text.encode() for name, text in rng.choice(RUNS).items()}
    if "run-x.wandb" in files:
        files["run-x.wandb"] = make_wandb(rng)
    for name in rng.sample(sorted(files), min(len(files), rng.choice((1, 1, 2)))):
        if name.endswith(".json") and rng.random() < 0.6:
            changed = change_value(rng, json.loads(files[name]))
            files[name] = json_text(rng, changed).encode("utf-8", "surrogatepass")
        elif not name.endswith(".wandb"):
            files[name] = change_bytes(rng, files[name], list(files.values()))
    if rng.random() < 0.05:
        files[rng.choice(sorted(files))] = rng.choice((BOMB, "- " + BOMB.replace("\n", "\n  "))).encode()
    return files


def _read_run(case: dict[str, bytes]) -> None:
    root = folder("run") / "run"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, data in case.items():
        write(root / name, data)
    read_run_folder(root)


LOG_LINES = (
    "bisection 3fa2bc11\nmark 1a2b3c4d5e6f bad\n"
    "good 9f8e7d6c at=12 seed=0 repeat=0 attempt=0 part=0 value=3.1 bits=01 key=fe  # title\nuntestable x\n"
)


def _make_observations(rng: random.Random) -> str:
    return change_text(rng, LOG_LINES, [LOG_LINES])


def _read_observations(text: str) -> None:
    read_lines(text, "log.txt")


ADDRESSES = (
    "sqlite:////a/b.db",
    "postgresql://u:p@h:5432/d?sslmode=require",
    "postgres://u@[::1]/d",
    "postgresql+psycopg://h/d",
)


def _make_address(rng: random.Random) -> str:
    return change_text(rng, rng.choice(ADDRESSES), ADDRESSES)


def _read_address(text: str) -> None:
    show_address(parse_address(text))


TARGETS = (
    Target("recorder", _make_records, _read_records, (), 3.0),
    Target("stored-result", _make_result, _read_result, (MachineError,), 5.0),
    Target("stored-rows", _make_rows, _read_rows, (MachineError,), 3.0),
    Target("stored-watch", _make_watch, _read_watch, (MachineError,), 9.0),
    Target("baseline", _make_baseline, _read_baseline, (InputError,), 2.0),
    Target("run-folder", _make_run, _read_run, (InputError,), 2.0),
    Target("observation-log", _make_observations, _read_observations, (InputError,), 14.0),
    Target("store-address", _make_address, _read_address, (InputError,), 12.0),
)
