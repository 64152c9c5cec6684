"""Bisections rebuilt from their observations, kept until something new is stored: that costs from milliseconds to seconds.

One caller rebuilds a bisection at a time, and the others wait for it. While a large one runs, an older state is good enough for
as long as it took to make it, so that watchers never keep more than half a core busy with one bisection.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from bisect_train.report.parts import ReportData
from bisect_train.service.backend import Backend
from bisect_train.service.pages.contract import Opened

MAX_KEPT = 8


@dataclass(slots=True)
class _Kept:
    guard: threading.Lock = field(default_factory=threading.Lock)
    seq: int = -1
    opened: Opened | None = None
    report: ReportData | None = None
    made_t: float = 0.0
    took_s: float = 0.0


class Openings:
    """The last few bisections that somebody looked at.

    Args:
        backend: rebuilds them.
        clock: seconds.
    """

    def __init__(self, backend: Backend, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def open(self, bisection_id: str) -> Opened:
        """Return a bisection. Raises what `Backend.open` raises."""
        return self._look(bisection_id, with_report=False)[0]

    def report(self, bisection_id: str) -> tuple[Opened, ReportData]:
        """Return a bisection and its report."""
        opened, report = self._look(bisection_id, with_report=True)
        assert report is not None, bisection_id
        return opened, report

    def report_of(self, opened: Opened) -> ReportData:
        """Return the report of a bisection that was returned before, the kept one where that is the same."""
        with self._guard:
            kept = self._kept.get(opened.stored.id)
        if kept is None:
            return self._backend.report_of(opened)
        with kept.guard:
            if kept.opened is not opened:
                return self._backend.report_of(opened)
            kept.report = kept.report or self._backend.report_of(opened)
            return kept.report

    def _look(self, bisection_id: str, *, with_report: bool) -> tuple[Opened, ReportData | None]:
        with self._guard:
            kept = self._kept.setdefault(bisection_id, _Kept())
            self._kept.move_to_end(bisection_id)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        with kept.guard:
            if not self._is_fresh(bisection_id, kept):
                started_t, seq = self._clock(), self._last_seq(bisection_id)
                kept.opened, kept.report = self._backend.open(bisection_id), None
                kept.seq, kept.made_t = seq, self._clock()
                kept.took_s = kept.made_t - started_t
            assert kept.opened is not None, bisection_id
            if with_report and kept.report is None:
                started_t = self._clock()
                kept.report = self._backend.report_of(kept.opened)
                kept.took_s += self._clock() - started_t
            return kept.opened, kept.report

    def _is_fresh(self, bisection_id: str, kept: _Kept) -> bool:
        if kept.opened is None:
            return False
        if self._clock() - kept.made_t < min(kept.took_s, 30.0):
            return True
        return not self._backend.store.events(bisection_id, after=kept.seq, limit=1)

    def _last_seq(self, bisection_id: str) -> int:
        events = self._backend.store.events(bisection_id)
        return events[-1].seq if events else 0
