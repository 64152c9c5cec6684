"""What restricts a culprit, in words: a partner, another change, a claim that was not shown or could not be run.

A claim that failed by measured values was not shown: that is not its opposite, and the words keep the two apart.
"""

from __future__ import annotations

from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.report.case import Case
from bisect_train.report.several import part_of_culprit, say_part
from bisect_train.report.words import say_number
from bisect_train.search.terms import Culprit, Phase, RemarkKind
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.proof import ClaimKind, ClaimResult

MEASURED = ("t", "permutation", "paired", "value")
LIKE_ENDS = ("better", "numerics_only", "data_order")  # kinds of change where neither end is ill


def say_states(kind: str | None) -> tuple[str, str]:
    """Return the words for a run like the good end and one like the bad end: `healthy`, `sick` only where one is ill."""
    return ("like the good end", "like the bad end") if kind in LIKE_ENDS else ("healthy", "sick")


def say_caveat(case: Case) -> tuple[str, ...]:
    """Return what limits every statement where seeds change nothing; differences of bits alone are facts, not statistics."""
    ends = case.ends
    if not ends.are_seeds_inert or case.are_ends_equal or ends.criterion is Criterion.EXACT:
        return ()
    return ("Every seed gives the same run, so this rests on one run of each state: chance cannot be told from an effect.",)


def list_conditions(case: Case, culprit: Culprit, kind: str | None) -> tuple[str, ...]:
    """Return what restricts a culprit, one clause each.

    Args:
        case: of the answer.
        culprit: proved, or the one whose proof was left open.
        kind: of change, as report.json names it.
    """
    good, _ = say_states(kind)
    if part := part_of_culprit(case, culprit):
        return (f"proved between {say_part(case, part)}",)
    if len(culprit.changes) > 1 and any(remark.kind is RemarkKind.COUPLED for remark in case.answer.remarks):
        return ("the changes can only be made together: no state with some of them only could be run",)
    if len(culprit.changes) > 1:
        return (f"the changes act together; the last one alone leaves the good end {good}",)
    results = {result.claim.kind: result for result in culprit.claims}
    heals, breaks = results.get(ClaimKind.HEALS), results.get(ClaimKind.BREAKS)
    said = []
    if culprit.is_necessary is False and heals is not None and heals.how in MEASURED:
        said.append(f"that the bad end {_say_heals(kind)} without it could not be shown ({heals.reason})")
    elif culprit.is_necessary is False:
        worse = "differs from the good end" if kind in LIKE_ENDS else "is still bad"
        effect = "acts" if kind in LIKE_ENDS else "makes it worse"
        said.append(f"without it the bad end {worse}, so at least one other change {effect} too")
    if culprit.is_necessary is None:
        said.append(f"it could not be left out of the bad end ({_reason_of(heals)})")
    if culprit.is_sufficient is False:
        said.append(_say_alone(case, culprit, breaks, kind))
    if culprit.is_sufficient is None:
        said.append(f"it could not be put on the good end alone ({_reason_of(breaks)})")
    return tuple(said)


def _reason_of(result: ClaimResult | None) -> str:
    return (result.reason if result else "") or "not run"


def _say_heals(kind: str | None) -> str:
    return "becomes like the good end" if kind in LIKE_ENDS else "heals"


def _say_alone(case: Case, culprit: Culprit, breaks: ClaimResult | None, kind: str | None) -> str:
    """Return what a change does alone on the good end when that is not shown to be what the bad end does."""
    is_measured = breaks is not None and breaks.how in MEASURED and breaks.jump is not None
    if not is_measured or _has_partner(case, culprit.changes[0]):
        return f"alone on the good end it leaves the run {say_states(kind)[0]}, so it needs something else from the range"
    assert breaks is not None and breaks.jump is not None
    jump, gap = abs(breaks.jump), abs(case.ends.gap)
    shown, whole = say_number(jump, unit=case.unit), say_number(gap, unit=case.unit)
    if breaks.jump * case.ends.gap <= 0:
        return f"alone on the good end it makes nothing of the {whole} gap"
    if jump <= gap / 2:
        return f"alone on the good end it makes only {shown} of the {whole} gap (less than half)"
    return f"that it alone makes more than half of the {whole} gap could not be shown ({breaks.reason})"


def _has_partner(case: Case, change: int) -> bool:
    """Return whether the search for a partner goes on, or saw the change act together with some of the earlier ones."""
    if case.plan.phase is Phase.PARTNER:
        return True
    points = {run.seen.point for run in case.runs if run.seen.attempt == 0 and run.seen.point.plus == (change,)}
    for point in points:
        seen = [run.seen for run in case.at(point, attempt=0)]
        if point.prefix > 0 and judge_variant(seen, case.ends, case.question.metric).verdict is VerdictKind.BAD:
            return True
    return False
