"""Tells, at the end, what the program read inside its checkout: files, listed folders, and why that may not be all.

Python's audit hook (`outside_files`) has the path of every file that python code opened, failed tries included, and of every
folder that it listed. A module whose byte code was valid is not opened itself: `sys.modules` has it, and the byte code's own
name leads to it. Not seen are files that native code opens (`torch.jit.load`, `safetensors`, OpenCV ...): which libraries of
that kind are loaded is told, and whoever reads this must count files of the kinds that they take as read. Nor are `stat` and
`exists` seen. Whatever another process may have read is a doubt.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional, Set

from . import outside_files
from .import_audit import list_paths
from .redirect import is_installed

MAX_FILES = 5000
"""How many paths are told of each kind; more are a doubt."""

_LAUNCHERS = frozenset(["torch.distributed.run", "torch.distributed.launch"])
_NATIVE = (".so", ".pyd", ".dylib")
_NO_PATH = ".__path_hook__"  # what setuptools puts on sys.path to be asked for editable installs
# imported by `multiprocessing` only when it starts a new python, which no audit event tells
_STARTERS = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")


class Places:
    """Says where in the checkout a path lies."""

    def __init__(self, root: str) -> None:
        """Take the root as it was given and without symbolic links."""
        self._roots = sorted({os.path.abspath(root), os.path.realpath(root)})
        self._real_folders: Dict[str, str] = {}
        self._own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

    def inside(self, path: str) -> Optional[str]:
        """Return the path relative to the checkout, "" for the checkout itself; None outside of it."""
        tidy = os.path.normpath(path)
        for root in self._roots:
            if tidy == root:
                return ""
            if tidy.startswith(root + os.sep):
                return tidy[len(root) + 1 :]
        return None

    def all_inside(self, path: str) -> Set[str]:
        """Return where a path lies, as it is written and without symbolic links; empty outside of the checkout."""
        real = self._real(path)
        if real == self._own or real.startswith(self._own + os.sep):
            return set()
        return {inner for form in (path, real) for inner in [self.inside(form)] if inner is not None}

    def _real(self, path: str) -> str:
        """Return a path without symbolic links; a program has few folders and many files."""
        folder, name = os.path.split(os.path.normpath(path))
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        joined = os.path.join(self._real_folders[folder], name)
        return os.path.realpath(joined) if os.path.islink(joined) else joined


def record_files_read(session: Any) -> None:
    """Event files_read; nothing where no checkout is set. A later one replaces an earlier one."""
    watch = outside_files.current()
    if watch is not None:
        session.event("files_read", **describe(session, watch))


class ReadTeller:
    """Tells before an optimizer's step what was read so far, where that has grown: such a run may be killed after any step."""

    def __init__(self, session: Any) -> None:
        """Tell nothing yet."""
        self._session = session
        self._num_told = -1

    def before_step(self, *_: Any) -> None:
        """Event files_read with `so_far`, if there is more than at the last one."""
        watch = outside_files.current()
        if watch is not None and watch.num_read() != self._num_told:
            self._num_told = watch.num_read()
            self._session.event("files_read", so_far=True, **describe(self._session, watch))


def describe(session: Any, watch: Any) -> Dict[str, Any]:
    """Return `files`, `folders` listed by the program and `searched` by imports, `natives`, `doubts`, `launcher`."""
    places = Places(session.settings.root)
    doubts = set(watch.doubts)
    modules = list_paths(session.start_folder)
    own = [path for path in modules.values() if not path.startswith(watch.ignored)]
    files = _inside(places, [*map(_source_of, list(watch.opened)), *own])
    folders, searched = _inside(places, list(watch.listed)), _inside(places, list(watch.searched))
    if any(path == ".git" or path.startswith(".git/") for path in files | folders):
        doubts.add("it reads .git")
    natives = _natives(session.settings.root, modules, list(watch.loaded), doubts)
    if session.channel != "sitecustomize":
        doubts.add("the recorder was loaded late")
    if any(name in sys.modules for name in _STARTERS):
        doubts.add("multiprocessing started a process")
    if len(watch.opened) >= outside_files.MAX_OPENED or max(map(len, (files, folders, searched))) > MAX_FILES:
        doubts.add("too many files")
    return {
        "files": sorted(files)[:MAX_FILES],
        "folders": sorted(folders)[:MAX_FILES],
        "searched": sorted(searched)[:MAX_FILES],
        "natives": sorted(natives)[:MAX_FILES],
        "doubts": sorted(doubts),
        "launcher": _is_launcher(),
    }


def _inside(places: Places, paths: List[str]) -> Set[str]:
    found: Set[str] = set()
    for path in set(paths):
        if not path.endswith(_NO_PATH):
            found |= places.all_inside(path)
    return found


def _source_of(path: str) -> str:
    """Return the source that byte code was made from, any other path as it is; see `importlib.util.source_from_cache`.

    Byte code that is being written has a number behind its name.
    """
    folder, name = os.path.split(path)
    if ".pyc" not in name:
        return path
    source = name.partition(".")[0] + ".py"
    if os.path.basename(folder) == "__pycache__":
        return os.path.join(os.path.dirname(folder), source)
    prefix = getattr(sys, "pycache_prefix", None)
    if prefix and path.startswith(prefix.rstrip(os.sep) + os.sep):
        return os.path.join(os.sep, os.path.relpath(folder, prefix), source)
    return path


def _natives(root: str, modules: Dict[str, str], loaded: List[str], doubts: Set[str]) -> Set[str]:
    """Return what native code is loaded: top-level module names, or names of libraries; the checkout's own is a doubt."""
    places = Places(root)
    real_root = os.path.realpath(root)
    standard = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
    found = set()
    for name, path in modules.items():
        if not path.endswith(_NATIVE):
            continue
        if places.inside(path) is not None and not is_installed(path, real_root):
            doubts.add("it loads native code of the checkout")
        elif not path.startswith(standard) or _is_package(path):
            found.add(name.partition(".")[0])
    for path in loaded:
        if os.sep in path and places.inside(os.path.abspath(path)) is not None and not is_installed(path, real_root):
            doubts.add("it loads native code of the checkout")
        found.add(_package_of(path))
    return found


def _is_package(path: str) -> bool:
    return "/site-packages/" in path or "/dist-packages/" in path


def _package_of(path: str) -> str:
    """Return the installed package that a library belongs to, else the library's own name."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return path.partition(mark)[2].partition("/")[0].partition(".")[0]
    return os.path.basename(path)


def _is_launcher() -> bool:
    """Tell whether this is torchrun, whose processes are the ranks."""
    main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)
    return main in _LAUNCHERS or os.path.basename((getattr(sys, "argv", None) or [""])[0]) == "torchrun"
