"""What was found, in sentences: which changes, how big, how sure."""

from __future__ import annotations

from bisect_train.core.changes import ChangeKind
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.report.across import say_corners
from bisect_train.report.case import Case
from bisect_train.report.conditions import say_caveat, say_states
from bisect_train.report.endstory import say_symptom
from bisect_train.report.inside import add_clause, explain_inside, explain_own_change
from bisect_train.report.parts import CulpritPart, EffectPart, Wording
from bisect_train.report.several import explain_several, say_several
from bisect_train.report.step_beside import say_step_beside
from bisect_train.report.words import name_changes, say_count, say_number, say_share, say_spread, shorten
from bisect_train.search.terms import RemarkKind
from bisect_train.verdict.proof import LEVEL, ClaimStatus
from bisect_train.verdict.triage import SYMPTOMS

MANY_PERCENT = 200.0
"""From here on a percentage is also told as a multiple."""


def word_culprits(case: Case, culprits: tuple[CulpritPart, ...], kind: str | None) -> Wording:
    """Return the verdict where one culprit or several are proved."""
    if len(culprits) > 1:
        return _word_several(case, culprits)
    first = culprits[0]
    changes = [case.space.changes[idx] for idx in case.answer.culprits[0].changes]
    name = name_changes(changes)
    verb = "make" if len(changes) > 1 else "makes"
    together = " together" if len(changes) > 1 else ""
    summary = f"{name[0].upper()}{name[1:]}{together} {verb} {_say_harm(case, first.effect, kind)}."
    summary = f"{add_clause(summary[:-1], first)}."
    found = {"better": "Found the change", "numerics_only": "Found the change of the numbers"}
    headline = found.get(kind or "", "Found the culprit") + _say_together(len(changes))
    told = (*say_caveat(case), *explain_inside(culprits), *say_corners(case), *_say_own_changes(case))
    told += (*_say_authors(culprits), *_say_size(case, first.effect), *say_step_beside(case), *_say_sureness(case, first, kind))
    return Wording(headline, summary, told)


def _say_together(num: int) -> str:
    if num == 1:
        return ""
    return ": two changes together" if num == 2 else f": {num} changes together"


def _word_several(case: Case, culprits: tuple[CulpritPart, ...]) -> Wording:
    told = (*say_caveat(case), *explain_inside(culprits), *say_corners(case), *_say_own_changes(case), *_say_authors(culprits))
    told += explain_several(case, culprits)
    return Wording(f"Found {len(culprits)} culprits", say_several(case, culprits), told)


def _say_own_changes(case: Case) -> tuple[str, ...]:
    """Return what a merge is blamed for where the branch that it brought in was searched, too."""
    commits = case.space.commits
    named = [idx for culprit in case.answer.culprits for idx in culprit.changes if idx in commits.merges]
    return tuple(explain_own_change(case.space.changes[idx]) for idx in named if len(commits.parents[idx]) > 1)


def _say_authors(culprits: tuple[CulpritPart, ...]) -> tuple[str, ...]:
    """Return who made the commits that are named, and when."""
    parts = [part for culprit in culprits for part in (*culprit.changes, *culprit.inside)]
    commits = dict.fromkeys(part for part in parts if part.kind == ChangeKind.COMMIT.value and part.detail)
    return tuple(f"Commit {part.id[:8]} is by {part.detail}." for part in commits)


def _say_harm(case: Case, effect: EffectPart | None, kind: str | None) -> str:
    metric = case.question.metric.name
    if case.is_symptom:
        return _say_failing(case, effect, kind)
    if kind in ("numerics_only", "data_order"):
        what = "the order of the data change" if kind == "data_order" else "the numbers change"
        return f"{what} without a worsening of {metric} that could be shown"
    word = "better" if kind == "better" else "worse"
    if effect is None:
        return f"{metric} {word}"
    steps = case.question.rung.steps
    runs = f"{effect.num_good} + {effect.num_bad} fresh runs" + (f" of {say_count(steps, 'step')}" if steps else "")
    values = f"{say_number(effect.good)} -> {say_number(effect.bad, unit=case.unit)}"
    sds = [sd for sd in (effect.good_sd, effect.bad_sd) if sd is not None]
    spread = f"sd {max(sds):.2g}, " if sds else ""
    return f"{metric} {word}: {values} ({say_number(effect.bad - effect.good, signed=True)}, {spread}{runs})"


def _say_failing(case: Case, effect: EffectPart | None, kind: str | None) -> str:
    if case.ends.criterion is Criterion.JUDGE:
        said = "the judging command say bad"
    elif case.question.symptom:
        said = f"training show {case.question.symptom} ({SYMPTOMS[case.question.symptom].description})"
    else:
        harms = {"hang": "training hang", "slower": "training hit its time limit"}
        harms["nan"] = f"{case.question.metric.name} NaN or infinite"
        said = harms.get(kind or "", "training fail")
        said += f" ({shorten(say_symptom(case), 120)})" if kind in ("crash", "memory") else ""
    if effect is None:
        return said
    num_good, num_bad = round(effect.good * effect.num_good), round(effect.bad * effect.num_bad)
    with_it = f"{num_bad} of {say_count(effect.num_bad, 'fresh run')} with it"
    return f"{said}: {with_it}, {num_good} of {effect.num_good} without"


def _say_size(case: Case, effect: EffectPart | None) -> tuple[str, ...]:
    if effect is None or case.is_symptom:
        return ()
    source = "" if effect.spread_from == "fresh runs" else f" over {effect.spread_from}"
    good = say_spread(effect.good, effect.good_sd, effect.num_good, unit=effect.unit, source=source)
    bad = say_spread(effect.bad, effect.bad_sd, effect.num_bad, unit=effect.unit, source=source)
    text = f"How big: {effect.metric} is {good} just before it and {bad} with it{_say_times(case, effect)}."
    if effect.share is None:
        return (text,)
    if effect.share_low is None or effect.share_high is None:
        interval = "too few runs for an interval"
    elif effect.share_low == effect.share_high:
        inert = "exactly: seeds change nothing here"
        interval = inert if case.ends.are_seeds_inert else "exactly: the runs show the values of the ends"
    else:
        interval = f"95 % interval {100 * effect.share_low:.0f} to {100 * effect.share_high:.0f} %"
    return (f"{text} It explains {100 * effect.share:.0f} % of the gap between the ends ({interval}).",)


def _say_times(case: Case, effect: EffectPart) -> str:
    """Return how many times as much a large percentage is, "" for those that are easily read."""
    if not case.question.metric.is_paired or effect.bad < MANY_PERCENT:
        return ""
    return f", {1.0 + effect.bad / 100.0:.3g} times the good end's run beside it"


def _say_sureness(case: Case, culprit: CulpritPart, kind: str | None) -> tuple[str, ...]:
    text = f"How sure: the search gave it a probability of {say_share(culprit.probability)}; then {_say_proof(case)}."
    return (text, *_say_roles(case, culprit, kind))


def _say_proof(case: Case) -> str:
    fresh = "fresh runs, which the search had not seen,"
    held = [result for result in case.answer.culprits[0].claims if result.status is ClaimStatus.HELD]
    is_bitwise = bool(held) and all(result.how == "bitwise" for result in held)
    if is_bitwise:
        return f"{fresh} gave bit for bit what the ends give"
    if held and all(result.how in ("bitwise", "metric") for result in held):
        name = case.question.metric.name
        return f"{fresh} gave the {name} of the ends to the last digit, on every seed"
    if case.is_symptom and not case.ends.is_flaky:
        did = ("showed it", "did not show it") if case.question.symptom else ("failed", "did not fail")
        return f"{fresh} {did[0]} with it and {did[1]} without it, every time"
    if case.ends.are_seeds_inert:
        return f"{fresh} showed it, one of each state; every seed gives the same run, so there is no error level to give"
    attempt = max(1, case.proof_attempt(case.answer.culprits[0].changes))
    return f"{fresh} confirmed it; each claim was tested at an error of {100 * LEVEL / 2**attempt:.3g} %"


def _say_roles(case: Case, culprit: CulpritPart, kind: str | None) -> tuple[str, ...]:
    good, bad = say_states(kind)
    if culprit.necessary and culprit.sufficient:
        if len(culprit.changes) == 1:
            return (f"Without it the bad end is {good}; with it alone the good end is {bad}.",)
        if any(remark.kind is RemarkKind.COUPLED for remark in case.answer.remarks):
            return (f"Without them the bad end is {good}; with them alone the good end is {bad}.",)
        if len(culprit.changes) > 2:
            return (f"Without any one of them the bad end is {good}; with all of them the good end is {bad}.",)
        return (f"Without the first the bad end is {good}; with both the good end is {bad}; the second alone is not enough.",)
    said = [f"Without it the bad end is {good}."] if culprit.necessary else []
    said += [f"Note: {condition}." for condition in culprit.conditions]
    if None in (culprit.necessary, culprit.sufficient):
        said.append(_say_sides(case))
    return tuple(said)


def _say_sides(case: Case) -> str:
    """Return what stands in for a claim that could not be run: the states on both sides of the change agree."""
    change = case.answer.culprits[0].changes[-1]
    kinds = {version: item.verdict for version, item in case.plan.evidence.items() if item.num_runs > 0}
    num_good = sum(kind is VerdictKind.GOOD for version, kind in kinds.items() if version <= change)
    num_bad = sum(kind is VerdictKind.BAD for version, kind in kinds.items() if version > change)
    before, after = say_count(num_good, "tested version"), say_count(num_bad, "tested version")
    num_odd = sum(kind is VerdictKind.BAD for version, kind in kinds.items() if version <= change)
    num_odd += sum(kind is VerdictKind.GOOD for version, kind in kinds.items() if version > change)
    other = "none the other way" if not num_odd else f"{num_odd} the other way, found later"
    return f"In its place the two sides agree: {before} before it good, {after} from it on bad, {other}."
