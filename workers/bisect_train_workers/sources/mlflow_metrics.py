"""Metrics of local MLflow runs: a file per metric with lines `timestamp value step`, or the tables of an SQLite store."""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from bisect_train_workers.sources.points import Points, number_of, step_of
from bisect_train_workers.sources.text_lines import lines_of

SQLITE = b"SQLite format 3\0"
_MAX_DOUBLE = 1.7976931348623157e308  # MLflow stores an infinity as this
_DOUBLE_BITS = 53


def read_metric_file(data: bytes, *, is_whole: bool) -> Points:
    """Return the values of one metric of a run; a last line without its end counts only where the program finished."""
    points = Points()
    for line in lines_of(data, is_whole=is_whole):
        parts = line.split()
        if len(parts) in (2, 3) and number_of(parts[1]) is not None:
            points.add_text(parts[1], step_of(parts[2]) if len(parts) == 3 else None)
    return points


def read_store(path: Path, key: str) -> dict[str, Points]:
    """Return the values of a metric by run, from a copy of an SQLite store, so that nothing is written beside it.

    Raises:
        sqlite3.Error: the file is damaged or no store.
        OSError: it cannot be copied.
    """
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder, "store.db")
        for suffix in ("", "-wal", "-journal"):
            source = path.with_name(path.name + suffix)
            if source.is_file() and not source.is_symlink():
                shutil.copyfile(source, copied.with_name(copied.name + suffix))
        with closing(sqlite3.connect(copied)) as database:
            rows = database.execute("SELECT run_uuid, value, is_nan, step FROM metrics WHERE key = ? ORDER BY rowid", (key,))
            found: dict[str, Points] = {}
            for run, value, is_nan, step in rows:
                if step is None or (value is None and not is_nan):
                    continue
                points = found.setdefault(str(run), Points())
                points.add(math.nan if is_nan else _with_infinity(float(value)), step_of(str(step)))
                points.precision.take_bits(_DOUBLE_BITS)
            if not found:
                names = [str(name) for (name,) in database.execute("SELECT DISTINCT key FROM metrics ORDER BY key")]
                return {"": Points(known=dict.fromkeys(names))}
    return found


def _with_infinity(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == _MAX_DOUBLE else value
