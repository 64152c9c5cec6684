"""Modules that a fresh process would take from the checkout, and a fork has already from elsewhere.

A file `random.py` beside the script hides the standard library's from everything that is imported later, torch included. A
fork has imported it before, and would not see the difference that a commit made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

_AT_START = frozenset({"sitecustomize", "usercustomize"})
_SUFFIXES = (".py", ".pyc", ".so", ".pyd")


def has_shadows(checkout: Path, import_folders: Iterable[Path], loaded: Collection[str]) -> bool:
    """Return whether a module of the checkout has the name of one that is loaded.

    In the folders that the interpreter looks in from its start every name counts. Elsewhere, where a program may put a folder
    on its path, only those of installed packages do: most of the standard library is loaded by then in a fresh process, too.
    """
    names = _AT_START.union(loaded)
    if any(not names.isdisjoint(_modules_in(folder)) for folder in import_folders):
        return True
    installed = names - sys.stdlib_module_names
    for folder, subfolders, _ in os.walk(checkout):
        if ".git" in subfolders:
            subfolders.remove(".git")
        if not installed.isdisjoint(_modules_in(Path(folder))):
            return True
    return False


def _modules_in(folder: Path) -> set[str]:
    """Return the names that can be imported from a folder; one without `__init__` hides nothing."""
    found = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES):
                    found.add(entry.name.partition(".")[0])
                elif entry.is_dir() and any(Path(entry, f"__init__{suffix}").exists() for suffix in _SUFFIXES):
                    found.add(entry.name)
    except OSError:  # no such folder: nothing is imported from it
        return set()
    return found
