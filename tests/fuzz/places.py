"""Folders for targets that read files: made when first asked for, gone with the process."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def folder(name: str) -> Path:
    """Return an empty folder of this process."""
    made = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def write(path: Path, data: bytes) -> Path:
    """Write a file of a case, and its folders; return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
