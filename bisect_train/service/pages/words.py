"""Words and marks of the pages: statuses, times, costs. A status has a shape besides its words, so that no colour is needed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bisect_train.report.words import say_count, say_seconds
from bisect_train.store.contract import Store, StoredBisection
from bisect_train.store.standing import STOPPED, standing_of


@dataclass(frozen=True, slots=True)
class Status:
    """Where a bisection stands: its name (of the store or of report.json), words, and look (a class of the style sheet)."""

    name: str
    words: str
    look: str


_STATUSES = {
    "isolated": ("culprit proved", "found"),
    "several": ("several culprits proved", "found"),
    "no_regression": ("no regression", "found"),
    "candidates": ("candidates", "open"),
    "drift": ("drift", "open"),
    "not_reproduced": ("not reproduced", "open"),
    "fixed_before": ("fixed before", "open"),
    "budget": ("budget spent", "open"),
    "failed": ("could not be tested", "failed"),
    "running": ("running", "running"),
    "queued": ("waits for its turn", "waiting"),
    "created": ("not started", "waiting"),
    "stopped": ("stopped: its coordinator has died", "halted"),
    "interrupted": ("interrupted", "halted"),
    "cancelled": ("cancelled", "halted"),
    "changed": ("changed by hand", "halted"),
    "finished": ("finished", "open"),
}
FILTERS = (
    "running",
    "queued",
    "isolated",
    "several",
    "no_regression",
    "candidates",
    "drift",
    "not_reproduced",
    "failed",
    "cancelled",
)
"""Statuses that a list can be filtered by."""
NIGHT_WORDS = {
    "clean": "clean",
    "regression": "regression",
    "drift": "drift",
    "untestable": "cannot be tested",
    "intended": "intended change",
    "fixed": "fixed",
    "unclear": "cannot tell",
    "unfinished": "not finished",
}
HALTED = ("stopped", "interrupted", "cancelled", "changed")
"""Statuses of a bisection that can go on."""
MOST = 2.0**53
"""No bisection costs as much, whatever is stored."""


def status_words(name: str) -> str:
    """Return a status in words."""
    return _STATUSES.get(name, (name, ""))[0]


def status_of(stored: StoredBisection, store: Store, *, is_queued: bool) -> Status:
    """Return where a bisection stands; one whose coordinator was killed is `stopped`."""
    name = "queued" if is_queued else standing_of(stored, store)
    if name not in ("queued", STOPPED):
        name = str((stored.answer or {}).get("status", name))
    words, look = _STATUSES.get(name, (name, "open"))
    return Status(name, words, look)


def say_time(time_s: float) -> str:
    """Return a time of the epoch as `2026-11-30 11:50 UTC`."""
    return datetime.datetime.fromtimestamp(time_s, tz=datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def iso_time(time_s: float) -> str:
    """Return a time of the epoch for machines."""
    return datetime.datetime.fromtimestamp(time_s, tz=datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def say_cost(cost: Any) -> str:
    """Return the cost of a stored answer: `42 probes, 3 min 20 s`; "" where nothing was counted, or it cannot be read."""
    given = [cost.get(name) if isinstance(cost, Mapping) else None for name in ("probes", "wall_s", "gpu_s")]
    probes, wall_s, gpu_s = (float(item) if isinstance(item, (int, float)) and 0 <= item < MOST else 0.0 for item in given)
    parts = [say_count(round(probes), "probe")] if probes else []
    parts += [say_seconds(wall_s)] if wall_s else []
    parts += [f"{gpu_s / 3600:.2g} GPU-hours"] if gpu_s else []
    return ", ".join(parts)
