"""Where nothing was found, in sentences: what is left, what could have been missed, what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bisect_train.coordinator.retelling import CALLED_UNTESTABLE
from bisect_train.core.verdict import Criterion, Evidence, VerdictKind
from bisect_train.report.case import Case
from bisect_train.report.conditions import MEASURED, list_conditions, say_caveat
from bisect_train.report.parts import Wording
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
    with_stop,
)
from bisect_train.search.marks import MARKED_UNTESTABLE
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.proof import NUM_LAST_PAIRS, ClaimStatus

SAID_BY_A_PERSON = (MARKED_UNTESTABLE, CALLED_UNTESTABLE)


def word_candidates(case: Case, kind: str | None) -> Wording:
    """Return the verdict where no change is proved."""
    headlines = {"budget": "Budget spent", "drift": "No single change stands out"}
    headline = headlines.get(case.answer.status, "Not narrowed to one change")
    explanation = [*say_caveat(case)] if case.ends.status is EndsStatus.SEPARATED else []
    for culprit in case.answer.culprits:
        name = name_changes([case.space.changes[idx] for idx in culprit.changes])
        explanation.append(f"Nearest to an answer is {name}, but {'; '.join(list_conditions(case, culprit, kind))}.")
    explanation += _say_power(case)
    if case.ends.status is EndsStatus.SEPARATED:
        explanation += _say_untestable(case)
    if case.answer.status == "budget":
        explanation.append(_say_larger_budget(case))
    if case.ends.status is EndsStatus.SEPARATED:
        differ = "bit by bit" if case.ends.criterion is Criterion.EXACT else "a regression is there"
        explanation.append(f"The ends do differ: {differ}. No change is proved, so none is blamed.")
    return Wording(headline, f"{headline}: {say_left(case)}", tuple(explanation))


def _say_larger_budget(case: Case) -> str:
    limits = case.question.limits
    flags = [*([] if limits.max_probes is None else ["--max-probes N"])]
    flags += [] if limits.gpu_hours is None else ["--budget-gpu-hours H"]
    command = " ".join(["bisect-train resume", *([case.bisection] if case.bisection else []), *flags])
    return f"To go on, give a larger budget: `{command}`; no finished probe is run again."


def _say_untestable(case: Case) -> tuple[str, ...]:
    """Return how many versions could not be tested, and what may help; a patch helps where a program fails."""
    broken = [item for item in case.plan.evidence.values() if item.verdict is VerdictKind.UNTESTABLE]
    by_hand = [item for item in broken if item.reason in SAID_BY_A_PERSON]
    failing = [item for item in broken if item.reason not in SAID_BY_A_PERSON]
    told = [_say_failing(failing)] if failing else []
    if by_hand:
        told.append(f"{say_count(len(by_hand), 'version')} called untestable by hand.")
    return (" ".join([*told, "Changes between them cannot be told apart."]),) if told else ()


def _say_failing(broken: Sequence[Evidence]) -> str:
    reasons = Counter(item.reason for item in broken)
    said = f"{say_count(len(broken), 'version')} could not be tested: {shorten(reasons.most_common(1)[0][0], 100)}"
    more = f" and {say_count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    return f"{said}{more}; `--fixup FILE`, a patch, may make them run."


def _say_power(case: Case) -> tuple[str, ...]:
    """Return what would help where a proof had too few runs for so much noise."""
    is_weak = any(result.status is ClaimStatus.FAILED and result.how in MEASURED for result in case.plan.claims)
    if not is_weak or case.ends.are_seeds_inert or case.ends.criterion is not Criterion.STATISTICAL:
        return ()
    num = 3 * max(case.question.limits.max_seeds, NUM_LAST_PAIRS)
    return (
        f"More seeds (`--seeds {num}`) let the proof use up to {num} fresh runs of each state; more steps may widen the gap.",
    )


def say_left(case: Case) -> str:
    """Return how many changes could be the one, and why it ended."""
    answer, total = case.answer, len(case.space.changes)
    reason = f"{with_stop(answer.reason)} " if case.is_finished else ""
    if not answer.candidates:
        is_open = case.ends.status is EndsStatus.OPEN
        return f"{reason}The ends were not told apart yet." if is_open else reason.rstrip()
    idx, probability = answer.candidates[0]
    name = f"{name_change(case.space.changes[idx])} with {say_share(probability)}"
    if len(answer.candidates) == 1:
        return f"{reason}Of {say_count(total, 'change')}, the most probable is {name}."
    best = f"most probable is {name}" if stands_out([share for _, share in answer.candidates]) else "none stands out"
    return f"{reason}{len(answer.candidates)} of {total} changes could be the one; {best}."


def say_no_regression(case: Case) -> str:
    """Return in one sentence why the bad end is no worse."""
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


def say_not_reproduced(case: Case) -> str:
    """Return how far apart ends lie that do not separate, and what could have been missed."""
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
    if case.question.metric.is_paired:
        return f"{ends.reason}. Measured {steps}: {metric} {_say_both(case)}{bound}."
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


def say_helps(case: Case) -> tuple[str, ...]:
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
    if case.question.metric.is_paired:
        helps.append("a quieter machine")
    else:
        helps.append("another metric (`--metric grad_norm`, or one of your log)" if has_steps else "another metric of your log")
    # an unclear answer gives the caveat as its reason already
    caveat = () if case.ends.status is EndsStatus.UNCLEAR else say_caveat(case)
    text = f"{', '.join(helps[:-1])}, or {helps[-1]}" if len(helps) > 1 else helps[0]
    is_better = case.ends.status is EndsStatus.BETTER
    lower = (
        ("If that is what is wrong with it (too good to be true), `--any-change` finds the change that does it.",)
        if is_better
        else ()
    )
    return (*lower, *caveat, f"What would show more: {text}.")
