"""Lists which files of the checkout the program imported, and which came from elsewhere."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from .redirect import is_installed, is_under

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


@functools.lru_cache(maxsize=None)
def _real_folder(folder: str) -> str:
    """Return the folder without symbolic links; a program has few folders and many modules."""
    return os.path.realpath(folder)


def module_path(module: Any, start_folder: str) -> Optional[str]:
    """Return the absolute path of a module's file, its folder without symbolic links; else None.

    torch invents relative names such as `_ops.py`; a relative path counts only if it exists.
    """
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path:
        return None
    if not os.path.isabs(path):
        path = os.path.join(start_folder, path)
        if not os.path.exists(path):
            return None
    folder, name = os.path.split(path)
    return os.path.join(_real_folder(folder), name)


def list_paths(start_folder: str) -> Dict[str, str]:
    """Return module name -> path for all modules with a file, and the script itself.

    Python deletes `__main__.__file__` before exit handlers run.
    """
    paths = {name: module_path(module, start_folder) for name, module in list(sys.modules.items())}
    script = os.path.join(start_folder, sys.argv[0]) if getattr(sys, "argv", None) and sys.argv[0] else ""
    if paths.get("__main__") is None and os.path.isfile(script):
        paths["__main__"] = os.path.realpath(script)
    return {name: path for name, path in paths.items() if path and not is_under(path, _OWN_FOLDER)}


def list_imports(start_folder: str, root: Optional[str], source: Optional[str]) -> Tuple[List[str], Dict[str, str]]:
    """Return the imported files under `root` and the modules that came from `source` instead.

    Returns:
        Sorted paths relative to root; and module name -> path for modules under `source` that
        are neither under root nor installed packages.
    """
    tracked = set()
    outside = {}
    real_root = os.path.realpath(root) if root else None
    real_source = os.path.realpath(source) if source else None
    for name, path in list_paths(start_folder).items():
        if real_root and is_under(path, real_root):
            if not is_installed(path, real_root):
                tracked.add(os.path.relpath(path, real_root))
        elif real_source and is_under(path, real_source) and not is_installed(path, real_source):
            outside[name] = path
    return sorted(tracked), outside


def record_imports(session: Any) -> None:
    """Event imports; nothing where no checkout is set."""
    settings = session.settings
    if settings.root is None:
        return
    tracked, outside = list_imports(session.start_folder, settings.root, settings.redirect_from)
    session.event("imports", tracked=tracked, outside=outside)
