"""What running probes report right now: phase, steps and losses so far. In memory only; the store has what came of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_POINTS = 1000


@dataclass(slots=True)
class _Run:
    seed_idx: int | None = None
    repeat: int = 0
    phase: str = ""
    step: int = 0
    loss: float | None = None
    every: int = 1
    curve: list[tuple[int, float | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A running probe: which run, phase (checkout, setup, run, judge), last step and loss, and the curve so far.

    `curve` has at most `MAX_POINTS` points: where there would be more, every second one is left out.
    """

    key: str
    seed_idx: int | None
    repeat: int
    phase: str
    step: int
    loss: float | None
    curve: tuple[tuple[int, float | None], ...]


class LiveBoard:
    """Running probes by bisection. Works with several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._runs: dict[str, dict[str, _Run]] = {}
        self._versions: dict[str, int] = {}

    def take(self, bisection_id: str, message: Mapping[str, Any]) -> None:
        """Take what a coordinator's process reports (see `cli.coordinating`); what is unknown is left out."""
        key, kind = str(message.get("key", "")), message.get("kind")
        with self._guard:
            runs = self._runs.setdefault(bisection_id, {})
            if kind == "started":
                runs[key] = _Run(message.get("seed_idx"), int(message.get("repeat") or 0))
            elif kind == "moved" and key in runs:
                _move(runs[key], message)
            elif kind == "gone":
                runs.pop(key, None)
            else:
                return
            self._versions[bisection_id] = self._versions.get(bisection_id, 0) + 1

    def forget(self, bisection_id: str) -> None:
        """Forget a bisection that does not run any more."""
        with self._guard:
            if self._runs.pop(bisection_id, None) is not None:
                self._versions[bisection_id] = self._versions.get(bisection_id, 0) + 1

    def version(self, bisection_id: str) -> int:
        """Return a number that grows with everything that is reported of a bisection."""
        with self._guard:
            return self._versions.get(bisection_id, 0)

    def runs(self, bisection_id: str) -> tuple[LiveRun, ...] | None:
        """Return what runs; None where no process of this service runs the bisection."""
        with self._guard:
            runs = self._runs.get(bisection_id)
            if runs is None:
                return None
            return tuple(
                LiveRun(key, run.seed_idx, run.repeat, run.phase, run.step, run.loss, tuple(run.curve))
                for key, run in runs.items()
            )


def _move(run: _Run, message: Mapping[str, Any]) -> None:
    run.phase, step = str(message.get("phase", "")), int(message.get("step") or 0)
    run.loss = message.get("loss")
    if step <= run.step:
        return
    run.step = step
    if step % run.every == 0:
        run.curve.append((step, run.loss))
    if len(run.curve) > MAX_POINTS:
        run.every *= 2
        run.curve = [point for point in run.curve if point[0] % run.every == 0]
