"""What users used, summed up from what their bisections' probes cost; and what their limits leave."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Select, cast, func, select

from bisect_train.store.queue_contract import DAY_S, Allowance, DayUsage, QueueState, Usage, UserLimits
from bisect_train.store.tables import bisections, queue, spent, users


def _costs(since_s: float) -> Select[Any]:
    """Return the query for the costs of users since some time; the parts of a bisection count as its own."""
    whole = func.coalesce(bisections.c.whole_id, bisections.c.id)
    joined = spent.join(bisections, bisections.c.id == spent.c.bisection_id).join(queue, queue.c.bisection_id == whole)
    return (
        select(queue.c.user_name, func.sum(spent.c.num_probes).label("num"), func.sum(spent.c.gpu_s).label("gpu_s"))
        .select_from(joined)
        .where(spent.c.time_s >= since_s)
        .group_by(queue.c.user_name)
    )


def usages_of(connection: Connection, *, since_s: float, user: str | None = None) -> dict[str, Usage]:
    """Return what users have in the queue and used since some time, by name; of one user, or of all."""
    only: list[ColumnElement[bool]] = [] if user is None else [queue.c.user_name == user]
    costs = {row.user_name: (int(row.num), float(row.gpu_s)) for row in connection.execute(_costs(since_s).where(*only))}
    counting = select(queue.c.user_name, queue.c.state, func.count().label("num")).where(
        queue.c.state.in_((QueueState.QUEUED.value, QueueState.RUNNING.value)), *only
    )
    counts = {
        (row.user_name, row.state): row.num for row in connection.execute(counting.group_by(queue.c.user_name, queue.c.state))
    }
    names = connection.scalars(
        select(users.c.name).where(*([] if user is None else [users.c.name == user])).order_by(users.c.name)
    )
    return {
        name: Usage(
            name,
            num_queued=counts.get((name, QueueState.QUEUED.value), 0),
            num_running=counts.get((name, QueueState.RUNNING.value), 0),
            num_probes=costs.get(name, (0, 0.0))[0],
            gpu_s=costs.get(name, (0, 0.0))[1],
        )
        for name in names
    }


def daily_usages(connection: Connection, *, since_s: float, user: str | None = None) -> tuple[DayUsage, ...]:
    """Return what was used by day (UTC) and user, the newest day first."""
    days = spent.c.time_s / DAY_S  # SQLite may lack floor(), PostgreSQL's cast rounds
    day = cast(days, Integer) if connection.dialect.name == "sqlite" else cast(func.floor(days), Integer)
    query = _costs(since_s).add_columns(day.label("day")).group_by(day).order_by(day.desc(), queue.c.user_name)
    if user is not None:
        query = query.where(queue.c.user_name == user)
    found = connection.execute(query).all()
    return tuple(DayUsage(row.user_name, _date_of(row.day), int(row.num), float(row.gpu_s)) for row in found)


def _date_of(day: float) -> str:
    return datetime.fromtimestamp(int(day) * DAY_S, timezone.utc).date().isoformat()


def allowance_of(limits: UserLimits, usage: Usage) -> Allowance:
    """Return what limits leave of a day in which so much was used."""
    probes, hours = limits.max_probes_per_day, limits.max_gpu_hours_per_day
    return Allowance(
        num_probes=None if probes is None else max(0, probes - usage.num_probes),
        gpu_hours=None if hours is None else max(0.0, hours - usage.gpu_s / 3600),
    )


def is_at_limit(limits: UserLimits, usage: Usage) -> bool:
    """Return whether nothing more of a user may be started now."""
    is_full = limits.max_running is not None and usage.num_running >= limits.max_running
    return is_full or allowance_of(limits, usage).is_spent
