"""The curves of a recorded run, of Weights & Biases or MLflow: what it wrote of loss, gradient norm and learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.run_folder import RunFolder, find_record_file
from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.metric_names import SAME_AS, recorded_name
from bisect_train.core.probe import ProbeResult
from bisect_train_workers.sources.mlflow_metrics import read_metric_file
from bisect_train_workers.sources.points import STEP_NAMES, Points
from bisect_train_workers.sources.wandb_records import read_history

Curve = Mapping[int, float]
MAX_RECORD_BYTES = 256 << 20
"""Size of an offline run's record file that is read, bytes."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What a recorded run says of its steps.

    Attributes:
        path: the run as it was named.
        curves: by the recorder's name (`loss`, `grad_norm`, `lr`) the values by 0-based step, those that are written.
        names: by the recorder's name what the run calls it.
    """

    path: str
    curves: Mapping[str, Curve]
    names: Mapping[str, str]

    def to_result(self) -> ProbeResult:
        """Return it as a healthy probe's result: one rank, and nothing but these curves."""
        steps = sorted({step for curve in self.curves.values() for step in curve})
        loss, norm, rate = (self.curves.get(name, {}) for name in ("loss", "grad_norm", "lr"))
        records = [
            StepRecord(step, loss=loss.get(step), clip_norm=norm.get(step), lr=(rate[step],) if step in rate else ())
            for step in steps
        ]
        fingerprint = Fingerprint(Ending(EndingKind.FINISHED), ranks=(RankRecord(0, tuple(records)),))
        return ProbeResult(self.path, fingerprint, node="")


def history_of_folder(run: RunFolder, folder: Path) -> RunHistory:
    """Return the curves of a run that lies in a folder.

    Raises:
        InputError: it has none.
    """
    if run.kind == "wandb":
        record = find_record_file(folder.parent if folder.name == "files" else folder)
        data = _read(record) if record is not None else b""
        known = read_history(data, "").known
        return _make(run.path, known, lambda name, step: read_history(data, name, step))
    if run.kind == "mlflow":
        files = {str(path.relative_to(folder / "metrics")): path for path in (folder / "metrics").rglob("*") if path.is_file()}
        return _make(run.path, files, lambda name, _: read_metric_file(files[name].read_bytes(), is_whole=True))
    raise InputError(f"{run.path}: a {run.kind} folder has no curves", hint="name a folder of W&B or MLflow, or wandb:RUN")


def history_of_rows(path: str, rows: Iterable[Mapping[str, object]]) -> RunHistory:
    """Return the curves of a run from the rows of its history, each with the values that were logged at once.

    Raises:
        InputError: there are none.
    """
    kept = [{name: value for name, value in row.items() if isinstance(value, (int, float))} for row in rows]

    def read(name: str, step_name: str) -> Points:
        points = Points()
        for row in kept:
            if name in row:
                step = row.get(step_name or "_step")
                points.add(float(row[name]), int(step) if step is not None and math.isfinite(step) else None)
        return points

    return _make(path, dict.fromkeys(name for row in kept for name in row), read)


def _read(path: Path) -> bytes:
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise InputError(
            f"{path} has {path.stat().st_size >> 20} MiB, and at most {MAX_RECORD_BYTES >> 20} are read",
            hint="name the run on the server, wandb:ENTITY/PROJECT/RUN, of which the first rows are read",
        )
    return path.read_bytes()


def _make(path: str, known: Iterable[str], read: Callable[[str, str], Points]) -> RunHistory:
    """Return the curves of the first name of each kind that has values and steps."""
    names, curves = list(known), dict[str, Curve]()
    step_name = next((name for name in names if name != "_step" and name.rpartition("/")[2] in STEP_NAMES), "")
    of: dict[str, str] = {}
    for ours in SAME_AS:
        for name in (name for name in names if recorded_name(name) == ours):
            for by in dict.fromkeys((step_name, "")):
                points = read(name, by)
                if points.values and (steps := points.known_steps()):
                    curves[ours], of[ours] = dict(zip(steps, points.values, strict=True)), name
                    break
            if ours in curves:
                break
    if not curves:
        has = ", ".join(names[:8]) or "nothing"
        raise InputError(
            f"{path}: no loss, gradient norm or learning rate is written there", hint=f"it has {has}; known are {_usual()}"
        )
    first = min(min(curve) for curve in curves.values())
    shift = 1 if first > 0 else 0  # steps are counted from 0, or from 1, and maybe only each tenth is written
    return RunHistory(
        path, {ours: {step - shift: value for step, value in curve.items()} for ours, curve in curves.items()}, of
    )


def _usual() -> str:
    return ", ".join(f"`{name}`" for names in SAME_AS.values() for name in names[:2])
