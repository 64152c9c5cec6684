"""What killed coordinators, workers and programs left on this machine: processes, private folders, half-made folders, Rays.

Each run cleans up after earlier ones as it comes across them; this looks everywhere at once, so that it can be told that
nothing is left. Whatever carries the lock or the marker of a living process is passed over.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bisect_train_workers.locks import try_lock
from bisect_train_workers.node import NodeError, NodeHome, remove_folder
from bisect_train_workers.overlay import overlay_shelf
from bisect_train_workers.probe_folders import sweep_private_folders
from bisect_train_workers.processes import SESSION_MARKER, end_all, find_marked, is_orphan
from bisect_train_workers.remote_data import data_shelf
from bisect_train_workers.upkeep import hold_beginnings, is_locked
from bisect_train_workers.whole_environment import environment_shelf

WARM = "folder of an ended warm process"
"""Usual after a run: such a process ends only after the coordinator whose folder it would be to remove."""
_SESSIONS = "bt-ray-*"
_SCRATCH_S = 3600.0
"""Files that are written beside their place have no lock: younger ones may be just being written."""
_SCRATCH = (
    "mirrors/.new-*",
    "packs/.new-*",
    "package-repos/.new-*",
    "package-repos/clone-*",
    "packs/*/tmp*",
    "mirrors/*/objects/info/tmp*",
)


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that nobody uses any more: what it is, and where (a path, or a process)."""

    what: str
    where: str


def find_leftovers(home: Path, node: NodeHome) -> tuple[Leftover, ...]:
    """Return what is left behind on this machine; changes nothing.

    Args:
        home: the tool's folder for state.
        node: the folder for probes on this machine.
    """
    return (
        *(Leftover("process of a dead probe", _say(process)) for process in find_marked(is_orphan)),
        *(Leftover("process of a dead Ray", _say(process)) for process in _find_ray_processes(home)),
        *(Leftover("files of a dead Ray", str(folder)) for folder in _dead_sessions(home)),
        *(Leftover("folder of a dead probe", str(folder)) for folder in _dead_probes(node)),
        *(Leftover(WARM, str(folder)) for folder in _abandoned(node.path / "warm")),
        *(Leftover("half-made packages", str(path)) for path in _half_made(node)),
        *(Leftover("scratch", str(path)) for path in _scratch(home)),
    )


def sweep_leftovers(home: Path, node: NodeHome) -> tuple[Leftover, ...]:
    """End and remove what `find_leftovers` finds; returns what is there after that."""
    end_all(lambda: find_marked(is_orphan))
    end_all(lambda: _find_ray_processes(home))
    sweep_private_folders(node)
    for folder in [*_dead_sessions(home), *_abandoned(node.path / "warm")]:
        _remove_unlocked(folder)
    with contextlib.suppress(NodeError, OSError):
        for shelf in (overlay_shelf(node), environment_shelf(node), data_shelf(node)):
            shelf.sweep()
    for path in _scratch(home):
        with contextlib.suppress(OSError):
            remove_folder(path)
    return find_leftovers(home, node)


def _find_ray_processes(home: Path) -> list[psutil.Process]:
    names = {folder.name for folder in _dead_sessions(home)}
    return find_marked(names.__contains__, variable=SESSION_MARKER) if names else []


def _dead_sessions(home: Path) -> list[Path]:
    """Return the folders of local Rays whose coordinator is gone, wherever one may have put them."""
    parents = dict.fromkeys([home / "ray", Path(tempfile.gettempdir()), Path("/tmp")])
    return [folder for parent in parents for folder in sorted(parent.glob(_SESSIONS)) if _is_abandoned(folder)]


def _dead_probes(node: NodeHome) -> list[Path]:
    with hold_beginnings(node.path):
        return _abandoned(node.path / "probes")


def _abandoned(parent: Path) -> list[Path]:
    try:
        return sorted(filter(_is_abandoned, parent.iterdir()))
    except OSError:
        return []


def _is_abandoned(folder: Path) -> bool:
    is_ours = folder.is_dir() and not folder.is_symlink() and (folder / "lock").is_file()
    return is_ours and os.access(folder, os.W_OK) and not is_locked(folder / "lock")


def _half_made(node: NodeHome) -> list[Path]:
    found = [path for shelf in (overlay_shelf(node), environment_shelf(node), data_shelf(node)) for path in shelf.leftovers()]
    return [path for path in found if not is_locked(path.with_suffix(".build")) and not is_locked(path.with_suffix(".use"))]


def _scratch(home: Path) -> list[Path]:
    found = sorted(path for pattern in _SCRATCH for path in home.glob(pattern) if _is_old(path))
    return [path for path in found if path.parent.resolve().is_relative_to(home.resolve())]  # no link leads out


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > _SCRATCH_S
    except OSError:
        return False


def _remove_unlocked(folder: Path) -> None:
    with contextlib.suppress(NodeError, OSError):
        lock = try_lock(folder / "lock")
        if lock is not None:
            try:
                remove_folder(folder)
            finally:
                lock.release()


def _say(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:120]}"
    except psutil.Error:
        return f"process {process.pid}"
