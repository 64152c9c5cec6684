"""What is looked at after the answer for the whole range, in words: its parts, and bad stretches before the culprit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bisect_train.core.changes import Change
from bisect_train.report.words import label_change, name_change, say_count, say_number
from bisect_train.search.islands import ISLANDS
from bisect_train.search.terms import PROVED, Answer, Part, Phase, Plan, RemarkKind
from bisect_train.verdict.end_terms import Ends, EndsStatus

LABEL_WIDTH = 28
PART_WORDS = {
    Phase.ENDS: "comparing its two ends",
    Phase.BASE: "comparing its two ends",
    Phase.SEARCH: "searching the change",
    Phase.PROOF: "proving its answer with fresh runs",
    Phase.PARTNER: "looking for the change that must come with it",
    Phase.REST: "searching its parts",
    Phase.DONE: "done",
}
IN_WHOLE = "testing with fresh runs whether what was proved in a part matters in the whole range, too"
BAD_STRETCH = "looking for bad stretches before the culprit, and where they begin and end"


def say_rest(plan: Plan, changes: Sequence[Change]) -> str:
    """Return why there is more to look at after the range's own answer."""
    own = plan.own
    if own is None:
        return "looking at the rest of the range"
    if own.status in PROVED and own.culprits:
        names = " and ".join(name_change(changes[idx], width=40) for idx in own.culprits[0].changes)
        return f"looking at the rest of the range: {names} is proved; is it all?"
    return f"looking at parts of the range by themselves: {own.reason}"


def list_activities(plan: Plan, changes: Sequence[Change]) -> tuple[str, ...]:
    """Return what is being looked at in the phase REST, one line each, the outermost part first."""
    if plan.phase is not Phase.REST:
        return ()
    told = [_say_part(part, changes, first=first, own=own) for first, part, own in _open_parts(plan, 0)]
    if any(request.part == ISLANDS for request in plan.wanted):
        told.append(BAD_STRETCH)
    elif not told:
        told.append(IN_WHOLE)
    return tuple(told)


def ends_of_part(plan: Plan, number: int) -> Ends:
    """Return the ends by which a run of a part is judged: its own once they are proved, else those of the whole range."""
    for part in _every_part(plan):
        if part.number == number and part.plan.ends.status is EndsStatus.SEPARATED:
            return part.plan.ends
    return plan.ends


def _every_part(plan: Plan) -> Iterator[Part]:
    for part in plan.parts:
        yield part
        yield from _every_part(part.plan)


def _open_parts(plan: Plan, offset: int) -> Iterator[tuple[int, Part, Answer | None]]:
    """Yield the parts that have no answer yet: where each begins in the whole range, and the answer of what it is part of."""
    for part in plan.parts:
        if part.plan.answer is None:
            yield offset + part.first, part, plan.own
            yield from _open_parts(part.plan, offset + part.first)


def _say_part(part: Part, changes: Sequence[Change], *, first: int, own: Answer | None) -> str:
    last = first + part.last - part.first
    labels = [label_change(changes[idx], width=LABEL_WIDTH) for idx in (first, last - 1)]
    where = (
        f"at {labels[0]}" if last - first == 1 else f"in {say_count(last - first, 'change')} from {labels[0]} to {labels[1]}"
    )
    text = f"{where} ({_say_why(part, own)}): {PART_WORDS[part.plan.phase]}"
    if part.plan.candidate is not None and part.plan.phase in (Phase.PROOF, Phase.PARTNER):
        text += f": {name_change(changes[first + part.plan.candidate], width=40)}"
    return text


def _say_why(part: Part, own: Answer | None) -> str:
    remarks = own.remarks if own is not None else ()
    rest = next((item for item in remarks if item.kind is RemarkKind.UNEXPLAINED and item.first == part.first), None)
    if rest is None or rest.size is None:
        return "what lies between the ends is on a level of its own"
    return f"it becomes worse by {say_number(abs(rest.size))} there, too"
