"""What was found inside a merge that is a culprit: the answer of the bisection that looked there, for the whole's report.

Only what that bisection proved is named as being inside. Anything else is said, and blames no commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.core.changes import Change, ChangeKind
from bisect_train.report.parts import ChangePart, CulpritPart, DescentPart, ReportData
from bisect_train.report.words import KIND_NAMES, say_count, shorten

MAX_CANDIDATES = 4
NO_COMMITS = "that brings in no commit of its own: what its author changed is all there is"
_TITLE_WIDTH = 60
_UNSPLIT = ("no_regression", "not_reproduced", "fixed_before")


def describe_descent(merge: str, *, report: ReportData | None, first_parent: str, reason: str = "") -> DescentPart:
    """Return what is known of the inside of a merge.

    Args:
        merge: 40 hex digits.
        report: of the bisection that looked there, None if none did.
        first_parent: 40 hex digits.
        reason: why none did, a clause, or "".
    """
    by_hand = f"bisect-train run --good {first_parent[:12]} --bad {merge[:12]} --no-first-parent"
    if reason == NO_COMMITS:
        return DescentPart(merge, "", "", reason=reason)
    if report is None:
        return DescentPart(merge, "", "", reason=reason, by_hand=by_hand)
    is_proved = report.status in ("isolated", "several") and report.is_finished
    found = tuple(part for culprit in report.culprits for part in culprit.changes) if is_proved else ()
    files = tuple(part for culprit in report.culprits[:1] for part in culprit.inside) if is_proved else ()
    return DescentPart(
        merge,
        report.id,
        report.status if report.is_finished else "unfinished",
        found=found,
        files=files,
        clause=_say_found(merge, report.culprits) if is_proved else _say_open(merge, report),
        summary=report.summary,
        num_commits=report.num_changes.get(ChangeKind.COMMIT.value, 1) - 1,
        num_steps=report.num_steps,
        cost=report.cost,
        by_hand=by_hand,
    )


def _say_found(merge: str, culprits: Sequence[CulpritPart]) -> str:
    named = "; ".join(" and ".join(_name(part, merge) for part in culprit.changes) for culprit in culprits)
    return f"inside it: {named} (proved by fresh runs)"


def _name(part: ChangePart, merge: str) -> str:
    if part.id == merge:
        return "the merge itself, by what its author changed beyond merging the branch"
    return f'commit {part.id[:8]} "{shorten(part.title, _TITLE_WIDTH)}"'


def _say_open(merge: str, report: ReportData) -> str:
    if not report.is_finished:
        return "inside it: the search is not finished"
    if report.status in _UNSPLIT:
        return "inside it: nothing found, its first parent and the merge did not separate in the runs made for this"
    names = ["the merge itself" if item.change.id == merge else item.change.id[:8] for item in report.candidates]
    if not names:
        return "inside it: no answer"
    more = f" and {len(names) - MAX_CANDIDATES} more" if len(names) > MAX_CANDIDATES else ""
    return f"inside it: not narrowed to one commit, left are {', '.join(names[:MAX_CANDIDATES])}{more}"


def parts_inside(descent: DescentPart | None, files: Sequence[ChangePart]) -> tuple[ChangePart, ...]:
    """Return what a culprit holds: the proved commits and their files if it was looked into, else its own files."""
    return (*descent.found, *descent.files) if descent is not None and descent.found else tuple(files)


def add_clause(summary: str, culprit: CulpritPart) -> str:
    """Return a summary, without its full stop, that says what was found inside a culprit."""
    descent = culprit.descent
    return f"{summary}; {descent.clause}" if descent is not None and descent.clause else summary


def explain_inside(culprits: Sequence[CulpritPart]) -> tuple[str, ...]:
    """Return a sentence for each culprit that is a merge: what the search inside it said, or how to look there."""
    return tuple(_explain(part.descent) for part in culprits if part.descent is not None)


def _explain(descent: DescentPart) -> str:
    if descent.bisection:
        num = say_count(descent.num_commits, "commit") + " and the merge itself"
        return f"Inside merge {descent.merge[:8]} ({num}; `bisect-train report {descent.bisection}`): {descent.summary}"
    if not descent.by_hand:
        return f"Commit {descent.merge[:8]} is a merge {descent.reason}."
    why = f" ({descent.reason})" if descent.reason else ""
    hand = f"`{descent.by_hand}`, with the other options as before, does that"
    return f"Commit {descent.merge[:8]} is a merge, and what is inside was not looked at{why}: {hand}."


def list_conditions_inside(descent: DescentPart | None) -> tuple[str, ...]:
    """Return what limits a culprit because of what its inside left open."""
    is_open = descent is not None and descent.clause and not descent.found
    return (descent.clause,) if descent is not None and is_open else ()


def name_place(part: ChangePart) -> str:
    """Return where to look, for a part of a culprit: a file by its path, a commit by kind, digits and title."""
    if part.kind == ChangeKind.COMMIT.value:
        return f"commit {part.id[:8]} {shorten(part.title, _TITLE_WIDTH)}"
    return part.id


def explain_own_change(change: Change) -> str:
    """Return what it means that a merge is named where its branch was searched, too."""
    return (
        f"{KIND_NAMES[change.kind].capitalize()} {change.id[:8]} is a merge: named is what its author changed beyond merging "
        "the branch (a conflict resolved by hand, say), not the branch."
    )
