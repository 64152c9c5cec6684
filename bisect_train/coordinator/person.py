"""What a person did to a bisection: marks, observations taken back. Events only; nothing is ever deleted from the store.

    marked    {point, commit, verdict}    verdict is good, bad, untestable or clear
    undone    {seqs, keys, requests}      these events no longer count, and what they observed is to be run again
    replayed  {of, keys, requests}        the first event of a replay: what it leaves out of the bisection that it takes up

Results are shared by key, within a bisection and between bisections. What was taken back must not come back that way, so
each taking back gives the requests that it is about a new key (`TakenBack.num_times`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bisect_train.coordinator.node_events import NODE_SUSPECT
from bisect_train.core.changes import Point, point_of_text
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.terms import Request
from bisect_train.store.contract import MARKED, PROBE_FINISHED, PROBE_REUSED, UNDONE, StoredEvent

REPLAYED = "replayed"
GIVEN_UP = "given_up"
RESULT_SHARED = "result_shared"
"""Event {key, spec}: a result of this bisection answers one more request, whose point gives the same variant."""

CLEAR = "clear"
TAKEN_FROM = "taken_from"  # in a spec: the bisection whose observation a replay took over
WITH_RESULT = (PROBE_FINISHED, PROBE_REUSED, RESULT_SHARED)
TAKES_BACK = (UNDONE, NODE_SUSPECT)  # by a person, or because the node that said it is not believed any more


def request_of_spec(spec: Mapping[str, Any]) -> Request:
    """Return the request that `spec_of_request` wrote down."""
    return Request(
        point=point_of_text(spec["point"]),
        seed_idx=int(spec["seed_idx"]),
        repeat=int(spec["repeat"]),
        attempt=int(spec["attempt"]),
        proof_of=int(spec["proof_of"]),
        part=int(spec.get("part", 0)),
    )


def spec_of_event(event: StoredEvent) -> Mapping[str, Any] | None:
    """Return the spec of an observation's event, None for other events."""
    if event.kind in WITH_RESULT:
        return dict(event.data["spec"])
    return event.data if event.kind == GIVEN_UP else None


def events_that_count(events: Sequence[StoredEvent]) -> tuple[StoredEvent, ...]:
    """Return the events without those that were taken back."""
    undone = {int(seq) for event in events if event.kind in TAKES_BACK for seq in event.data["seqs"]}
    return tuple(event for event in events if event.seq not in undone)


def marks_of(events: Sequence[StoredEvent]) -> dict[int, VerdictKind]:
    """Return the marks by version, given the events that count; the last one of a version holds."""
    marks: dict[int, VerdictKind] = {}
    for event in events:
        if event.kind == MARKED:
            version = point_of_text(event.data["point"]).prefix
            marks.pop(version, None)
            if event.data["verdict"] != CLEAR:
                marks[version] = VerdictKind(event.data["verdict"])
    return dict(sorted(marks.items()))


def mark_event(point: Point, commit: str, verdict: str) -> dict[str, Any]:
    """Return the data of a "marked" event; `commit` is the id of the version's last change."""
    return {"point": point.to_text(), "commit": commit, "verdict": verdict}


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What was taken back.

    Attributes:
        keys: of results that no longer count.
        num_times: how often each request was.
    """

    keys: frozenset[str] = frozenset()
    num_times: Mapping[Request, int] = field(default_factory=dict)


def taken_back(events: Sequence[StoredEvent]) -> TakenBack:
    """Return what all events of a bisection say was taken back."""
    said = [event.data for event in events if event.kind in (*TAKES_BACK, REPLAYED)]
    keys = frozenset(str(key) for data in said for key in data["keys"])
    return TakenBack(keys, Counter(request_of_spec(spec) for data in said for spec in data["requests"]))


def steps_to_undo(events: Sequence[StoredEvent]) -> list[tuple[StoredEvent, ...]]:
    """Return what can be taken back, the newest first; the events of one result belong together.

    A result counts as one observation, however many requests it answers; so does a probe that was given up, and a mark.
    """
    steps: dict[str, list[StoredEvent]] = {}
    for event in events_that_count(events):
        if event.kind in WITH_RESULT:
            steps.setdefault(str(event.data["key"]), []).append(event)
        elif event.kind in (GIVEN_UP, MARKED):
            steps[f"seq {event.seq}"] = [event]
    return sorted((tuple(step) for step in steps.values()), key=lambda step: -step[0].seq)


def undo_event(steps: Sequence[Sequence[StoredEvent]]) -> dict[str, Any]:
    """Return the data of the "undone" event that takes these steps back."""
    events = [event for step in steps for event in step]
    return {
        "seqs": sorted(event.seq for event in events),
        "keys": sorted({str(event.data["key"]) for event in events if event.kind in WITH_RESULT}),
        "requests": [_essence(spec) for event in events if (spec := spec_of_event(event)) is not None],
    }


def replay_event(of: str, *, keys: Sequence[str], specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the data of the "replayed" event: `keys` and `specs` of what is left out of the bisection `of`."""
    return {"of": of, "keys": sorted(set(keys)), "requests": [_essence(spec) for spec in specs]}


def _essence(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: spec[name] for name in ("point", "seed_idx", "repeat", "attempt", "proof_of", "part") if name in spec}


def is_foreign(event: StoredEvent) -> bool:
    """Return whether a result came from another bisection unasked; those that a replay took over are the person's own."""
    return event.kind == PROBE_REUSED and TAKEN_FROM not in event.data["spec"]
