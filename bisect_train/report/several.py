"""Several culprits in words: each with its own size, and where in the range it was proved."""

from __future__ import annotations

from bisect_train.core.changes import Point
from bisect_train.report.case import Case
from bisect_train.report.parts import CulpritPart, EffectPart
from bisect_train.report.words import name_change, say_number, say_share, say_spread
from bisect_train.search.terms import Culprit
from bisect_train.verdict.proof import LEVEL, ClaimKind


def part_of_culprit(case: Case, culprit: Culprit) -> tuple[Point, Point] | None:
    """Return the ends of the part of the range in which a culprit was proved, None if that was the whole."""
    claims = {result.claim.kind: result.claim for result in reversed(culprit.claims)}  # the part's own come first
    heals, breaks = claims.get(ClaimKind.HEALS), claims.get(ClaimKind.BREAKS)
    if heals is None or breaks is None:
        return None
    is_whole = heals.sick == case.bad_point and breaks.healthy in (Point(0), case.good_point)
    return None if is_whole else (breaks.healthy, heals.sick)


def say_several(case: Case, culprits: tuple[CulpritPart, ...]) -> str:
    """Return one sentence that names all culprits, the largest effect first."""
    named = [_name_with_size(case, culprit, part) for culprit, part in _pairs(case, culprits)]
    text = f"{', '.join(named[:-1])} and {named[-1]}"
    return f"{len(named)} changes each make {case.question.metric.name} worse: {text}."


def explain_several(case: Case, culprits: tuple[CulpritPart, ...]) -> tuple[str, ...]:
    """Return how big each is, where it was proved, and how sure that is."""
    told = []
    for culprit, part in _pairs(case, culprits):
        name = name_change(case.space.changes[culprit.changes[0]], width=40)
        told.append(_say_size(part.effect, name))
        if ends := part_of_culprit(case, culprit):
            told.append(f"It was proved between {say_part(case, ends)}, by runs of its own.")
    attempts = [max(1, case.proof_attempt(culprit.changes)) for culprit in case.answer.culprits]
    level = 100 * LEVEL / 2 ** min(attempts)
    sure = "How sure: fresh runs, which the search had not seen, confirmed each"
    return (*told, f"{sure}; every claim was tested at an error of at most {level:.3g} %.")


def say_part(case: Case, ends: tuple[Point, Point]) -> str:
    """Return the ends of a part in words."""
    names = [case.say(point, width=0) for point in ends]
    return " and ".join(f"the {name}" if name.endswith("end") else name for name in names)


def _pairs(case: Case, culprits: tuple[CulpritPart, ...]) -> list[tuple[Culprit, CulpritPart]]:
    """Return the answer's culprits in the order of the report's parts."""
    by_ids = {tuple(case.space.changes[idx].id for idx in culprit.changes): culprit for culprit in case.answer.culprits}
    return [(by_ids[tuple(change.id for change in part.changes)], part) for part in culprits]


def _name_with_size(case: Case, culprit: Culprit, part: CulpritPart) -> str:
    name = " and ".join(name_change(case.space.changes[idx], width=40) for idx in culprit.changes)
    if part.effect is None:
        return name
    jump = say_number(part.effect.bad - part.effect.good, unit=part.effect.unit, signed=True)
    share = "" if part.effect.share is None else f", {say_share(part.effect.share)} of the gap"
    return f"{name} ({jump}{share})"


def _say_size(effect: EffectPart | None, name: str) -> str:
    if effect is None:
        return f"{name[0].upper()}{name[1:]}: its size was not measured."
    source = "" if effect.spread_from == "fresh runs" else f" over {effect.spread_from}"
    good = say_spread(effect.good, effect.good_sd, effect.num_good, unit=effect.unit, source=source)
    bad = say_spread(effect.bad, effect.bad_sd, effect.num_bad, unit=effect.unit, source=source)
    text = f"{name[0].upper()}{name[1:]}: {effect.metric} is {good} just before it and {bad} with it"
    if effect.share is None or effect.share_low is None or effect.share_high is None:
        return f"{text}."
    low, high = 100 * effect.share_low, 100 * effect.share_high
    return f"{text}: {100 * effect.share:.0f} % of the gap between the ends (95 % interval {low:.0f} to {high:.0f} %)."
