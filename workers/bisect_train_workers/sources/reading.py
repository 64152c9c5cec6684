"""From what a recipe asks for to series: which files, which of several runs, and why there is no value.

Several files of one run (a program that was started again) are read one after the other. Files of several runs that all have
the metric are ambiguous: none is read, for a value of the wrong one would be a wrong verdict.
"""

from __future__ import annotations

import mmap
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.fingerprint import Ending, EndingKind, MetricOrigin, MetricSeries
from bisect_train.core.probe import MetricPattern
from bisect_train_workers.program_log import find_metric, split_pieces
from bisect_train_workers.sources import mlflow_metrics
from bisect_train_workers.sources.csv_rows import read_csv
from bisect_train_workers.sources.json_files import global_step_of, read_json, read_json_lines
from bisect_train_workers.sources.places import OUT, Found, FoundFile, find_files, states_of
from bisect_train_workers.sources.points import Points, join_runs
from bisect_train_workers.sources.tensorboard_events import read_events
from bisect_train_workers.sources.text_lines import decode
from bisect_train_workers.sources.wandb_records import read_history, read_summary

MAX_TEXT_BYTES = 1 << 29
"""Size of a text file that is read, bytes."""

_USUAL = {
    "tensorboard": ("**/events.out.tfevents.*",),
    "csv": ("**/metrics.csv",),
    "jsonl": ("**/*.jsonl",),
    "json": ("**/trainer_state.json",),
    "wandb": ("**/run-*.wandb",),
    "mlflow": ("**/mlflow.db",),
}
"""Globs of the sources, where a recipe names none; MLflow's files are named by the metric besides."""

_SHOWN_NAMES = 6


@dataclass(frozen=True, slots=True)
class FilesBefore:
    """The files that were there before the program started; see `places`.

    Attributes:
        folders: (folder, how it is told).
        states: of the files in them; {} where no metric is read from files.
    """

    folders: tuple[tuple[Path, str], ...]
    states: dict[str, tuple[int, int, int]]

    @staticmethod
    def look(patterns: Sequence[MetricPattern], *, checkout: Path, out: Path) -> FilesBefore:
        """Return what is there now, as far as it matters for these metrics."""
        folders = ((checkout, ""), (out, OUT))
        has_files = any(pattern.source != "log" for pattern in patterns)
        return FilesBefore(folders, states_of(folders) if has_files else {})


@dataclass(frozen=True, slots=True)
class _Part:
    """What one file gave: the run that it belongs to, its order among the files of that run, its points."""

    run: str
    order: tuple[object, ...]
    shown: str
    points: Points


def read_metrics(
    patterns: Sequence[MetricPattern], log: str, before: FilesBefore, *, ending: Ending
) -> tuple[MetricSeries, ...]:
    """Return one series per metric, in the order of the patterns; empty, with a note, where nothing was found.

    Args:
        patterns: what a recipe asks for.
        log: what the program printed.
        before: of the files before it started.
        ending: the last line of a file is whole, without its end too, where the program finished by itself; that of a log
            where it did not fail.
    """
    said = log if ending.is_healthy else log[: max(log.rfind("\n"), log.rfind("\r")) + 1]
    pieces = split_pieces(said) if any(pattern.source == "log" for pattern in patterns) else []
    is_whole = ending.kind is EndingKind.FINISHED
    return tuple(
        find_metric(pieces, pattern) if pattern.source == "log" else _read_files(pattern, before, is_whole=is_whole)
        for pattern in patterns
    )


def _read_files(pattern: MetricPattern, before: FilesBefore, *, is_whole: bool) -> MetricSeries:
    globs = pattern.files or _usual_globs(pattern)
    found = find_files(before.folders, globs, before.states)
    parts, failures = [], []
    for file in found.files:
        try:
            parts += _read_file(file, pattern, is_whole=is_whole)
        except (OSError, ValueError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else error
            failures.append(f"{file.shown} cannot be read: {why}")
    runs: dict[str, list[_Part]] = {}
    for part in parts:
        if part.points.values:
            runs.setdefault(part.run, []).append(part)
    if len(runs) != 1:
        note = _say_several(pattern, runs) if runs else _say_nothing(pattern, globs, found, parts, failures)
        return MetricSeries(pattern.name, (), (), MetricOrigin(pattern.source, note=note))
    (own,) = runs.values()
    own.sort(key=lambda part: (part.order, part.shown))
    if pattern.source == "tensorboard" and (pair := _at_once(own)):
        note = f"{pair[0]} and {pair[1]} were written at the same time, and both have {pattern.key}: name one with `file:`"
        return MetricSeries(pattern.name, (), (), MetricOrigin(pattern.source, note=note))
    if pattern.source == "json":
        own = own[-1:]  # each has the whole history
    joined = join_runs(part.points for part in own)
    precision = joined.precision
    return MetricSeries(
        pattern.name,
        tuple(joined.values),
        joined.known_steps(),
        MetricOrigin(pattern.source, own[-1].shown, precision.decimals, precision.digits, precision.bits, note=joined.note),
    )


def _usual_globs(pattern: MetricPattern) -> tuple[str, ...]:
    usual = _USUAL[pattern.source]
    return (f"**/metrics/{_escaped(pattern.key)}", *usual) if pattern.source == "mlflow" else usual


def _escaped(text: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def _read_file(file: FoundFile, pattern: MetricPattern, *, is_whole: bool) -> list[_Part]:
    """Return what a file gives, by the run that it is of. Raises OSError, ValueError or sqlite3.Error."""
    folder = file.shown.rpartition("/")[0]
    if pattern.source == "tensorboard":
        points = read_events(_bytes_of(file.path), pattern.key)
        return [_Part(folder, (points.span or (0.0, 0.0),), file.shown, points)]
    if pattern.source == "mlflow":
        return _read_mlflow(file, pattern.key, is_whole=is_whole)
    if pattern.source == "wandb":
        return _read_wandb(file, pattern)
    data = _text_bytes_of(file.path)
    if pattern.source == "csv":
        return [_Part(file.shown, (), file.shown, read_csv(data, pattern.key, pattern.step_key, is_whole=is_whole))]
    if pattern.source == "jsonl":
        return [_Part(file.shown, (), file.shown, read_json_lines(data, pattern.key, pattern.step_key))]
    text = decode(data)
    points = read_json(text, pattern.key, pattern.step_key)
    above, _, name = folder.rpartition("/")
    run = above if name.startswith("checkpoint-") else folder
    is_state = file.path.name == "trainer_state.json"
    return [_Part(run if is_state else file.shown, (global_step_of(text), len(points.values)), file.shown, points)]


def _read_wandb(file: FoundFile, pattern: MetricPattern) -> list[_Part]:
    points = read_history(_bytes_of(file.path), pattern.key, pattern.step_key)
    summary = file.path.parent / "files" / "wandb-summary.json"
    is_below = summary.resolve() == file.path.parent.resolve() / "files" / "wandb-summary.json"  # no link leads out
    if not points.values and summary.is_file() and is_below:
        known = points.known
        points = read_summary(decode(_text_bytes_of(summary)), pattern.key)
        points.known |= known
    return [_Part(file.path.name, (file.shown,), file.shown, points)]


def _read_mlflow(file: FoundFile, key: str, *, is_whole: bool) -> list[_Part]:
    with file.path.open("rb") as opened:
        is_store = opened.read(len(mlflow_metrics.SQLITE)) == mlflow_metrics.SQLITE
    if is_store:
        found = mlflow_metrics.read_store(file.path, key)
        return [_Part(f"{file.shown}, run {run}" if run else "", (), file.shown, points) for run, points in found.items()]
    points = mlflow_metrics.read_metric_file(_text_bytes_of(file.path), is_whole=is_whole)
    return [_Part(file.shown, (), file.shown, points)]


def _bytes_of(path: Path) -> bytes:
    """Return a file's bytes, of which only those that are looked at come into memory."""
    with path.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # type: ignore[return-value]  # read as bytes are
        except ValueError:  # an empty file
            return b""


def _text_bytes_of(path: Path) -> bytes:
    """Return a text file's bytes. Raises ValueError where there are too many."""
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise ValueError(f"it is larger than {MAX_TEXT_BYTES >> 20} MiB")
    return path.read_bytes()


def _at_once(parts: Sequence[_Part]) -> tuple[str, str] | None:
    """Return two files of a folder that were written at the same time, by two processes; None where there are none."""
    longest: _Part | None = None
    for part in parts:
        last, span = longest.points.span if longest else None, part.points.span
        if longest and last and span and span[0] < last[1]:
            return longest.shown, part.shown
        if span and (last is None or span[1] > last[1]):
            longest = part
    return None


def _say_several(pattern: MetricPattern, runs: dict[str, list[_Part]]) -> str:
    shown = _listed([parts[-1].shown for parts in runs.values()])
    return f"{pattern.key} is in several runs' files, and nothing says which counts: {shown}; name one with `file:`"


def _say_nothing(
    pattern: MetricPattern, globs: Sequence[str], found: Found, parts: Sequence[_Part], failures: Sequence[str]
) -> str:
    """Return why there is no value."""
    if failures:
        return failures[0]
    if parts:
        known = dict.fromkeys(name for part in parts for name in part.points.known if name)
        broken = next((part.points.note for part in parts if part.points.note), "")
        if pattern.key in known or not known:
            return f"{parts[-1].shown} has no value of {pattern.key}{f': {broken}' if broken else ''}"
        return f"{parts[-1].shown} has no {_WORDS.get(pattern.source, 'key')} {pattern.key}; it has {_listed(list(known))}"
    named = " or ".join(globs)
    if found.outside:
        return (
            f"no file matches {named}, and {_listed(found.outside)} leads out of the folder of the run: nothing is read there"
        )
    if found.unchanged:
        return f"{_listed(found.unchanged)} was there before the run, which did not write it"
    return f"no file matches {named}"


_WORDS = {"tensorboard": "tag", "csv": "column"}


def _listed(names: Sequence[str]) -> str:
    more = f" (+{len(names) - _SHOWN_NAMES} more)" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
