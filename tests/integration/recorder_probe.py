"""Runs a small program under the recorder, as the supervisor does, and reads what it wrote."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDER = Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"

TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@dataclass(frozen=True)
class Outcome:
    """What a program printed and recorded."""

    status: int
    stdout: str
    stderr: str
    records: list[dict[str, Any]]
    out: Path

    def steps(self, rank: int = 0) -> list[dict[str, Any]]:
        """Return the last line of each step of a rank, in order."""
        last = {r["step"]: r for r in self.records if r["type"] == "step" and r["rank_of_file"] == rank}
        return [last[idx] for idx in sorted(last)]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the data of all events of one name."""
        return [r["data"] for r in self.records if r["type"] == "event" and r["name"] == name]


def install_recorder(folder: Path, **settings: Any) -> Path:
    """Copy the recorder into a folder and write its settings; return the folder for PYTHONPATH."""
    target = folder / "recorder"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(RECORDER, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "settings.json").write_text(json.dumps({"out": str(folder / "out"), "root": str(folder), **settings}))
    return target


def run_program(
    folder: Path,
    source: str,
    *,
    is_recorded: bool = True,
    launcher: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    num_threads: int = 1,
    **settings: Any,
) -> Outcome:
    """Run the source as `train.py` in the folder with or without the recorder."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "train.py").write_text(source)
    environment = {**os.environ, "OMP_NUM_THREADS": str(num_threads), "PYTHONHASHSEED": "0", **(env or {})}
    environment.pop("PYTHONPATH", None)
    if is_recorded:
        environment["PYTHONPATH"] = str(install_recorder(folder, **settings))
    command = [sys.executable, *launcher, "train.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return Outcome(done.returncode, done.stdout, done.stderr, read_records(folder / "out"), folder / "out")


def run_ranks(folder: Path, source: str, **settings: Any) -> Outcome:
    """Run the source in two ranks under torchrun; it must end well.

    About one in ten programs of gloo ranks is aborted at its very end, recorded or not: a thread of torch drops its last
    reference to a tensor when the interpreter is gone already. Such a run is done again.
    """
    for _ in range(6):
        outcome = run_program(folder, source, launcher=TWO_RANKS, **settings)
        if "terminate called without an active exception" not in outcome.stderr:
            break
    assert outcome.status == 0, outcome.stderr
    return outcome


def read_records(out: Path) -> list[dict[str, Any]]:
    """Return the lines of all record files, each with the rank of its file's name."""
    records = []
    for path in sorted(out.glob("*.jsonl")):
        rank = int(path.name.split("-")[0].removeprefix("rank"))
        records += [{**json.loads(line), "rank_of_file": rank} for line in path.read_text().splitlines()]
    return records
