"""Makes editable installs that point into the user's repository point into the checkout.

The `.pth` files have been processed when this runs, so it rewrites what they left behind:
entries of `sys.path` (also legacy `.egg-link` installs, hatch, poetry, pdm), the tables of
setuptools' `__editable___*_finder` modules and those of the `editables` package.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}


def is_under(path: str, folder: str) -> bool:
    """Tell whether the path is the folder or lies below it; both absolute, compared as text."""
    folder = folder.rstrip(os.sep)
    return path == folder or path.startswith(folder + os.sep)


def is_installed(path: str, repository: str) -> bool:
    """Tell whether the path lies among installed packages, as in a `.venv` inside the repository."""
    if not _PACKAGE_FOLDERS.isdisjoint(path.split(os.sep)):
        return True
    prefix = sys.prefix.rstrip(os.sep)
    return prefix != repository and is_under(prefix, repository) and is_under(path, prefix)


def redirected(path: Any, source: str, root: str) -> Optional[str]:
    """Return where a path under the user's repository lies in the checkout, else None.

    A checkout inside the repository and a virtual environment inside it are left alone.
    """
    if not isinstance(path, str) or not path or not os.path.isabs(path):
        return None
    roots = (os.path.normpath(root), os.path.realpath(root))
    sources = (os.path.normpath(source), os.path.realpath(source))
    for candidate in (os.path.normpath(path), os.path.realpath(path)):
        if any(is_under(candidate, base) for base in roots):
            return None
        for base in sources:
            if is_under(candidate, base):
                inner = os.path.relpath(candidate, base)
                return None if is_installed(candidate, base) else os.path.normpath(os.path.join(root, inner))
    return None


def redirect_imports(source: str, root: str) -> None:
    """Rewrite sys.path and the tables of editable finders from `source` to `root`, in place."""
    sys.path[:] = [redirected(entry, source, root) or entry for entry in sys.path]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            _rewrite_table(getattr(module, "MAPPING", None), source, root)
            _rewrite_table(getattr(module, "NAMESPACES", None), source, root)
    editables = sys.modules.get("editables.redirector")
    _rewrite_table(getattr(getattr(editables, "RedirectingFinder", None), "_redirections", None), source, root)


def _rewrite_table(table: Any, source: str, root: str) -> None:
    """Rewrite the paths, or lists of paths, that are the values of a dict."""
    if not isinstance(table, dict):
        return
    for key, value in list(table.items()):
        if isinstance(value, list):
            value[:] = [redirected(entry, source, root) or entry for entry in value]
        else:
            table[key] = redirected(value, source, root) or value
