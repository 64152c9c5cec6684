"""What a step's line has only where triage was asked for, or where there are several ranks.

Waits and collective calls belong to the step whose optimizer steps next, as its wall time does.
"""

from __future__ import annotations

import zlib
from typing import Any, List

from .inputs import SampleHashes


class TriagePart:
    """Samples, waits for data and collective calls of one step."""

    __slots__ = ("_digest", "_num_calls", "data_s", "samples")

    def __init__(self, torch: Any) -> None:
        """Start empty."""
        self.samples = SampleHashes(torch)
        self.data_s = 0.0
        self._num_calls = 0
        self._digest = 0

    def take(self, wait: Any, collectives: Any) -> None:
        """Add what came since the optimizer stepped last."""
        self.data_s += wait.take_s()
        count, digest = collectives.take()
        if count:
            self._digest = zlib.crc32(b"%08x" % digest, self._digest) if self._num_calls else digest
            self._num_calls += count

    @property
    def pending(self) -> List[Any]:
        """Parts of the samples that may wait on a device."""
        return self.samples.parts

    def text(self) -> str:
        """Return JSON keys and values, with a comma behind."""
        samples = self.samples.text()
        quoted = "null" if samples is None else f'"{samples}"'
        return f'"data_s": {self.data_s!r}, "collectives": "{self._num_calls}:{self._digest:08x}", "samples": {quoted}, '
