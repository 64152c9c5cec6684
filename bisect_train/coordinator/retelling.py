"""One bisection's observations, corrected by a person, as the beginning of another bisection: what `replay` stores.

No result is invented: an observation is taken over as it is, called untestable, or left out. What is left out is run again
under keys of its own (`person`), so it does not come back as a known result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.observing import StoredState, load_state, observe, observe_lost, request_of
from bisect_train.coordinator.person import (
    GIVEN_UP,
    REPLAYED,
    RESULT_SHARED,
    TAKEN_FROM,
    WITH_RESULT,
    events_that_count,
    is_foreign,
    marks_of,
    replay_event,
    request_of_spec,
)
from bisect_train.core.question import Question
from bisect_train.store.contract import MARKED, Store, StoredEvent
from bisect_train.verdict.outcome import Observation

CALLED_UNTESTABLE = "called untestable by hand"


@dataclass(frozen=True, slots=True)
class Entry:
    """One observation of a bisection that counts.

    Attributes:
        key: of the result; "" where the probe was lost too often and given up.
        spec: what ran.
        seen: what it showed.
        is_foreign: whether the result came from another bisection unasked.
    """

    key: str
    spec: Mapping[str, Any]
    seen: Observation
    is_foreign: bool = False


@dataclass(frozen=True, slots=True)
class Retelling:
    """A corrected log.

    Attributes:
        kept: taken over as they are.
        untestable: observations that a person calls untestable.
        left_out: observations that never happened.
        marks: data of "marked" events.
    """

    kept: tuple[Entry, ...]
    untestable: tuple[Entry, ...]
    left_out: tuple[Entry, ...]
    marks: tuple[Mapping[str, Any], ...]

    def state(self, source: StoredState) -> StoredState:
        """Return what the new bisection would know; `source` is the state of the one that it takes up."""
        lost = [observe_lost(request_of(entry.seen), CALLED_UNTESTABLE) for entry in self.untestable]
        events = [StoredEvent(seq, MARKED, 0.0, dict(data)) for seq, data in enumerate(self.marks, start=1)]
        seen = (*(entry.seen for entry in self.kept), *lost)
        requests = {request_of(entry.seen) for entry in self.kept}
        reads = {request: item for request, item in source.reads.items() if request in requests}
        return StoredState((), seen, source.unbuildable, marks=marks_of(events), reads=reads)


def list_entries(store: Store, bisection_id: str, question: Question) -> tuple[Entry, ...]:
    """Return the observations that count in a bisection, in the order in which they were stored."""
    state = load_state(store, bisection_id, question)
    results = {probe.key: probe.result for probe in state.probes}
    requests = {request_of(run) for run in state.observations}
    events = events_that_count(read_events(store, bisection_id))
    foreign = {str(event.data["key"]) for event in events if is_foreign(event)}
    entries = []
    for event in events:
        if event.kind in WITH_RESULT and event.data["key"] in results:
            key, spec = str(event.data["key"]), event.data["spec"]
            seen = observe(request_of_spec(spec), results[key].fingerprint, question)
            entries.append(Entry(key, spec, seen, key in foreign))
        elif event.kind == GIVEN_UP and (request := request_of_spec(event.data)) in requests:
            entries.append(Entry("", event.data, observe_lost(request, str(event.data["reason"]))))
    return tuple(entries)


def take_over(store: Store, bisection_id: str, *, source: str, retelling: Retelling) -> None:
    """Store a retelling of the bisection `source` in a new one, whose lock the caller holds.

    What is left out and what a person said come first: a death in between loses results, which are run again, and nothing else.
    """
    kept_keys = {entry.key for entry in retelling.kept}
    gone = (*retelling.left_out, *retelling.untestable)
    keys = [entry.key for entry in gone if entry.key and entry.key not in kept_keys]
    event = replay_event(source, keys=keys, specs=[entry.spec for entry in retelling.left_out])
    store.append(bisection_id, REPLAYED, event)
    for data in retelling.marks:
        store.append(bisection_id, MARKED, dict(data))
    for entry in retelling.untestable:
        store.append(bisection_id, GIVEN_UP, {**entry.spec, "reason": CALLED_UNTESTABLE})
    _take_results(store, bisection_id, source, retelling.kept)


def _take_results(store: Store, bisection_id: str, source: str, kept: Sequence[Entry]) -> None:
    taken: set[str] = set()
    for entry in kept:
        if not entry.key:
            store.append(bisection_id, GIVEN_UP, dict(entry.spec))
        elif entry.key in taken:
            store.append(bisection_id, RESULT_SHARED, {"key": entry.key, "spec": dict(entry.spec)})
        else:
            spec = dict(entry.spec) if entry.is_foreign else {TAKEN_FROM: source, **entry.spec}
            store.reuse_result(bisection_id, entry.key, spec)
            taken.add(entry.key)
