"""Trains a program text under the injected recorder, as a worker does, and returns what was recorded."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Event, Fingerprint, RankRecord
from bisect_train.core.probe import ProbeResult
from bisect_train_workers.injection import RECORDER_FOLDER
from tests.support.probes import TinyRepo, make_job, make_settings, result_of


def train_recorded(
    folder: Path,
    program: str,
    *,
    ranks: int = 1,
    steps: int | None = None,
    seed_idx: int = 0,
    files: dict[str, str | bytes | None] | None = None,
    command: tuple[str, ...] = ("python", "train.py"),
    **settings: Any,
) -> ProbeResult:
    """Run `program` as `train.py` of a new repository in `folder`; several ranks run under torchrun.

    Args:
        folder: an empty or missing folder for the repository and the worker's own files.
        program: its text, which may be indented as a whole.
        ranks: processes.
        steps: optimizer steps after which the run is stopped; None lets it finish.
        seed_idx: of the probe.
        files: further files of the repository.
        command: what is run.
        settings: of `RunSettings`: `triage=True`, `every_step=True`, `anomaly=True`, `timeout_s=20.0`, ...
    """
    folder.mkdir(parents=True, exist_ok=True)
    repo = TinyRepo(folder / f"repo-{len(os.listdir(folder))}")  # noqa: PTH208
    commit = repo.commit({"train.py": textwrap.dedent(program), **(files or {})})
    settings.setdefault("timeout_s", 120.0)
    job = make_job(commit, command=command, steps=steps, ranks=ranks, seed_idx=seed_idx, settings=make_settings(**settings))
    return result_of(job, folder / "node", recorder=RECORDER_FOLDER)


def fingerprint_recorded(folder: Path, program: str, **asked: Any) -> Fingerprint:
    """Return only the fingerprint of `train_recorded`, as a store would give it back."""
    return Fingerprint.of_json(train_recorded(folder, program, **asked).fingerprint.to_json())


def events_named(rank: RankRecord, name: str) -> list[Event]:
    """Return a rank's events of one name, in order."""
    return [event for event in rank.events if event.name == name]
