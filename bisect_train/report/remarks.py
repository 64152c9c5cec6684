"""What an answer leaves unsaid: a masked part, a part that arose elsewhere, stretches that were bad before and good again."""

from __future__ import annotations

from itertools import pairwise

from bisect_train.core.verdict import VerdictKind
from bisect_train.report.case import Case
from bisect_train.report.words import label_change, say_count, say_number
from bisect_train.search.terms import Island, Remark, RemarkKind

PROVED = ("isolated", "several")
LABEL_WIDTH = 40


def say_remarks(case: Case) -> tuple[str, ...]:
    """Return the remarks of an answer as sentences, and the bad stretches before the culprit."""
    named = {idx for culprit in case.answer.culprits for idx in culprit.changes} if case.answer.status in PROVED else set()
    said = [text for remark in case.answer.remarks if (text := _say_remark(case, remark, named))]
    return (*said, *(_say_island(case, island) for island in case.answer.islands))


def _say_remark(case: Case, remark: Remark, named: set[int]) -> str:
    where = _say_where(case, remark.first, remark.last)
    size = "" if remark.size is None else f" by {say_number(abs(remark.size), unit=case.unit)}"
    share = "" if remark.share is None else f" ({abs(remark.share):.0%} of the gap between the ends)"
    if remark.kind is RemarkKind.MASKED:
        return f"A later change makes up for part of it: {where} it becomes better{size}{share}."
    if remark.kind is RemarkKind.IMPROVED_BEFORE:
        return f"An earlier change made it better{size}{share}: {where}."
    if remark.kind is RemarkKind.UNDONE:
        return f"A change made it worse{size} for a time, and the bad end is no better without it: {where}."
    if remark.kind is RemarkKind.PROVED_PART:
        return f"One change is proved to be part of it{size}, the rest could not be isolated: {where}."
    if remark.kind is RemarkKind.NOT_SEARCHED:
        return f"Whether it is the only one was not looked at to the end: {remark.reason}."
    if remark.kind is RemarkKind.UNEXPLAINED:
        is_told = any(remark.first <= idx < remark.last for idx in named)
        return "" if is_told else f"It does not explain the whole gap: {where} it becomes worse{size}, too{share}."
    if remark.kind is RemarkKind.EITHER_ENOUGH:
        return "Each of them is enough by itself: only without all of them is the bad end healthy."
    if remark.kind is RemarkKind.COUPLED:
        return "These can only be changed together: no state with some of them and without the others could be run."
    if remark.kind is RemarkKind.NEEDS:
        needed = label_change(case.space.changes[remark.first], width=LABEL_WIDTH)
        return f"It cannot be run alone: it needs {needed}, which is no cause by itself."
    if remark.kind is RemarkKind.NOT_NARROWED:
        return f"Something else makes it worse{size}: {where}; no single change could be isolated there ({remark.reason})."
    return f"No further worsening could be proved {where}."


def _say_where(case: Case, first: int, last: int) -> str:
    """Return the changes first..last - 1 in words."""
    changes = case.space.changes
    if last - first == 1:
        return f"at {label_change(changes[first], width=LABEL_WIDTH)}"
    from_to = [label_change(changes[idx], width=LABEL_WIDTH) for idx in (first, last - 1)]
    return f"in the {last - first} changes from {from_to[0]} to {from_to[1]}"


def _say_island(case: Case, island: Island) -> str:
    begins = _say_edge(case, island.good_before, island.first_bad)
    ends = _say_edge(case, island.last_bad, island.good_again)
    return f"It was bad before, too: that began with {begins} and ended with {ends}. The culprit is the last such change."


def _say_edge(case: Case, before: int, after: int) -> str:
    """Return the change that lies between two neighbouring versions, or the stretch that it lies in."""
    last = label_change(case.space.changes[after - 1], width=LABEL_WIDTH)
    return last if after - before == 1 else f"{last} or one of the {say_count(after - before - 1, 'change')} before it"


def longest_unseen_stretch(case: Case) -> int | None:
    """Return how many versions in a row before the culprit were never judged; None without a culprit or an order in time."""
    if case.answer.status not in PROVED:
        return None
    culprit = min(idx for item in case.answer.culprits for idx in item.changes)
    decided = (VerdictKind.GOOD, VerdictKind.BAD)
    judged = [k for k, item in sorted(case.plan.evidence.items()) if 0 < k <= culprit and item.verdict in decided]
    edges = [0, *judged, culprit]
    return max(0, *(after - before - 1 for before, after in pairwise(edges)))


def say_unseen_stretch(case: Case) -> str:
    """Return which bad stretch before the culprit could have been missed, "" if none."""
    num = longest_unseen_stretch(case)
    if not num:
        return ""
    return f"a bad stretch of up to {say_count(num, 'change')} before the culprit, if it was repaired again: none was run there"
