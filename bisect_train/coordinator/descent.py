"""Descent into a merged branch: the question that a named merge leaves open, as a bisection of its own.

A first-parent search names a merge as a whole. The part asks which of its commits did it: good is the merge's first parent,
bad is the merge, and the candidates are the commits that it brought in, then the merge itself for what its author changed
beyond merging. Nested merges are in the same line, so one descent is enough. The part is tied to the whole twice: by
`part_of` in its question, and by an event of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator.spending import Spending
from bisect_train.core.errors import RevisionError
from bisect_train.core.question import Limits, Question, Range
from bisect_train.search.terms import Answer
from bisect_train.store.contract import PROBE_FINISHED, Store, StoredEvent

DESCENDED = "descended"
"""Event {child, merge}: the bisection `child` looks into the merge that this one has named."""

MAX_DESCENTS = 3
_PROVED = ("isolated", "several")


def merges_named(answer: Answer | None, space: ChangeSpace) -> tuple[int, ...]:
    """Return the changes, each named by itself, that are merges whose branch was not searched; as the answer ranks them."""
    if answer is None or answer.status not in _PROVED:
        return ()
    alone = [culprit.changes[0] for culprit in answer.culprits if len(culprit.changes) == 1]
    return tuple(idx for idx in alone if idx in space.commits.merges and len(space.commits.parents[idx]) == 1)


def look_inside(
    question: Question, space: ChangeSpace, idx: int, *, repository: Repository, part_of: str, limits: Limits
) -> tuple[Question, ChangeSpace]:
    """Return the question about the inside of a merge, and its changes.

    Args:
        question, space: of the bisection that named it.
        idx: of the merge among the changes.
        repository: the user's.
        part_of: id of that bisection.
        limits: with what is left of the budget.
    Raises:
        RevisionError: the branch cannot be read (a shallow clone).
    """
    merge, first_parent = space.commits.commits[idx], space.commits.parents[idx][0]
    asked = question.range
    skips = tuple(commit for commit in asked.skips if commit != merge)
    inside = replace(
        question,
        kind="run",
        range=Range((first_parent,), merge, first_parent=False, paths=asked.paths, skips=skips, descend=False),
        # commits come before config keys: the merge was named with the config of the good end
        bad_config=question.good_config,
        limits=limits,
        part_of=part_of,
    )
    try:
        return inside, build_space(repository, inside)
    except RevisionError:
        if not asked.paths:
            raise
    # no commit of this branch touches the paths: that tells nothing about any of them
    inside = replace(inside, range=replace(inside.range, paths=()))
    return inside, build_space(repository, inside)


def limits_left(store: Store, question: Question, ids: Sequence[str]) -> Limits:
    """Return a question's limits less what some bisections have used of them; 0 of what is spent."""
    limits = question.limits
    spending = Spending(question.settings.gpus)
    num_probes = 0
    for name in ids:
        events = store.events(name)
        num_probes += sum(event.kind == PROBE_FINISHED for event in events)
        if limits.gpu_hours is not None:
            spending.load(events, store.results(name))
    return replace(
        limits,
        max_probes=None if limits.max_probes is None else max(0, limits.max_probes - num_probes),
        gpu_hours=None if limits.gpu_hours is None else max(0.0, limits.gpu_hours - spending.hours),
    )


def children_of(events: Sequence[StoredEvent]) -> dict[str, str]:
    """Return the ids of the parts of a bisection by the merges they look into, given the events of the whole."""
    return {event.data["merge"]: event.data["child"] for event in events if event.kind == DESCENDED}


def ask_inside(store: Store, question: Question) -> str:
    """Store the question about the inside of a merge beside the bisection that named it; return the id of the part."""
    whole, merge = question.part_of, question.range.bad
    child = _orphan(store, question) or store.create(question.to_json(), title=f"inside merge {merge[:8]} of {whole}")
    store.append(whole, DESCENDED, {"child": child, "merge": merge})
    return child


def _orphan(store: Store, question: Question) -> str | None:
    """Return the part that was stored, but not noted in the whole, before the coordinator was killed."""
    for stored in store.list():
        asked = stored.question
        if asked.get("part_of") == question.part_of and asked["range"]["bad"] == question.range.bad:
            return stored.id
    return None
