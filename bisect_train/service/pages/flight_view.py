"""Probes that run now: what each is, how far it has come, and its curve so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.coordinator.event_log import readable_events
from bisect_train.coordinator.observing import BEGUN_AS
from bisect_train.coordinator.spending import PROBE_CANCELLED, PROBE_LOST
from bisect_train.core.changes import Change, point_of_text
from bisect_train.report.words import say_number, say_point
from bisect_train.service.pages.clean import one_line
from bisect_train.service.pages.contract import PageBackend, RunInFlight
from bisect_train.service.pages.figures import trace
from bisect_train.store.contract import PROBE_FINISHED, StoredEvent

MAX_CURVES = 8
_DASHES = ("solid", "dash", "dot", "dashdot")
_STARTED, _LIFE = "probe_started", ("started", "interrupted", "cancelled", "finished")


@dataclass(slots=True)
class Names:
    """What the words for a set of changes need of a `ChangeSpace`; never changed, though `words.Changes` asks for more."""

    changes: tuple[Change, ...]
    good_is_base: bool


@dataclass(frozen=True, slots=True)
class FlightRow:
    """One probe that runs, in words."""

    key: str
    what: str
    seed: str
    phase: str
    loss: str


def running_probes(backend: PageBackend, bisection_id: str) -> Sequence[RunInFlight]:
    """Return the probes of a running bisection; of one that runs elsewhere, what the store tells of them."""
    runs = backend.in_flight(bisection_id)
    return unfinished_runs(readable_events(backend.store, bisection_id)) if runs is None else runs


def unfinished_runs(events: Sequence[StoredEvent]) -> tuple[RunInFlight, ...]:
    """Return the probes that were started and have not ended, as far as the stored events tell."""
    running: dict[str, RunInFlight] = {}
    for event in events:
        if event.kind == _STARTED:
            running[event.data["key"]] = RunInFlight(str(event.data["key"]), str(event.data.get("point", "")))
        elif event.kind in (PROBE_FINISHED, PROBE_LOST, PROBE_CANCELLED):
            running.pop(str(event.data.get("spec", {}).get(BEGUN_AS, event.data["key"])), None)
        elif event.kind in _LIFE:
            running.clear()
    return tuple(running.values())


def list_flight(runs: Sequence[RunInFlight], names: Names) -> tuple[FlightRow, ...]:
    """Return one row a probe."""
    rows = []
    for run in runs:
        again = f", again {run.repeat}" if run.repeat else ""
        seed = "" if run.seed_idx is None else f"{run.seed_idx}{again}"
        loss = run.losses[-1] if run.losses else None
        rows.append(FlightRow(run.key, _say_what(run, names), seed, _say_phase(run), "" if loss is None else say_number(loss)))
    return tuple(rows)


def _say_what(run: RunInFlight, names: Names) -> str:
    try:
        return say_point(point_of_text(run.point), names)
    except (ValueError, IndexError):
        return run.point


def _say_phase(run: RunInFlight) -> str:
    step = f"step {run.steps[-1]}" if run.steps else ""
    return step or run.phase or "runs"


def flight_to_json(runs: Sequence[RunInFlight], names: Names, *, metric: str = "loss") -> dict[str, Any]:
    """Return rows and curves for the browser, of the probes that run now."""
    rows = list_flight(runs, names)
    traces = [
        trace(
            f"{row.what}, seed {row.seed}" if row.seed else row.what,
            run.steps,
            run.losses,
            colour=f"c{idx % 8}",
            dash=_DASHES[idx // 8 % len(_DASHES)],
        )
        for idx, (run, row) in enumerate(zip(runs, rows, strict=True))
        if len(run.steps) > 1
    ]
    return {
        "rows": [[one_line(row.what), row.seed, one_line(row.phase), row.loss] for row in rows],
        "points": sorted({run.point for run in runs}),
        "figure": {"kind": "lines", "x": "step", "y": metric, "traces": traces[:MAX_CURVES]},
    }
