"""Rows to values, and the statements that the store and its queue share. All of them run in a transaction of the caller.

Locks are taken in one order, so that no two writers wait for each other: user, entry of the queue, bisection, and last the
counter of updates. That one is held until the commit, so numbers become visible in their order: who has seen number N
misses none below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, func, insert, select, update

from bisect_train.core.errors import MachineError, damaged
from bisect_train.store import codec
from bisect_train.store.contract import (
    LIFECYCLE,
    PROBE_FINISHED,
    SPENDING,
    StoredBisection,
    StoredEvent,
    StoredProbe,
    no_bisection,
    status_of,
)
from bisect_train.store.tables import bisections, counters, events, probes, spent, updates

_UPDATES = "updates"
_LAST_S = 2.5e11  # in the year 9892: no calendar goes much further


def check_known(connection: Connection, bisection_id: str) -> None:
    """Raise InputError where there is no such bisection."""
    if connection.scalar(select(bisections.c.id).where(bisections.c.id == bisection_id)) is None:
        raise no_bisection(bisection_id)


def lock_row(connection: Connection, bisection_id: str) -> float:
    """Lock a bisection's row, so that writers take turns (in SQLite they do anyway); return the GPUs of its probes."""
    row = select(bisections.c.gpus).where(bisections.c.id == bisection_id).with_for_update(key_share=True)
    found = connection.execute(row).first()
    if found is None:
        raise no_bisection(bisection_id)
    return float(found.gpus or 0.0)


def take_number(connection: Connection) -> int:
    """Lock the counter of updates until the commit and return a new number."""
    connection.execute(update(counters).where(counters.c.name == _UPDATES).values(value=counters.c.value + 1))
    return last_number(connection)


def last_number(connection: Connection) -> int:
    """Return the number of the last update."""
    return int(connection.scalar(select(counters.c.value).where(counters.c.name == _UPDATES)) or 0)


def note_update(connection: Connection, *bisection_ids: str) -> None:
    """Give bisections new numbers, for those who watch; the last statement of a transaction."""
    for name in bisection_ids:
        number = take_number(connection)
        connection.execute(update(updates).where(updates.c.bisection_id == name).values(number=number))


def append_event(
    connection: Connection,
    bisection_id: str,
    kind: str,
    data: dict[str, Any],
    *,
    time_s: float,
    gpu_s: float = 0.0,
    num_probes: int = 0,
) -> int:
    """Append an event to a bisection whose row is locked, with what it cost; return its number.

    Args:
        connection: in a transaction.
        bisection_id: whose.
        kind: of the event.
        data: of the event.
        time_s: seconds since the epoch.
        gpu_s: GPU-seconds of the probe that it tells of.
        num_probes: probes that it counts as, if it is no probe's end.
    """
    last = connection.scalar(select(func.max(events.c.seq)).where(events.c.bisection_id == bisection_id))
    place = {"bisection_id": bisection_id, "seq": (last or 0) + 1}
    connection.execute(insert(events).values({**place, "kind": kind, "time_s": time_s, "data": codec.to_text(data)}))
    if kind == PROBE_FINISHED or gpu_s or num_probes:
        num_probes = 1 if kind == PROBE_FINISHED else num_probes
        connection.execute(insert(spent).values({**place, "time_s": time_s, "num_probes": num_probes, "gpu_s": gpu_s}))
    return (last or 0) + 1


def wall_in(kind: str, data: dict[str, Any]) -> float:
    """Return how long a probe ran that an event says to have ended without a result, seconds; 0 for other events."""
    return float(data.get("wall_s") or 0.0) if kind in SPENDING else 0.0


def is_counted(connection: Connection, bisection_id: str, key: str) -> bool:
    """Return whether a probe counts in a bisection already."""
    wanted = and_(probes.c.bisection_id == bisection_id, probes.c.key == key)
    return connection.scalar(select(probes.c.seq).where(wanted)) is not None


def first_results(key: str) -> Select[Any]:
    """Return the query for a key's results, the first that was stored first."""
    joined = probes.join(events, and_(events.c.bisection_id == probes.c.bisection_id, events.c.seq == probes.c.seq))
    return (
        select(probes.c.key, probes.c.bisection_id, probes.c.result, events.c.time_s, events.c.data)
        .select_from(joined)
        .where(probes.c.key == key, probes.c.result.is_not(None))
        .order_by(events.c.time_s, probes.c.bisection_id)
        .limit(1)
    )


def counted_results(bisection_id: str) -> Select[Any]:
    """Return the query for the results that count in a bisection, its own and those that it took over, in their order."""
    source = probes.alias()
    joined = probes.join(events, and_(events.c.bisection_id == probes.c.bisection_id, events.c.seq == probes.c.seq))
    joined = joined.outerjoin(source, and_(source.c.bisection_id == probes.c.source_id, source.c.key == probes.c.key))
    result = func.coalesce(probes.c.result, source.c.result).label("result")
    return (
        select(probes.c.key, probes.c.bisection_id, events.c.time_s, events.c.data, result)
        .select_from(joined)
        .where(probes.c.bisection_id == bisection_id)
        .order_by(probes.c.seq)
    )


def newest_first() -> Select[Any]:
    """Return the query for bisections, each with the last event of its life, where it has one."""
    last = (
        select(func.max(events.c.seq))
        .where(events.c.bisection_id == bisections.c.id, events.c.kind.in_(list(LIFECYCLE)))
        .correlate(bisections)
        .scalar_subquery()
    )
    ended = events.alias()
    joined = bisections.outerjoin(ended, and_(ended.c.bisection_id == bisections.c.id, ended.c.seq == last))
    return (
        select(bisections, ended.c.kind.label("last_kind"), ended.c.data.label("last_data"))
        .select_from(joined)
        .order_by(bisections.c.created_s.desc(), bisections.c.id.desc())
    )


def bisection_of(row: Any) -> StoredBisection:
    """Return a row of `newest_first`."""
    last = [_event_of(1, row.last_kind, 0.0, row.last_data)] if row.last_kind else []
    status, answer = status_of(last)
    return StoredBisection(row.id, row.created_s, codec.of_text(row.question), row.title, status, answer)


def bisections_of(rows: Iterable[Any]) -> tuple[StoredBisection, ...]:
    """Return all rows of `newest_first`."""
    return tuple(bisection_of(row) for row in rows)


def event_of(row: Row[Any]) -> StoredEvent:
    """Return a row of `events`."""
    return _event_of(row.seq, row.kind, row.time_s, row.data)


def _event_of(seq: int, kind: str, time_s: object, text: str) -> StoredEvent:
    """Return an event; what is torn in it, or of another type than its column, does not keep the others from being read."""
    if not isinstance(time_s, (int, float)) or not 0 <= time_s < _LAST_S:
        return StoredEvent(seq, str(kind), 0.0, {}, problem=f"its time is {repr(time_s)[:40]}, not seconds since 1970")
    try:
        return StoredEvent(seq, str(kind), time_s, codec.of_text(text))
    except MachineError:
        return StoredEvent(seq, str(kind), time_s, {}, problem="its data is torn: it must be a JSON object")


def probe_of(row: Any) -> StoredProbe:
    """Return a row of `first_results` or `counted_results`."""
    told = _event_of(0, PROBE_FINISHED, row.time_s, row.data)
    spec = told.data.get("spec")
    if not isinstance(spec, dict):
        raise damaged(f"probe {row.key} of bisection {row.bisection_id}", told.problem or "its event has no spec")
    return StoredProbe(row.key, row.bisection_id, spec, codec.unpack_result(row.result), row.time_s)
