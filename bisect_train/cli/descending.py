"""Looks into the changes that a bisection has named: each is asked about once, as a bisection of its own beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace
from bisect_train.changes.submodules import Bump
from bisect_train.coordinator import (
    MAX_DESCENTS,
    NothingInsideError,
    Opening,
    OpeningKind,
    ask_inside,
    children_of,
    limits_left,
    look_inside,
    openings,
)
from bisect_train.coordinator.descent import NOT_OPENED, unopened_of
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.limits import pass_on_limits
from bisect_train.coordinator.spending import say_spent
from bisect_train.core.question import Limits, Question
from bisect_train.report import Cost, DescentPart, Place, ReportData, describe_descent
from bisect_train.search.terms import Answer
from bisect_train.store.contract import Store


@dataclass(frozen=True, slots=True)
class Whole:
    """A bisection with its answer, as far as there is one; `home` is the tool's folder, `repeats`: runs repeat bitwise."""

    store: Store
    home: Path
    id: str
    question: Question
    space: ChangeSpace
    answer: Answer | None
    repeats: bool = False


def look_into(whole: Whole, *, report_part: Callable[[str], ReportData], may_ask: bool) -> tuple[DescentPart, ...]:
    """Return what is known of the inside of each change that was named by itself and that has one.

    Args:
        whole: the bisection that named them.
        report_part: returns the report of a bisection inside a change, given its id.
        may_ask: whether one that was not asked yet is asked now.
    """
    events = read_events(whole.store, whole.id)
    children, unopened = children_of(events), unopened_of(events)
    ids, found = [whole.id], list[DescentPart]()
    for opening in openings(whole.answer, whole.space):
        child, reason = children.get(opening.id), ""
        if child is None:
            limits = limits_left(whole.store, whole.question, ids)
            reason = _why_not(whole.question, len(found), limits)
            if not reason and may_ask:
                child, reason = _ask(whole, opening, limits)
                is_empty = child is None and not reason
            else:  # a report looks at nothing again, at an index of packages least of all
                is_empty = not reason and unopened.get(opening.id) == ""
                reason = reason or unopened.get(opening.id, "")
            if is_empty:
                continue
        elif may_ask:
            with whole.store.lock(child):
                pass_on_limits(whole.store, child, limits_left(whole.store, whole.question, ids))
        report = report_part(child) if child else None
        ids += [child] if child else []
        found.append(describe_descent(_place_of(whole, opening, child), report=report, reason=reason))
    return tuple(found)


def _place_of(whole: Whole, opening: Opening, child: str | None) -> Place:
    if opening.bump is not None:
        # of submodules around each other that have one commit each, the innermost is what was searched
        asked = Question.of_json(whole.store.load(child).question).inside if child else None
        bump = Bump(asked.submodule, *asked.releases) if asked and not asked.commit else opening.bump
        return Place(opening.kind.value, opening.id, submodule=bump.path, title=bump.title)
    submodule = whole.space.submodule
    if submodule is not None:
        return Place(opening.kind.value, opening.id, submodule=submodule.path)
    is_commit = opening.kind in (OpeningKind.MERGE, OpeningKind.COMMIT)
    parents = whole.space.commits.parents[opening.idx] if is_commit else ()
    return Place(opening.kind.value, opening.id, first_parent=parents[0] if parents else "")


def _why_not(question: Question, num_before: int, limits: Limits) -> str:
    """Return why a change is not looked into, "" if it is."""
    if not question.range.descend:
        return "--no-descend"
    if spent := say_spent(question.limits, limits):
        return spent
    return f"only the first {MAX_DESCENTS} are" if num_before >= MAX_DESCENTS else ""


def _ask(whole: Whole, opening: Opening, limits: Limits) -> tuple[str | None, str]:
    """Return the id of a new bisection inside a change, or None and why there is nothing to search, which is noted."""
    repository = Repository.open(Path(whole.question.repo), home=whole.home)
    try:
        question, _ = look_inside(whole.question, whole.space, opening, repository=repository, part_of=whole.id, limits=limits)
    except NothingInsideError as error:
        whole.store.append(whole.id, NOT_OPENED, {"opened": opening.id, "reason": str(error)})
        return None, str(error)
    return ask_inside(whole.store, replace(question, repeats=whole.repeats), opening), ""


def total_cost(own: Cost, descents: Sequence[DescentPart]) -> Cost:
    """Return what a bisection cost together with those inside its changes."""
    costs = [own, *(part.cost for part in descents if part.cost is not None)]
    return Cost(
        probes=sum(cost.probes for cost in costs),
        cached=sum(cost.cached for cost in costs),
        wall_s=sum(cost.wall_s for cost in costs),
        gpu_s=sum(cost.gpu_s for cost in costs),
        rounds=sum(cost.rounds for cost in costs),
        pruned=sum(cost.pruned for cost in costs),
        early=sum(cost.early for cost in costs),
        saved_steps=sum(cost.saved_steps for cost in costs),
    )
