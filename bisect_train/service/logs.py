"""Logs of what the service starts: one small file each in the home folder, for its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisect_train.core.secrets import mask_text

FOLDER = "service"
TAIL_BYTES = 4000


def log_path(home: Path, name: str) -> Path:
    """Return where the log of a bisection (its id) or of Ray lies."""
    return home / FOLDER / f"{name}.log"


@contextmanager
def open_log(path: Path) -> Iterator[int]:
    """Give the descriptor of an emptied log."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def last_complaint(path: Path) -> str:
    """Return the last error that a log tells, on one line; "" where it tells none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    marks = ("bisect-train: error: ", "bisect-train: ")
    for mark in marks:
        found = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
        if found:
            return mask_text(found[-1])[:500]
    return mask_text(lines[-1])[:500] if lines else ""
