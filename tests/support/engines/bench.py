"""Runs engines by the host, recorded or not, and reads what they printed and what the recorder wrote."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDER = Path(__file__).parents[3] / "workers" / "bisect_train_workers" / "recorder"
HOST = Path(__file__).with_name("host.py")


@dataclass(frozen=True)
class Job:
    """One run of an engine: recorded with these settings, or plain (None)."""

    engine: str
    ranks: int = 1
    settings: dict[str, Any] | None = None


@dataclass(frozen=True)
class Rank:
    """What one rank printed and recorded."""

    status: int
    printed: list[dict[str, Any]]
    lines: list[dict[str, Any]]
    stderr: str

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The last line of each recorded step, in order."""
        last = {line["step"]: line for line in self.lines if line["type"] == "step"}
        return [last[step] for step in sorted(last)]

    @property
    def told(self) -> list[dict[str, Any]]:
        """What the program itself printed of its steps."""
        return [line for line in self.printed if line.get("step", -1) >= 0]

    @property
    def other(self) -> list[dict[str, Any]]:
        """What it printed besides: the digest of its state, graphs."""
        return [line for line in self.printed if line.get("step", -1) < 0]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the data of events of one name."""
        return [line["data"] for line in self.lines if line["type"] == "event" and line["name"] == name]


def run_jobs(folder: Path, jobs: Sequence[Job], *, recorder: Path = RECORDER, timeout_s: float = 900.0) -> list[list[Rank]]:
    """Run all jobs and return the ranks of each."""
    orders = []
    for idx, job in enumerate(jobs):
        out = folder / f"{idx:02d}-{job.engine}"
        given = None
        if job.settings is not None:
            given = out / "recorder"
            shutil.copytree(recorder, given, ignore=shutil.ignore_patterns("__pycache__"))
            (out / "records").mkdir(parents=True)
            settings = {"out": str(out / "records"), "root": str(out), **job.settings}
            (given / "settings.json").write_text(json.dumps(settings))
        orders.append({"engine": job.engine, "ranks": job.ranks, "out": str(out), "recorder": given and str(given)})
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(orders))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, str(HOST), str(listed)], env=environment, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr
    return [[_read(Path(order["out"]), rank) for rank in range(order["ranks"])] for order in orders]


def _read(out: Path, rank: int) -> Rank:
    records = sorted((out / "records").glob(f"rank{rank}-*.jsonl"))
    return Rank(
        status=int((out / f"status-{rank}").read_text()),
        printed=[json.loads(line) for line in (out / f"stdout-{rank}").read_text().splitlines() if line.startswith("{")],
        lines=[json.loads(line) for path in records for line in path.read_text().splitlines()],
        stderr=(out / f"stderr-{rank}").read_text(),
    )
