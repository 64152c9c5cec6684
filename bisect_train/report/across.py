"""How kinds of changes act together: the four corners of code and the rest, and the table of a pair."""

from __future__ import annotations

from bisect_train.core.verdict import Evidence
from bisect_train.report.case import Case
from bisect_train.report.parts import CellPart
from bisect_train.report.words import label_change, say_count, say_number
from bisect_train.search.partner import two_by_two
from bisect_train.search.terms import CornersOutcome, Known
from bisect_train.verdict.outcome import Observation, OutcomeKind
from bisect_train.verdict.stats import summarise

_OUTCOMES = {
    CornersOutcome.CODE_ALONE: "the code alone makes it worse",
    CornersOutcome.REST_ALONE: "the rest alone makes it worse",
    CornersOutcome.BOTH_NEEDED: "only both together make it worse",
    CornersOutcome.EITHER_ENOUGH: "either is enough to make it worse",
    CornersOutcome.UNTESTABLE: "one corner cannot be run",
    CornersOutcome.UNCLEAR: "the corners did not decide",
}
_WIDTH = 44


def say_corners(case: Case) -> tuple[str, ...]:
    """Return what the four corners showed, where code and something else differ."""
    corners = case.plan.corners
    if corners is None or (corners.code is None and corners.rest is None):
        return ()
    code = f"all commits with the rest as the good end has it: {_say_evidence(corners.code)}"
    rest = f"the good end's code with all the rest: {_say_evidence(corners.rest)}"
    return (f"Code against the rest: {_OUTCOMES[corners.outcome]} ({code}; {rest}).",)


def _say_evidence(evidence: Evidence | None) -> str:
    if evidence is None:
        return "not run"
    reason = f", {evidence.reason}" if evidence.verdict.value == "untestable" and evidence.reason else ""
    return f"{evidence.verdict.value}{reason}"


def cells_of_pair(case: Case) -> tuple[CellPart, ...]:
    """Return the four states of a pair that is the culprit, on the good end; () where the culprit is no pair."""
    culprit = case.culprit
    if culprit is None or len(culprit.changes) != 2 or case.answer.status not in ("isolated", "several"):
        return ()
    first, second = sorted(culprit.changes)
    table = two_by_two(Known([run.seen for run in case.runs]), (first, second))
    names = [label_change(case.space.changes[idx], width=_WIDTH) for idx in (first, second)]
    titles = ("neither", names[0], names[1], "both")
    cells = (table.neither, table.first, table.second, table.both)
    return tuple(_cell(title, runs) for title, runs in zip(titles, cells, strict=True))


def _cell(name: str, runs: tuple[Observation, ...]) -> CellPart:
    values = [run.outcome.value for run in runs if run.outcome.value is not None and not run.outcome.is_early]
    summary = summarise(values) if values else None
    sd = summary.sd if summary is not None and len(values) > 1 else None
    num_failed = sum(run.outcome.kind is OutcomeKind.FAILED for run in runs)
    return CellPart(name, summary.mean if summary else None, sd, len(runs), num_failed)


def say_cell(cell: CellPart, *, unit: str) -> str:
    """Return a cell in words: `3.4121 (sd 0.0042, 3 runs)`, `failed (3 of 3 runs)`, `not run`."""
    if not cell.num_runs:
        return "not run"
    if cell.mean is None:
        return f"failed ({cell.num_failed} of {say_count(cell.num_runs, 'run')})" if cell.num_failed else "no value"
    spread = f"sd {cell.sd:.2g}, " if cell.sd is not None else ""
    failed = f", {cell.num_failed} failed" if cell.num_failed else ""
    return f"{say_number(cell.mean, unit=unit)} ({spread}{say_count(cell.num_runs, 'run')}{failed})"
