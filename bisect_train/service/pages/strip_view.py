"""The changes as a strip that narrows: one cell a change with its belief, and what the version that ends with it showed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bisect_train.core.changes import Change, Point, point_of_text
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.report.parts import ReportData
from bisect_train.report.words import KIND_NAMES, label_change, say_count, say_share, untitle
from bisect_train.search.belief import credible_changes
from bisect_train.search.terms import Plan
from bisect_train.service.pages.clean import one_line
from bisect_train.verdict.end_terms import EndsStatus

MASS = 0.99
MAX_ROWS = 200  # of the table beside the strip
LABEL_WIDTH = 100
VERSION_WORDS = {
    "good": "like the good end",
    "bad": "like the bad end",
    "other": "unlike both ends",
    "untestable": "cannot be tested",
    "inconclusive": "undecided",
    "": "not run",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One change.

    Attributes:
        number: from 1; version `number` holds it and all before it.
        name: short id and title.
        kind: in words.
        detail: author and date, or "".
        probability: that it is the culprit; None before the search.
        is_left: whether it belongs to the changes that hold 99 % of the belief; before the search, always.
        is_culprit: whether it is proved.
        verdict: of its version: a `VerdictKind`, or "" where it was not run.
        num_runs: of its version.
        marked: what a person called its version, or "".
        reason: why the verdict, one sentence or "".
    """

    number: int
    name: str
    kind: str
    detail: str
    probability: float | None
    is_left: bool
    is_culprit: bool
    verdict: str
    num_runs: int
    marked: str
    reason: str

    @property
    def said(self) -> str:
        """What its version showed, in words."""
        if self.marked:
            return f"called {self.marked} by hand"
        runs = f", {say_count(self.num_runs, 'run')}" if self.num_runs else ""
        return f"{VERSION_WORDS[self.verdict]}{runs}"

    @property
    def belief(self) -> str:
        """Its probability in words, "" before the search."""
        return "" if self.probability is None else say_share(self.probability)

    def to_json(self) -> list[Any]:
        """Return what the browser needs to draw and to say it, as a short row."""
        flags = self.is_left + 2 * self.is_culprit
        chance = None if self.probability is None else round(self.probability, 5)
        return [one_line(self.name), chance, flags, self.verdict, self.said, self.belief]


@dataclass(frozen=True, slots=True)
class Strip:
    """All changes, oldest first; `said` is a sentence about how far it has narrowed."""

    cells: tuple[Cell, ...]
    said: str

    @property
    def rows(self) -> tuple[Cell, ...]:
        """The cells worth a row of a table: left, run or named; the most probable where they are too many."""
        told = [cell for cell in self.cells if cell.is_culprit or cell.verdict or cell.marked or cell.is_left]
        if len(told) > MAX_ROWS:
            ranked = sorted(
                told, key=lambda cell: (not cell.is_culprit, -(cell.probability or 0.0), not cell.verdict, cell.number)
            )
            told = sorted(ranked[:MAX_ROWS], key=lambda cell: cell.number)
        return tuple(told)

    def to_json(self) -> dict[str, Any]:
        """Return the strip for the browser."""
        return {"cells": [cell.to_json() for cell in self.cells]}


def make_strip(changes: Sequence[Change], plan: Plan, report: ReportData, marks: Mapping[int, VerdictKind]) -> Strip:
    """Return the strip of a bisection as it stands."""
    posterior = plan.posterior
    left = set(credible_changes(np.asarray(posterior), mass=MASS)) if posterior else set(range(len(changes)))
    named = {part.number - 1 for part in report.strip if part.is_culprit}
    evidence = _with_ends(plan, len(changes))
    cells = tuple(
        _cell(idx, change, posterior, left=left, named=named, seen=evidence.get(idx + 1), mark=marks.get(idx + 1))
        for idx, change in enumerate(changes)
    )
    return Strip(cells, _say(cells, named, has_belief=bool(posterior)))


def _with_ends(plan: Plan, num_changes: int) -> Mapping[int, Evidence]:
    """Return the evidence by version; the bad end is bad once the ends are told apart."""
    evidence = dict(plan.evidence)
    if plan.ends.status is EndsStatus.SEPARATED:
        evidence.setdefault(num_changes, Evidence(VerdictKind.BAD, reason="the bad end"))
    return evidence


def _cell(
    idx: int,
    change: Change,
    posterior: Sequence[float],
    *,
    left: Collection[int],
    named: Collection[int],
    seen: Evidence | None,
    mark: VerdictKind | None,
) -> Cell:
    return Cell(
        number=idx + 1,
        name=label_change(change, width=LABEL_WIDTH),
        kind=KIND_NAMES[change.kind],
        detail=change.detail,
        probability=posterior[idx] if posterior else None,
        is_left=idx in left,
        is_culprit=idx in named,
        verdict=(mark or seen.verdict).value if seen is not None else mark.value if mark else "",
        num_runs=seen.num_runs if seen is not None else 0,
        marked=mark.value if mark else "",
        reason=seen.reason if seen is not None else "",
    )


def _say(cells: Sequence[Cell], named: Collection[int], *, has_belief: bool) -> str:
    total = say_count(len(cells), "change")
    if named:
        names = " and ".join(f"change {idx + 1}" for idx in sorted(named))
        return f"{total} between the ends; {names} is proved." if len(named) == 1 else f"{total}; {names} are proved."
    if not has_belief:
        return f"{total} between the ends; none is ruled out yet."
    left = [cell for cell in cells if cell.is_left]
    verb = "holds" if len(left) == 1 else "hold"
    where = f", from {left[0].number} to {left[-1].number}" if len(left) > 1 else ""
    return f"{len(left)} of {total} {verb} 99 % of the belief{where}."


def title_of(change: Change) -> str:
    """Return the whole title of a change without its id."""
    return untitle(change)


def version_of(point_text: str) -> int | None:
    """Return the number of the version that a set of changes is, None for other sets."""
    try:
        point: Point = point_of_text(point_text)
    except ValueError:
        return None
    return point.prefix if point.is_prefix and point.prefix >= 0 else None
