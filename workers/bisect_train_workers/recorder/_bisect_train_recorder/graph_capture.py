"""While a CUDA graph is captured the recorder looks away: what it asks of the device would end the capture.

Steps that are replayed from a graph call no hook at all, so an event says that from here on not every step is seen.
"""

from __future__ import annotations

from typing import Any, Callable

from .first_batch import is_capturing


class GraphCapture:
    """Leaves hooks out during a capture, and notes the first one."""

    def __init__(self, session: Any, torch: Any) -> None:
        """Look whether this torch can capture at all."""
        self._session = session
        self._torch = torch
        self._is_possible = hasattr(torch._C, "_cuda_getDeviceCount")
        self._is_noted = False

    def is_on(self) -> bool:
        """Tell whether a graph is being captured now."""
        if not is_capturing(self._torch):
            return False
        if not self._is_noted:
            self._is_noted = True
            self._session.event("graph_captured")
        return True

    def leave_out(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook that does nothing during a capture."""
        if not self._is_possible:
            return hook

        def body(*args: Any, **kwargs: Any) -> Any:
            return None if self.is_on() else hook(*args, **kwargs)

        return body
