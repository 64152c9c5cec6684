"""A connection that must send its request in time: one that says nothing, or its headers drop by drop, is closed.

uvicorn itself waits for ever for the headers of a request, and every connection that it holds counts towards its limit.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0


class BoundedConnection(H11Protocol):
    """One HTTP connection; `header_s` seconds after its first byte, or after it was opened, a request's headers are here."""

    header_s = HEADER_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Wait for headers while none are whole; a body has a limit of its own, see `guard`."""
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_s, self._close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        self.transport.close()
