"""Looks into the merges that a bisection has named: each is asked about once, as a bisection of its own beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator import MAX_DESCENTS, ask_inside, children_of, limits_left, look_inside, merges_named
from bisect_train.core.errors import RevisionError
from bisect_train.core.question import Limits, Question
from bisect_train.report import Cost, DescentPart, ReportData, describe_descent
from bisect_train.report.inside import NO_COMMITS
from bisect_train.search.terms import Answer
from bisect_train.store.contract import Store


@dataclass(frozen=True, slots=True)
class Whole:
    """A bisection with its answer, as far as there is one; `home` is the tool's folder."""

    store: Store
    home: Path
    id: str
    question: Question
    space: ChangeSpace
    answer: Answer | None


def look_into_merges(whole: Whole, *, report_part: Callable[[str], ReportData], may_ask: bool) -> tuple[DescentPart, ...]:
    """Return what is known of the inside of each merge that was named by itself.

    Args:
        whole: the bisection that named them.
        report_part: returns the report of a bisection inside a merge, given its id.
        may_ask: whether one that was not asked yet is asked now.
    """
    children = children_of(whole.store.events(whole.id))
    ids, found = [whole.id], list[DescentPart]()
    for idx in merges_named(whole.answer, whole.space):
        merge, first_parent = whole.space.commits.commits[idx], whole.space.commits.parents[idx][0]
        describe = partial(describe_descent, merge, first_parent=first_parent)
        child, reason = children.get(merge), ""
        if child is None:
            limits = limits_left(whole.store, whole.question, ids)
            reason = _why_not(whole.question, len(found), limits)
            if not reason:
                child, reason = _ask(whole, idx, limits, may_ask=may_ask)
        report = report_part(child) if child else None
        ids += [child] if child else []
        found.append(describe(report=report, reason=reason))
    return tuple(found)


def _why_not(question: Question, num_before: int, limits: Limits) -> str:
    """Return why a merge is not looked into, "" if it is."""
    if not question.range.descend:
        return "--no-descend"
    if limits.max_probes == 0:
        return f"the budget of {question.limits.max_probes} probes is spent"
    if limits.gpu_hours == 0.0:
        return f"the budget of {question.limits.gpu_hours:g} GPU-hours is spent"
    return f"only the first {MAX_DESCENTS} merges are" if num_before >= MAX_DESCENTS else ""


def _ask(whole: Whole, idx: int, limits: Limits, *, may_ask: bool) -> tuple[str | None, str]:
    """Return the id of a new bisection inside a merge, or None and why there is none."""
    repository = Repository.open(Path(whole.question.repo), home=whole.home)
    try:
        question, space = look_inside(whole.question, whole.space, idx, repository=repository, part_of=whole.id, limits=limits)
    except RevisionError as error:
        return None, error.message
    if len(space.changes) < 2:
        return None, NO_COMMITS
    return (ask_inside(whole.store, question), "") if may_ask else (None, "")


def total_cost(own: Cost, descents: Sequence[DescentPart]) -> Cost:
    """Return what a bisection cost together with those inside its merges."""
    costs = [own, *(part.cost for part in descents if part.cost is not None)]
    return Cost(
        probes=sum(cost.probes for cost in costs),
        cached=sum(cost.cached for cost in costs),
        wall_s=sum(cost.wall_s for cost in costs),
        gpu_s=sum(cost.gpu_s for cost in costs),
        rounds=sum(cost.rounds for cost in costs),
        pruned=sum(cost.pruned for cost in costs),
    )
