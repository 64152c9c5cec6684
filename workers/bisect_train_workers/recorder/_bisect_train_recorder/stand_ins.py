"""Inert modules in the place of some that are not installed, such as loggers.

A finder at the very end of `sys.meta_path` is only asked once nothing else has found the module, so a real one always wins.
An attribute of a stand-in, the result of a call and what a `with` gives are more of the same; loops over one are empty.
"""

from __future__ import annotations

import importlib.machinery
import sys
from typing import Any, Optional

VERSION = "999.0.0"  # checks for a least version are common, for a highest one rare


class InertBase:
    """What a class that derives from a stand-in gets as its base."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take anything."""

    def __getattr__(self, name: str) -> Any:
        """Give an inert thing for every method that is not there."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert(f"{type(self).__name__}.{name}")


class Inert:
    """Something that does nothing, whatever is asked of it."""

    def __init__(self, path: str) -> None:
        """Remember what it stands for, for messages."""
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> Any:
        """Give more of the same; special names are absent, so that copying, pickling and inspection see a plain object."""
        return attribute_of(self._path, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep what the program sets."""
        self.__dict__[name] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function that it decorates, else more of the same."""
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Inert):
            return args[0]
        return Inert(f"{self._path}()")

    def __enter__(self) -> Any:
        """Give itself."""
        return self

    def __exit__(self, *exc_info: Any) -> None:
        """Let every exception through."""

    async def __aenter__(self) -> Any:
        """Give itself."""
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        """Let every exception through."""

    def __getitem__(self, key: Any) -> Any:
        """Give more of the same."""
        return Inert(f"{self._path}[]")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forget it."""

    def __delitem__(self, key: Any) -> None:
        """Forget it."""

    def __iter__(self) -> Any:
        """Be empty."""
        return iter(())

    def __len__(self) -> int:
        """Be empty."""
        return 0

    def __bool__(self) -> bool:
        """Be there, as a real object would."""
        return True

    def __contains__(self, item: Any) -> bool:
        """Hold nothing."""
        return False

    def __repr__(self) -> str:
        """Say what it is."""
        return f"<stand-in for {self._path}>"

    def __mro_entries__(self, bases: Any) -> Any:
        """Let a program's class derive from it."""
        return (InertBase,)

    def __instancecheck__(self, instance: Any) -> bool:
        """Nothing is an instance of it."""
        return False

    def __subclasscheck__(self, subclass: Any) -> bool:
        """Nothing derives from it."""
        return False


def attribute_of(path: str, name: str) -> Any:
    """Return an attribute of a stand-in: an exception class where the name says so, else an inert thing."""
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"the stand-in for {path} has no {name}")
    if name.endswith(("Error", "Exception")) and name[:1].isupper():
        return type(name, (Exception,), {})
    return Inert(f"{path}.{name}")


class StandIns:
    """The last finder, and the loader of what it finds."""

    def __init__(self, session: Any) -> None:
        """Stand in for the modules of the settings and all below them."""
        self._session = session
        self._names = session.settings.stubs

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """Find a module that nothing else has; below a real package nothing is replaced."""
        top = name.partition(".")[0]
        if top not in self._names:
            return None
        if top != name and not isinstance(getattr(sys.modules.get(top), "__loader__", None), StandIns):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """Use an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Fill the module, and note that it stands in for the real one."""
        name, made = module.__name__, {}

        def __getattr__(attribute: str) -> Any:
            if attribute not in made:
                made[attribute] = attribute_of(name, attribute)
            return made[attribute]

        module.__getattr__ = __getattr__
        module.__version__ = VERSION
        if "." not in name:
            self._session.guarded(self._session.event)("stub", what=name)


def install(session: Any) -> None:
    """Put the finder last."""
    sys.meta_path.append(StandIns(session))  # type: ignore[arg-type]
