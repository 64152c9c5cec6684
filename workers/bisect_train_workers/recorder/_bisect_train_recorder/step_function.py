"""Watches the function whose calls are the steps, where a recipe names one: `package.module:Class.method` or `:function`.

The function is replaced once its module has been imported. A script that python runs has no such moment: of `__main__` a
method is found as its class is built.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from typing import Any, Callable

from . import traced


class StepFunction:
    """Puts a watch on the named function."""

    def __init__(self, session: Any) -> None:
        """Take the name from the settings."""
        self._session = session
        self.name: str = session.settings.step_function
        self._module, _, self._path = self.name.partition(":")
        self._begin: Callable[[], None] = _nothing
        self._end: Callable[[bool], None] = _nothing

    def tell(self, begin: Callable[[], None], end: Callable[[bool], None]) -> None:
        """Call `begin()` before it runs and `end(whether it returned)` afterwards, from now on."""
        self._begin, self._end = begin, end

    def install(self, hook: Any) -> None:
        """Find the function once its module is there; `hook` is the import hook."""
        if self._module == "__main__":
            self._watch_main()
        elif self._module:
            hook.after(self._module, lambda session, module: self._replace(module, self._path.split(".")))

    def _wrap(self, function: Any) -> Any:
        def begin() -> None:
            self._begin()

        def end(has_returned: bool) -> None:
            self._end(has_returned)

        compiler = sys.modules.get("torch.compiler")  # torch 2.0 has none that can say
        is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)
        return traced.in_between(function, begin, end, is_compiling)

    def _replace(self, owner: Any, names: Any) -> None:
        """Wrap the function that a path of names leads to; event step_function says whether there is one."""
        for name in names[:-1]:
            owner = getattr(owner, name, None)
        original = None if owner is None else inspect.getattr_static(owner, names[-1], None)
        if isinstance(original, (staticmethod, classmethod)):
            setattr(owner, names[-1], type(original)(self._wrap(original.__func__)))
        elif callable(original):
            setattr(owner, names[-1], self._wrap(original))
        else:
            self._session.event("step_function", function=self.name, is_found=False)
            return
        self._session.event("step_function", function=self.name, is_found=True)

    def _watch_main(self) -> None:
        """Wrap the method when the script's class is built."""
        original = builtins.__build_class__
        wanted, _, method = self._path.rpartition(".")

        def build_class(function: Any, name: str, *bases: Any, **options: Any) -> Any:
            built = original(function, name, *bases, **options)
            is_main = getattr(function, "__globals__", {}).get("__name__") == "__main__"
            if is_main and built.__qualname__ == wanted and builtins.__build_class__ is build_class:
                builtins.__build_class__ = original
                self._session.guarded(self._replace)(built, [method])
            return built

        builtins.__build_class__ = build_class


def _nothing(*_: Any) -> None:
    """Do nothing: torch has not been imported yet."""
