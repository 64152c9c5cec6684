"""Looking at what probes recorded: one probe, its curves, two of them side by side."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from bisect_train.coordinator.event_log import read_probe
from bisect_train.core.errors import InputError
from bisect_train.service.parts import Parts
from bisect_train.service.problems import Refused, problems
from bisect_train.service.routes.shared import Has, Key, Points, Who
from bisect_train.service.views import SIGNALS, compare_view, curves_view, probe_view
from bisect_train.service.wire import PROBE_KEY
from bisect_train.store.contract import StoredProbe

router = APIRouter(tags=["probes"])


@router.get("/probes/{key}", summary="One probe", responses=problems(404, 422))
def show_probe(key: Key, parts: Has, who: Who) -> dict[str, Any]:
    """Return what ran, how it ended, its facts, events, stacks and the end of its output."""
    return probe_view(find_probe(parts, key))


@router.get("/probes/{key}/curves", summary="Its fingerprint as curves", responses=problems(404, 422))
def show_curves(
    key: Key,
    parts: Has,
    who: Who,
    signal: Annotated[list[str] | None, Query(max_length=len(SIGNALS), description=f"Of: {', '.join(SIGNALS)}.")] = None,
    rank: Annotated[list[Annotated[int, Query(ge=0, le=1_000_000)]] | None, Query(max_length=256)] = None,
    points: Points = 1000,
) -> dict[str, Any]:
    """Return what was recorded per rank and step, and the metrics of its log; the loss unless signals are named."""
    signals = tuple(dict.fromkeys(signal or ["loss"]))
    if unknown := [name[:40] for name in signals if name not in SIGNALS]:
        raise Refused(422, f"unknown signal {unknown[0]!r}", hint=f"known: {', '.join(SIGNALS)}")
    fingerprint = find_probe(parts, key).result.fingerprint
    return {"key": key, **curves_view(fingerprint, signals=signals, ranks=tuple(rank or ()), max_points=points)}


@router.get("/compare", summary="Two probes side by side", responses=problems(404, 422))
def compare(
    parts: Has,
    who: Who,
    left: Annotated[str, Query(pattern=PROBE_KEY)],
    right: Annotated[str, Query(pattern=PROBE_KEY)],
    points: Points = 1000,
) -> dict[str, Any]:
    """Return both step by step, and the first signal in which they differ, which names the stage to look at."""
    return compare_view(find_probe(parts, left), find_probe(parts, right), max_points=points)


def find_probe(parts: Parts, key: str) -> StoredProbe:
    """Return a finished probe by its key or the beginning of it. Raises Refused with status 404."""
    try:
        return read_probe(parts.backend.store, key)
    except InputError as error:
        raise Refused(404, error.message) from None
