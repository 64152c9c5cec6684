"""Whether what a node keeps is still what was put there: git objects by their names, packages by their own lists of files."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bisect_train_workers.gitcmd import call_git
from bisect_train_workers.overlay import FACTS
from bisect_train_workers.upkeep import ENVIRONMENT, MIRROR, OVERLAY, CacheItem

_LIMIT_S = 60.0
_MAX_SHOWN = 300


def find_damage(item: CacheItem) -> str:
    """Return what is wrong with an item of a node, "" for nothing. Only git objects and packages are looked at."""
    if item.kind == MIRROR:
        return find_git_damage(item.path)
    if item.kind == OVERLAY:
        return _find_overlay_damage(item.path)
    return _find_environment_damage(item.path) if item.kind == ENVIRONMENT else ""


def find_git_damage(folder: Path, *, has_loose: bool = False) -> str:
    """Return what git finds wrong with a bare repository, "" for nothing.

    Args:
        folder: of the repository.
        has_loose: whether it holds loose objects of its own: then each is read. Nothing refers to them, so that a look at
            connections alone would pass them over.
    """
    scope = ["--no-full"] if has_loose else ["--connectivity-only"]
    status, _, errors = call_git(["fsck", *scope, "--no-dangling", "--no-progress"], cwd=folder)
    lines = [line for line in errors.decode(errors="replace").splitlines() if not line.startswith("notice:")]
    if status:
        return (" ".join(lines) or f"git fsck ended with status {status}")[:_MAX_SHOWN]
    packs = sorted(str(path) for path in (folder / "objects/pack").glob("*.idx"))
    status, _, errors = call_git(["verify-pack", *packs], cwd=folder) if packs else (0, b"", b"")
    return (errors.decode(errors="replace").strip() or "a pack cannot be read")[:_MAX_SHOWN] if status else ""


def _find_overlay_damage(path: Path) -> str:
    try:
        json.loads((path / FACTS).read_text(encoding="utf-8"))["digest"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{FACTS} cannot be read: {error}"
    return _first_wrong_file(path / "site-packages")


def _find_environment_damage(path: Path) -> str:
    python = path / "env/bin/python"
    try:
        subprocess.run([str(python), "-I", "-c", ""], check=True, capture_output=True, timeout=_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return f"its python does not start: {error}"[:_MAX_SHOWN]
    sites = sorted((path / "env/lib").glob("python*/site-packages"))
    return _first_wrong_file(sites[0]) if sites else "it has no site-packages"


def _first_wrong_file(site: Path) -> str:
    """Return the first file that is missing, or has another size than its package says; "" for none."""
    if not site.is_dir():
        return f"{site.name} is gone"
    for name, size in _listed_files(site):
        try:
            found = (site / name).stat().st_size
        except OSError:
            return f"{name} is gone"
        if found != size:
            return f"{name} has {found} bytes, its package says {size}"
    return ""


def _listed_files(site: Path) -> Iterator[tuple[str, int]]:
    """Yield the files inside a folder of packages that their RECORDs list with a size."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        for row in csv.reader(record.read_text(encoding="utf-8", errors="replace").splitlines()):
            if len(row) == 3 and row[2].isdigit() and not row[0].startswith(("../", "/")):
                yield row[0], int(row[2])
