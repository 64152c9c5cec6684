"""Limits that a person changes while a bisection goes on: events, so that all who read the store know what is in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bisect_train.coordinator.climb import rung_in_force
from bisect_train.coordinator.descent import children_of
from bisect_train.coordinator.event_log import read_events, refuse_rungs
from bisect_train.coordinator.observing import LIMITS_CHANGED, worked_s
from bisect_train.coordinator.spending import Spending
from bisect_train.core.amounts import say_time
from bisect_train.core.errors import InputError
from bisect_train.core.question import Limits, Question
from bisect_train.store.contract import PROBE_FINISHED, Store, StoredBisection, StoredEvent


def question_in_force(store: Store, stored: StoredBisection) -> Question:
    """Return what a bisection asks, with the limits and on the rung that are in force."""
    events = read_events(store, stored.id)
    asked = Question.of_json(stored.question)
    refuse_rungs(events, stored.id, len(asked.ladder))
    question = rung_in_force(asked, events)
    return replace(question, limits=limits_in_force(question.limits, events))


def limits_in_force(limits: Limits, events: Sequence[StoredEvent]) -> Limits:
    """Return the limits that were asked for with all later changes, the last of each."""
    for event in events:
        if event.kind == LIMITS_CHANGED:
            limits = replace(
                limits,
                max_probes=event.data.get("max_probes", limits.max_probes),
                gpu_hours=event.data.get("gpu_hours", limits.gpu_hours),
                wall_s=event.data.get("wall_s", limits.wall_s),
            )
    return limits


def change_limits(
    store: Store,
    bisection_id: str,
    question: Question,
    *,
    max_probes: int | None = None,
    gpu_hours: float | None = None,
    wall_s: float | None = None,
) -> Question:
    """Store new limits of a bisection and return its question with them; None leaves a limit as it is.

    The caller holds the bisection's lock. What the searches inside merges have used counts, too.

    Raises:
        InputError: less than what is spent already, or GPU-hours where no probe uses a GPU.
    """
    ids = _with_parts(store, bisection_id)
    if max_probes is not None:
        num_run = sum(event.kind == PROBE_FINISHED for name in ids for event in store.events(name))
        if max_probes < num_run:
            raise InputError(
                f"--max-probes {max_probes} is less than the {num_run} probes that bisection {bisection_id} has run already",
                hint=f"the limit is on all its probes: {num_run + max_probes} would allow {max_probes} more",
            )
    if gpu_hours is not None:
        _refuse_hours(store, ids, question, gpu_hours)
    used_s = sum(worked_s(read_events(store, name)) for name in ids)
    if wall_s is not None and wall_s < used_s:
        raise InputError(
            f"--within {say_time(wall_s)} is less than the {say_time(used_s)} that bisection {bisection_id} has taken already",
            hint="give more: the limit is on all its time together",
        )
    given = {"max_probes": max_probes, "gpu_hours": gpu_hours, "wall_s": wall_s}
    changed = {name: value for name, value in given.items() if value is not None and value != getattr(question.limits, name)}
    if changed:
        store.append(bisection_id, LIMITS_CHANGED, changed)
    return question_in_force(store, store.load(bisection_id))


def pass_on_limits(store: Store, part: str, left: Limits) -> None:
    """Store in a bisection inside a merge, whose lock the caller holds, what the whole has left for it, where that is new."""
    known = question_in_force(store, store.load(part)).limits
    names = ("max_probes", "gpu_hours", "wall_s")
    changed = {name: new for name in names if (new := getattr(left, name)) is not None and new != getattr(known, name)}
    if changed:
        store.append(part, LIMITS_CHANGED, changed)


def _with_parts(store: Store, bisection_id: str) -> list[str]:
    """Return a bisection and all that look inside what it has named."""
    parts = children_of(read_events(store, bisection_id)).values()
    return [bisection_id, *(name for part in parts for name in _with_parts(store, part))]


def _refuse_hours(store: Store, ids: Sequence[str], question: Question, gpu_hours: float) -> None:
    if not question.settings.gpus:
        raise InputError("no probe uses a GPU, so --budget-gpu-hours limits nothing", hint="use --max-probes")
    spending = Spending(question.gpus_of_probe)
    for name in ids:
        spending.load(read_events(store, name), store.results(name))
    if gpu_hours < spending.hours:
        raise InputError(
            f"--budget-gpu-hours {gpu_hours:g} is less than the {spending.hours:.3g} that are used already",
            hint="give more: the limit is on all probes of the bisection together",
        )
