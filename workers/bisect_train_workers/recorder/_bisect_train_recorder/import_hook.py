"""Runs callbacks right after the program imports a module, and costs nothing otherwise.

A finder at the head of `sys.meta_path` lets the other finders find the module and replaces the
`exec_module` of that one loader object. Looking a module up without importing it
(`importlib.util.find_spec`) therefore triggers nothing.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Optional

Callback = Callable[[Any, Any], None]


class ImportHook:
    """Callbacks by module name; each is called once as `callback(session, module)`."""

    def __init__(self, session: Any) -> None:
        """Start with no names; `after` adds them and `install` begins to watch."""
        self._session = session
        self._callbacks: Dict[str, List[Callback]] = {}

    def after(self, name: str, callback: Callback) -> None:
        """Call `callback(session, module)` once the module is imported; callbacks keep their order."""
        self._callbacks.setdefault(name, []).append(callback)

    def now_or_after(self, name: str, callback: Callback) -> None:
        """As `after`, but at once for a module that has been imported; for use from a callback."""
        self.after(name, callback)
        if name in sys.modules:
            self._run_callbacks(name)

    def install(self) -> None:
        """Run the callbacks of modules that are there already and watch for the others."""
        for name in list(self._callbacks):
            if name in sys.modules:
                self._run_callbacks(name)
        if self._callbacks:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """Find a watched module by the other finders; None for every other name."""
        if name not in self._callbacks:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self._watch(spec, name)
                return spec
        return None

    def _watch(self, spec: Any, name: str) -> None:
        """Make the spec's loader run the callbacks after it has executed the module."""
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: Any) -> None:
            del loader.exec_module  # the program sees the loader as it always was
            execute(module)
            self._run_callbacks(name)

        try:
            loader.exec_module = exec_module
        except AttributeError as error:  # a loader written in C
            self._session.note_error(f"import of {name}", error)

    def _run_callbacks(self, name: str) -> None:
        """Run and forget the callbacks of one module."""
        for callback in self._callbacks.pop(name, []):
            self._session.guarded(callback)(self._session, sys.modules.get(name))
        if not self._callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
