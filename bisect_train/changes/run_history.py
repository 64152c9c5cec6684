"""The curves of a recorded run, of Weights & Biases or MLflow: what it wrote of loss, gradient norm and learning rate."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bisect_train.changes.run_folder import find_record_file
from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.metric_names import SAME_AS, recorded_name
from bisect_train.core.probe import ProbeResult
from bisect_train_workers.sources.mlflow_metrics import read_metric_file
from bisect_train_workers.sources.points import STEP_NAMES
from bisect_train_workers.sources.wandb_records import read_rows

MAX_FILE_BYTES = 256 << 20
"""Size of a record file or metric file that is read, bytes."""
CALLS = "_step"
"""How W&B counts what was logged: calls, unless the program gives the step."""

Curve = Mapping[int, float]
Series = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What a recorded run says of its steps.

    Attributes:
        path: the run as it was named.
        curves: by the recorder's name (`loss`, `grad_norm`, `lr`) the values by 0-based step, those that are written.
        names: by the recorder's name what the run calls it.
        counts_steps: whether its numbers are known to be training steps; else they may be logging calls, or epochs.
    """

    path: str
    curves: Mapping[str, Curve]
    names: Mapping[str, str]
    counts_steps: bool

    def to_result(self) -> ProbeResult:
        """Return it as a healthy probe's result: one rank, and nothing but these curves."""
        steps = sorted({step for curve in self.curves.values() for step in curve})
        loss, norm, rate = (self.curves.get(name, {}) for name in ("loss", "grad_norm", "lr"))
        records = [
            StepRecord(step, loss=loss.get(step), clip_norm=norm.get(step), lr=(rate[step],) if step in rate else ())
            for step in steps
        ]
        return ProbeResult(self.path, Fingerprint(Ending(EndingKind.FINISHED), ranks=(RankRecord(0, tuple(records)),)), node="")


def history_of_folder(named: str) -> RunHistory:
    """Return the curves of a run that lies in a folder of W&B (also its `files`) or MLflow.

    Raises:
        InputError: it is none, or has none.
    """
    folder = expand(named)
    for place in (folder, folder.parent) if folder.name == "files" else (folder,):
        if (record := find_record_file(place)) is not None:
            return history_of_rows(named, read_rows(_read(record)))
    if (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir():
        return _of_mlflow(named, folder / "metrics")
    raise InputError(
        f"{named}: this is no folder of a run with curves", hint="name a folder of W&B or MLflow, or wandb:ENTITY/PROJECT/RUN"
    )


def history_of_rows(path: str, rows: Iterable[Mapping[str, object]]) -> RunHistory:
    """Return the curves of a run from the rows of its history, each with the values that were logged at once.

    Raises:
        InputError: there are none.
    """
    kept = [{name: number for name, value in row.items() if (number := _number(value)) is not None} for row in rows]
    names = list(dict.fromkeys(name for row in kept for name in row))
    own = [name for name in names if name != CALLS and name.rpartition("/")[2] in STEP_NAMES]
    counts = [row[CALLS] for row in kept if CALLS in row]
    are_given = _has_gaps(counts)

    def read(name: str, counter: str) -> Series | None:
        """Return a metric by a counter, None where some of its rows lack that, or it does not grow."""
        having = [(row.get(counter), row[name]) for row in kept if name in row]
        series = [(int(step), value) for step, value in having if step is not None and math.isfinite(step)]
        return series if len(series) == len(having) and _grows(series) else None

    found: dict[str, tuple[str, Series, bool]] = {}
    for ours, name in _candidates(names):
        for counter in (*own, CALLS):
            if ours not in found and (series := read(name, counter)):
                found[ours] = (name, series, counter != CALLS or are_given)
    return _make(path, found, names)


def _of_mlflow(path: str, metrics: Path) -> RunHistory:
    files = {
        str(file.relative_to(metrics)): file for file in sorted(metrics.rglob("*")) if file.is_file() and not file.is_symlink()
    }
    found: dict[str, tuple[str, Series, bool]] = {}
    for ours, name in _candidates(files):
        if ours in found:
            continue
        points = read_metric_file(_read(files[name]), is_whole=True)
        series = list(zip(points.known_steps(), points.values, strict=False))
        if series and _grows(series):
            found[ours] = (name, series, _has_gaps([step for step, _ in series]))
    return _make(path, found, list(files))


def _candidates(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return (the recorder's name, name) of what the recorder sees, too."""
    known = list(names)
    return [(ours, name) for ours in SAME_AS for name in known if recorded_name(name) == ours]


def _has_gaps(counts: Sequence[float]) -> bool:
    """Return whether numbers are no plain count: logging calls and epochs, of many steps each, are counted without gaps."""
    return any(after - before != 1 for before, after in pairwise(counts))


def _grows(series: Series) -> bool:
    return all(before < after for (before, _), (after, _) in pairwise(series))


def _make(path: str, found: Mapping[str, tuple[str, Series, bool]], names: Sequence[str]) -> RunHistory:
    if not found:
        has, usual = ", ".join(names[:8]) or "nothing", ", ".join(f"`{name}`" for ours in SAME_AS.values() for name in ours[:2])
        raise InputError(
            f"{path}: no loss, gradient norm or learning rate with growing steps is written there",
            hint=f"it has {has}; known are {usual}",
        )
    steps = sorted({step for _, series, _ in found.values() for step, _ in series})
    # counted from 1, whether each step is written or each tenth (10, 20, ...)
    shift = 1 if steps[0] == 1 or (steps[0] > 1 and steps[0] == math.gcd(*steps)) else 0
    return RunHistory(
        path,
        {ours: {step - shift: value for step, value in series if step >= shift} for ours, (_, series, _) in found.items()},
        {ours: name for ours, (name, _, _) in found.items()},
        all(is_counted for _, _, is_counted in found.values()),
    )


def _number(value: object) -> float | None:
    """Return what a row holds as a number; None for anything else, and for what no float holds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    with contextlib.suppress(OverflowError):
        return float(value)
    return None


def expand(named: str) -> Path:
    """Return a path as it was named, `~` filled in."""
    with contextlib.suppress(RuntimeError):  # `~` of somebody who is not there
        return Path(named).expanduser()
    return Path(named)


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise InputError(
            f"{path} has {size >> 20} MiB, and at most {MAX_FILE_BYTES >> 20} are read",
            hint="name the run on the server, wandb:ENTITY/PROJECT/RUN, of which the first rows are read",
        )
    return path.read_bytes()
