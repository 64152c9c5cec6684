"""How long the program waits for its data loaders."""

from __future__ import annotations

import functools
import sys
import threading
from time import perf_counter
from typing import Any


class DataWait:
    """Time inside the outermost `__next__` of torch's loaders, in the thread that trains: others fetch ahead."""

    def __init__(self) -> None:
        """Start at zero."""
        self._total_s = 0.0
        self._depth = 0
        self._thread = threading.get_ident()

    def take_s(self) -> float:
        """Return the time since the last call, in seconds."""
        taken, self._total_s = self._total_s, 0.0
        return taken

    def install(self) -> None:
        """Replace `__next__` of the base class of all of torch's loader iterators."""
        iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if iterator is None:
            return
        original = iterator.__next__
        wait = self

        @functools.wraps(original)
        def __next__(self: Any) -> Any:
            if threading.get_ident() != wait._thread:
                return original(self)
            started = perf_counter()
            wait._depth += 1
            try:
                return original(self)
            finally:
                wait._depth -= 1
                if not wait._depth:  # a loader may read from another one
                    wait._total_s += perf_counter() - started

        iterator.__next__ = __next__
