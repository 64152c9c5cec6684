"""The verdict in sentences: what was found, how big, how sure, and where nothing was found, what would help."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bisect_train.core.changes import ChangeKind
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.report.case import Case
from bisect_train.report.conditions import MEASURED, list_conditions, say_states
from bisect_train.report.endstory import say_symptom
from bisect_train.report.failing import say_failed_end, say_no_metric
from bisect_train.report.inside import add_clause, explain_inside, explain_own_change
from bisect_train.report.parts import CulpritPart, EffectPart
from bisect_train.report.several import explain_several, say_several
from bisect_train.report.words import (
    name_change,
    name_changes,
    say_bound,
    say_count,
    say_number,
    say_share,
    say_spread,
    shorten,
    stands_out,
    tidy_counts,
)
from bisect_train.search.terms import Phase
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.proof import LEVEL, NUM_LAST_PAIRS, ClaimStatus

PHASES = {
    Phase.ENDS: "the ends are being compared",
    Phase.BASE: "the merge base is being tested",
    Phase.SEARCH: "the search goes on",
    Phase.PROOF: "the proof is not complete",
    Phase.PARTNER: "a partner of the change is being looked for",
    Phase.REST: "the rest of the range is being searched for more",
    Phase.DONE: "done",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """The verdict in words: a few, one sentence, further sentences."""

    headline: str
    summary: str
    explanation: tuple[str, ...] = ()


def word_verdict(case: Case, culprits: tuple[CulpritPart, ...], kind: str | None) -> Wording:
    """Return the verdict in words."""
    status = case.answer.status
    if not case.is_finished:
        return Wording("Not finished", f"Not finished: {PHASES[case.plan.phase]}. {_say_left(case)}".rstrip(), ())
    if status in ("isolated", "several") and culprits:
        return _word_culprits(case, culprits, kind)
    if status in ("candidates", "drift", "budget"):
        return _word_candidates(case, kind)
    if status == "no_regression":
        return Wording("No regression", _say_no_regression(case), _helps(case))
    if status == "not_reproduced":
        headline = "Cannot tell" if case.question.kind == "check" else "Not reproduced"
        return Wording(headline, f"{headline}: {_say_not_reproduced(case)}", _helps(case))
    if status == "fixed_before":
        remedy = "Choose a good end that is an ancestor of the bad end."
        return Wording("Fixed before", f"Fixed before: {case.answer.reason}.", (remedy,))
    return _word_failed(case)


def _word_failed(case: Case) -> Wording:
    no_metric = case.ends.status is EndsStatus.NO_METRIC
    what, remedy = say_no_metric(case) if no_metric else say_failed_end(case)
    headline = "No answer: the ends could not be compared"
    return Wording(headline, _with_stop(what), (remedy, "Nobody is blamed: no search was run."))


def _with_stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


# ---- found ---------------------------------------------------------------------------------------------------------


def _word_culprits(case: Case, culprits: tuple[CulpritPart, ...], kind: str | None) -> Wording:
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
    headline = found.get(kind or "", "Found the culprit") + (": two changes together" if len(changes) > 1 else "")
    told = (*_say_caveat(case), *explain_inside(culprits), *_say_own_changes(case))
    told += (*_say_authors(culprits), *_say_size(case, first.effect), *_say_sureness(case, first, kind))
    return Wording(headline, summary, told)


def _word_several(case: Case, culprits: tuple[CulpritPart, ...]) -> Wording:
    told = (*_say_caveat(case), *explain_inside(culprits), *_say_own_changes(case), *_say_authors(culprits))
    told += explain_several(case, culprits)
    return Wording(f"Found {len(culprits)} culprits", say_several(case, culprits), told)


def _say_caveat(case: Case) -> tuple[str, ...]:
    """Return what limits every statement where seeds change nothing; differences of bits alone are facts, not statistics."""
    ends = case.ends
    if not ends.are_seeds_inert or case.are_ends_equal or ends.criterion is Criterion.EXACT:
        return ()
    return ("Every seed gives the same run, so this rests on one run of each state: chance cannot be told from an effect.",)


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
    text = f"How big: {effect.metric} is {good} just before it and {bad} with it."
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
        return f"{fresh} failed with it and did not fail without it, every time"
    if case.ends.are_seeds_inert:
        return f"{fresh} showed it, one of each state; every seed gives the same run, so there is no error level to give"
    attempt = max(1, case.proof_attempt(case.answer.culprits[0].changes))
    return f"{fresh} confirmed it; each claim was tested at an error of {100 * LEVEL / 2**attempt:.3g} %"


def _say_roles(case: Case, culprit: CulpritPart, kind: str | None) -> tuple[str, ...]:
    good, bad = say_states(kind)
    if culprit.necessary and culprit.sufficient:
        if len(culprit.changes) == 1:
            return (f"Without it the bad end is {good}; with it alone the good end is {bad}.",)
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
    return f"In its place the two sides agree: {before} before it good, {after} from it on bad, none the other way."


# ---- not found -----------------------------------------------------------------------------------------------------


def _word_candidates(case: Case, kind: str | None) -> Wording:
    headlines = {"budget": "Budget spent", "drift": "No single change stands out"}
    headline = headlines.get(case.answer.status, "Not narrowed to one change")
    explanation = [*_say_caveat(case)] if case.ends.status is EndsStatus.SEPARATED else []
    for culprit in case.answer.culprits:
        name = name_changes([case.space.changes[idx] for idx in culprit.changes])
        explanation.append(f"Nearest to an answer is {name}, but {'; '.join(list_conditions(case, culprit, kind))}.")
    explanation += _say_power(case)
    if case.ends.status is EndsStatus.SEPARATED:
        explanation += _say_untestable(case)
        if case.answer.status == "budget":
            explanation.append(
                "To go on, ask again with a larger budget: what was run is reused, except for repeats and proofs."
            )
        differ = "bit by bit" if case.ends.criterion is Criterion.EXACT else "a regression is there"
        explanation.append(f"The ends do differ: {differ}. No change is proved, so none is blamed.")
    return Wording(headline, f"{headline}: {_say_left(case)}", tuple(explanation))


def _say_untestable(case: Case) -> tuple[str, ...]:
    """Return how many versions could not be tested, and what may help."""
    broken = [item for item in case.plan.evidence.values() if item.verdict is VerdictKind.UNTESTABLE]
    if not broken:
        return ()
    reasons = Counter(item.reason for item in broken)
    said = f"{say_count(len(broken), 'version')} could not be tested: {shorten(reasons.most_common(1)[0][0], 100)}"
    more = f" and {say_count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    return (f"{said}{more}. Changes between them cannot be told apart; `--fixup FILE`, a patch, may make them run.",)


def _say_power(case: Case) -> tuple[str, ...]:
    """Return what would help where a proof had too few runs for so much noise."""
    is_weak = any(result.status is ClaimStatus.FAILED and result.how in MEASURED for result in case.plan.claims)
    if not is_weak or case.ends.are_seeds_inert or case.ends.criterion is not Criterion.STATISTICAL:
        return ()
    num = 3 * max(case.question.limits.max_seeds, NUM_LAST_PAIRS)
    return (
        f"More seeds (`--seeds {num}`) let the proof use up to {num} fresh runs of each state; more steps may widen the gap.",
    )


def _say_left(case: Case) -> str:
    answer, total = case.answer, len(case.space.changes)
    reason = f"{_with_stop(answer.reason)} " if case.is_finished else ""
    if not answer.candidates:
        is_open = case.ends.status is EndsStatus.OPEN
        return f"{reason}The ends were not told apart yet." if is_open else reason.rstrip()
    idx, probability = answer.candidates[0]
    name = f"{name_change(case.space.changes[idx])} with {say_share(probability)}"
    if len(answer.candidates) == 1:
        return f"{reason}Of {say_count(total, 'change')}, the most probable is {name}."
    best = f"most probable is {name}" if stands_out([share for _, share in answer.candidates]) else "none stands out"
    return f"{reason}{len(answer.candidates)} of {total} changes could be the one; {best}."


def _say_no_regression(case: Case) -> str:
    ends, unit, metric = case.ends, case.unit, case.question.metric.name
    steps = _say_extent(case)
    if case.is_symptom:
        return f"No regression: {case.answer.reason}, {steps}."
    if not case.runs:
        return f"No regression: {case.answer.reason}."
    if ends.status is EndsStatus.BETTER:
        return f"No regression: the bad end is better, {metric} {_say_both(case)}, {steps}."
    if case.are_ends_equal:
        num = len(ends.good_digests.keys() & ends.bad_digests.keys())
        return f"No regression: both ends are bitwise equal on {say_count(num, 'seed')}, {steps}."
    if ends.are_seeds_inert:
        gap, smallest = say_number(ends.gap, unit=unit, signed=True), say_number(ends.min_effect, unit=unit)
        return f"No regression: {metric} {_say_both(case)} ({gap}, under {smallest}, the smallest that counts), {steps}."
    smallest = say_number(ends.min_effect, unit=unit)
    return (
        f"No regression: with 95 % confidence the bad end's {metric} is {say_bound(ends.bound, unit=unit)}, less than "
        f"{smallest}, the smallest that counts; {_say_both(case)}, {steps}."
    )


def _say_not_reproduced(case: Case) -> str:
    ends, metric = case.ends, case.question.metric.name
    steps = _say_extent(case)
    if ends.status is EndsStatus.FLAKY:
        return f"the bad end is not bad every time, {steps}: {tidy_counts(case.answer.reason)}."
    if ends.are_seeds_inert:
        return f"{steps} {case.answer.reason}."
    if ends.good is None or ends.bad is None:
        return f"{tidy_counts(case.answer.reason)}, {steps}."
    could = f"; the bad end could still be worse by up to {say_number(ends.bound, unit=case.unit)} (95 % bound)"
    bound = could if ends.bound is not None else ""
    if ends.gap > 0 and ends.gap >= ends.min_effect:
        few = f"but {ends.good.num} + {ends.bad.num} seeds are too few to be sure; more seeds (`--seeds {_more_seeds(case)}`)"
        looks = f"the bad end looks worse by {say_number(ends.gap, unit=case.unit)}, {few} would tell"
        return f"{looks}. Measured {steps}: {metric} {_say_both(case)}{bound}."
    return f"the ends do not separate, {steps}: {metric} {_say_both(case)}{bound}."


def _more_seeds(case: Case) -> int:
    return 2 * case.question.limits.max_seeds


def _say_both(case: Case) -> str:
    good, bad = case.ends.good, case.ends.bad
    if good is None or bad is None:
        return "without values"
    sides = [say_spread(part.mean, part.sd if part.num > 1 else None, part.num, unit=case.unit) for part in (good, bad)]
    return f"{sides[0]} at the good end against {sides[1]} at the bad end"


def _say_extent(case: Case) -> str:
    rung = case.question.rung
    steps = "in runs to the end" if rung.steps is None else f"over {say_count(rung.steps, 'step')}"
    return f"{steps} on {say_count(rung.ranks, 'rank')}"


def _helps(case: Case) -> tuple[str, ...]:
    """Return what could show a regression that this probe did not show."""
    rung = case.question.rung
    if not case.runs:
        return ()
    if case.ends.status is EndsStatus.FLAKY:
        more = f"more seeds (`--seeds {_more_seeds(case)}`)"
        return (f"What would help: {more}, or a probe that fails more often (more steps, more ranks), or `--judge CMD`.",)
    helps = [] if rung.steps is None else [f"more steps (`--steps {4 * rung.steps}` or `--steps end`)"]
    helps += [] if case.ends.are_seeds_inert else [f"more seeds (`--seeds {_more_seeds(case)}`)"]
    has_steps = any(run.fingerprint.num_steps for run in case.runs) and case.question.metric.name != "grad_norm"
    helps.append("another metric (`--metric grad_norm`, or one of your log)" if has_steps else "another metric of your log")
    # an unclear answer gives the caveat as its reason already
    caveat = () if case.ends.status is EndsStatus.UNCLEAR else _say_caveat(case)
    text = f"{', '.join(helps[:-1])}, or {helps[-1]}" if len(helps) > 1 else helps[0]
    return (*caveat, f"What would show more: {text}.")
