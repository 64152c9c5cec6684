"""A module that is imported when it is first used: the supervisor starts the program first, and loads psutil beside it.

Standard library only, since the supervisor imports this file.
"""

from __future__ import annotations

import importlib
from typing import Any


class LateModule:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str) -> None:
        """Name the module; it is not imported yet."""
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
