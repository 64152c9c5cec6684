"""The data of two runs side by side, where they differ: the first values that each rank was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bisect_train.core.fingerprint import Fingerprint, RankRecord
from bisect_train.report.triage_parts import SamplePair

NUM_PAIRS = 4  # ranks whose samples are shown, at most
NUM_VALUES = 16


def pair_samples(baseline: Fingerprint, run: Fingerprint) -> tuple[SamplePair, ...]:
    """Return for each rank the first batch whose recorded values differ; () where all that was recorded is equal."""
    pairs = [_first_pair(a, b) for a, b in zip(baseline.ranks, run.ranks, strict=False)]
    return tuple(pair for pair in pairs if pair is not None)[:NUM_PAIRS]


def _first_pair(baseline: RankRecord, run: RankRecord) -> SamplePair | None:
    theirs = dict(_batches(baseline))
    for step, values in _batches(run):
        if step in theirs and theirs[step] != values:
            first = next((at for at, (a, b) in enumerate(zip(theirs[step], values, strict=False)) if a != b), 0)
            begin = max(0, first - NUM_VALUES // 2) if first >= NUM_VALUES else 0
            shown = [tuple(side[begin : begin + NUM_VALUES]) for side in (theirs[step], values)]
            return SamplePair(run.rank, step, shown[0], shown[1])
    return None


def _batches(record: RankRecord) -> Iterator[tuple[int, list[str]]]:
    """Yield step and values as text, the first batch first."""
    seen: set[int] = set()
    for event in record.events:
        if event.name not in ("first_batch", "batch") or not event.data.get("values"):
            continue
        step = int(event.data.get("step", event.step) or 0)
        if step not in seen:
            seen.add(step)
            yield step, [text for item in event.data["values"] for text in _flatten(_values_of(item))]


def _values_of(item: Any) -> Any:
    """Return the numbers of one input: the recorder writes its place or name before them."""
    is_named = isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[1], (list, tuple))
    return item[1] if is_named else item


def _flatten(values: Any) -> Iterator[str]:
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from _flatten(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from _flatten(value)
    else:
        yield f"{values:.6g}" if isinstance(values, float) else str(values)
