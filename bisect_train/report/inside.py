"""What was found inside a culprit: the answer of the bisection that looked there, for the whole's report.

A merge opens into commits, a commit into hunks and config keys, a package into releases and a release into commits, another
commit of a submodule into the submodule's commits. Only what that bisection proved is named as being inside. Anything else is
said, and blames nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bisect_train.core.changes import Change, ChangeKind
from bisect_train.report.parts import ChangePart, CulpritPart, DescentPart, ReportData
from bisect_train.report.words import KIND_NAMES, name_change, say_counts, shorten

MAX_CANDIDATES = 4
MERGE, COMMIT, PACKAGE, RELEASE, SUBMODULE = "merge", "commit", "package", "release", "submodule"
_TITLE_WIDTH = 60
_UNSPLIT = ("no_regression", "not_reproduced", "fixed_before")
_ENDS = {
    MERGE: "its first parent and the merge",
    COMMIT: "its parent and the commit",
    PACKAGE: "its two versions",
    RELEASE: "its two versions",
    SUBMODULE: "its two commits",
}
_WHOLE = {MERGE: "commit", COMMIT: "change", PACKAGE: "release", RELEASE: "commit", SUBMODULE: "commit"}


@dataclass(frozen=True, slots=True)
class Place:
    """A culprit that has an inside.

    Attributes:
        kind: merge, commit, package, release or submodule.
        id: of the change.
        first_parent: 40 hex digits of the commit before a merge or commit of the user's repository, or "".
        submodule: path of the submodule whose commit (or whose commits) it is, or "".
        title: of a submodule: its path and its two commits.
    """

    kind: str
    id: str
    first_parent: str = ""
    submodule: str = ""
    title: str = ""

    @property
    def name(self) -> str:
        """Short name for sentences."""
        if self.kind == SUBMODULE:
            return f"the submodule {self.title}"
        name = f"{self.kind} {self.id[:8] if self.kind in (MERGE, COMMIT) else self.id}"
        return f"{name} of {self.submodule}" if self.submodule else name


def describe_descent(place: Place, *, report: ReportData | None, reason: str = "") -> DescentPart:
    """Return what is known of the inside of a culprit.

    Args:
        place: the culprit.
        report: of the bisection that looked there, None if none did.
        reason: why none did, a clause, or "".
    """
    by_hand = ""
    if place.kind == MERGE and place.first_parent and not reason.startswith("that "):
        by_hand = f"bisect-train run --good {place.first_parent[:12]} --bad {place.id[:12]} --no-first-parent"
    if report is None:
        return DescentPart(place.kind, place.id, "", "", place=place.name, reason=reason, by_hand=by_hand)
    is_proved = report.status in ("isolated", "several") and report.is_finished
    found = tuple(part for culprit in report.culprits for part in culprit.changes) if is_proved else ()
    found = tuple(_place_part(part, place) for part in found)
    files = tuple(part for culprit in report.culprits[:1] for part in culprit.inside) if is_proved else ()
    if is_proved and place.kind == COMMIT:
        found += report.needed  # a patch without them would not run
    return DescentPart(
        place.kind,
        place.id,
        report.id,
        report.status if report.is_finished else "unfinished",
        found=found,
        files=files if place.kind != COMMIT else (),
        clause=_say_found(place, report) if is_proved else _say_open(place, report),
        summary=report.summary,
        searched=_say_searched(place, report),
        num_steps=report.num_steps,
        cost=report.cost,
        by_hand=by_hand,
        patch=smallest_patch(report),
        place=place.name,
    )


def _place_part(part: ChangePart, place: Place) -> ChangePart:
    """Return a commit of a submodule with the submodule in its title: its digits alone do not tell where to look for it."""
    is_there = place.submodule and part.kind == ChangeKind.COMMIT.value
    return replace(part, title=f"{place.submodule}: {part.title}") if is_there else part


def smallest_patch(report: ReportData) -> str:
    """Return the smallest patch that was proved to do it, onto the parent of its commit; "" where no commit was split."""
    deeper = (part.descent.patch for part in report.culprits if part.descent is not None)
    return report.patch or next(filter(None, deeper), "")


def printable_patch(patch: str) -> str:
    """Return a patch for a person: bytes that are no text are shown as a question mark."""
    return patch.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _say_searched(place: Place, report: ReportData) -> str:
    if place.kind == MERGE:
        num = report.num_changes.get(ChangeKind.COMMIT.value, 1) - 1
        return say_counts({ChangeKind.COMMIT.value: num}) + " and the merge itself"
    if place.kind == PACKAGE:
        num = report.num_changes.get(ChangeKind.PACKAGE.value, 0)
        return f"{num} steps from release to release" if num else say_counts(report.num_changes)
    return say_counts(report.num_changes)


def _say_found(place: Place, report: ReportData) -> str:
    named = "; ".join(_name_all(culprit.changes, place) for culprit in report.culprits)
    needed = f", which needs {_name_all(report.needed, place)} to run" if report.needed else ""
    deeper = [part.descent.clause for part in report.culprits if part.descent is not None and part.descent.found]
    where = f"{place.name}, its " if place.kind == SUBMODULE else ""
    return "; ".join([f"inside it: {where}{named}{needed} (proved by fresh runs)", *deeper])


def _name_all(parts: Sequence[ChangePart], place: Place) -> str:
    return " and ".join(_name(part, place) for part in parts)


def _name(part: ChangePart, place: Place) -> str:
    if part.id == place.id:
        return "the merge itself, by what its author changed beyond merging the branch"
    if part.kind == ChangeKind.PACKAGE.value:
        return f"the release {shorten(part.title, _TITLE_WIDTH)}"
    return name_change(Change(ChangeKind(part.kind), part.id, part.title), width=_TITLE_WIDTH)


def _say_open(place: Place, report: ReportData) -> str:
    if not report.is_finished:
        return "inside it: the search is not finished"
    if report.status in _UNSPLIT:
        return f"inside it: nothing found, {_ENDS[place.kind]} did not separate in the runs made for this"
    names = [_short(item.change, place) for item in report.candidates]
    if not names:
        return "inside it: no answer"
    more = f" and {len(names) - MAX_CANDIDATES} more" if len(names) > MAX_CANDIDATES else ""
    return f"inside it: not narrowed to one {_WHOLE[place.kind]}, left are {', '.join(names[:MAX_CANDIDATES])}{more}"


def _short(part: ChangePart, place: Place) -> str:
    if part.id == place.id:
        return "the merge itself"
    return part.id[:8] if part.kind == ChangeKind.COMMIT.value else part.id


def parts_inside(descent: DescentPart | None, files: Sequence[ChangePart]) -> tuple[ChangePart, ...]:
    """Return what a culprit holds: what was proved inside it and what that holds, else the files that it touches."""
    return (*descent.found, *descent.files) if descent is not None and descent.found else tuple(files)


def add_clause(summary: str, culprit: CulpritPart) -> str:
    """Return a summary, without its full stop, that says what was found inside a culprit."""
    descent = culprit.descent
    return f"{summary}; {descent.clause}" if descent is not None and descent.clause else summary


def explain_inside(culprits: Sequence[CulpritPart]) -> tuple[str, ...]:
    """Return a sentence for each culprit with an inside: what the search there said, or how to look there."""
    told = (_explain(part.descent) for part in culprits if part.descent is not None)
    return tuple(text for text in told if text)


def _explain(descent: DescentPart) -> str:
    name = descent.place or Place(descent.kind, descent.opened).name
    if descent.bisection:
        return f"Inside {name} ({descent.searched}; `bisect-train report {descent.bisection}`): {descent.summary}"
    if descent.kind == MERGE and descent.reason.startswith("that "):
        return f"Commit {descent.opened[:8]} is a merge {descent.reason}."
    if descent.by_hand:
        why = f" ({descent.reason})" if descent.reason else ""
        hand = f"`{descent.by_hand}`, with the other options as before, does that"
        return f"Commit {descent.opened[:8]} is a merge, and what is inside was not looked at{why}: {hand}."
    return f"What is inside {name} was not looked at: {descent.reason}." if descent.reason else ""


def list_conditions_inside(descent: DescentPart | None) -> tuple[str, ...]:
    """Return what limits a culprit because of what its inside left open."""
    is_open = descent is not None and descent.clause and not descent.found
    return (descent.clause,) if descent is not None and is_open else ()


def name_place(part: ChangePart) -> str:
    """Return where to look, for a part of a culprit: a file or hunk by its place, a commit by kind, digits and title."""
    if part.kind == ChangeKind.COMMIT.value:
        return f"commit {part.id[:8]} {shorten(part.title, _TITLE_WIDTH)}"
    return part.id


def explain_own_change(change: Change) -> str:
    """Return what it means that a merge is named where its branch was searched, too."""
    return (
        f"{KIND_NAMES[change.kind].capitalize()} {change.id[:8]} is a merge: named is what its author changed beyond merging "
        "the branch (a conflict resolved by hand, say), not the branch."
    )
