"""The ends in words: what was compared, with how many runs, how far apart they lie, what could have been missed."""

from __future__ import annotations

from collections import Counter

from bisect_train.core.secrets import mask_line
from bisect_train.core.verdict import Criterion
from bisect_train.report.case import Case, Run
from bisect_train.report.clocks import say_cpu_time
from bisect_train.report.failing import say_failure
from bisect_train.report.parts import EndPart
from bisect_train.report.words import say_bound, say_count, say_ending, say_metric, say_number, say_share, say_spread
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.evidence import is_metric_fine
from bisect_train.verdict.outcome import OutcomeKind
from bisect_train.verdict.step_costs import MAX_DEFAULT_PERCENT


def describe_end(case: Case, end: str) -> EndPart:
    """Return one end; `end` is good or bad."""
    is_good = end == "good"
    summary = case.ends.good if is_good else case.ends.bad
    config = case.question.good_config if is_good else case.question.bad_config
    commits = case.space.commits
    return EndPart(
        name=end,
        revision=commits.good if is_good else commits.bad,
        config=config.path if config else "",
        mean=summary.mean if summary else None,
        sd=summary.sd if summary and summary.num > 1 else None,
        num=summary.num if summary else 0,
        repeats_bitwise=case.ends.repeats_bitwise,
        ending=_say_endings(runs_of_end(case, end)),
    )


def runs_of_end(case: Case, end: str) -> list[Run]:
    """Return the runs by which an end was judged, without those of a proof."""
    return case.at(case.good_point if end == "good" else case.bad_point, attempt=0)


def _say_endings(runs: list[Run]) -> str:
    counts = Counter(say_ending(run.fingerprint.ending) for run in runs)
    return ", ".join(f"{num} x {text}" for text, num in counts.most_common()) or "not run"


def tell_ends(case: Case) -> tuple[str, ...]:
    """Return how the ends were told apart, in sentences."""
    if not runs_of_end(case, "good") and not runs_of_end(case, "bad"):
        return ("No run of the ends is finished.",)
    if case.is_symptom:
        return _tell_symptom(case)
    if case.ends.good is None or case.ends.bad is None:
        return ()
    return (*_tell_values(case), *_tell_noise(case), *say_cpu_time(case), *_tell_exact(case))


def _tell_symptom(case: Case) -> tuple[str, ...]:
    signature = case.ends.signature
    counts = []
    for end in ("bad", "good"):
        runs = runs_of_end(case, end)
        num = sum(bool(signature) and run.seen.outcome.signature == signature for run in runs)
        counts.append(f"the {end} end in {num} of {say_count(len(runs), 'run')}")
    what = "is judged bad" if case.ends.criterion is Criterion.JUDGE else "fails in the same way"
    failure = "" if case.ends.criterion is Criterion.JUDGE else f" The failure: {say_symptom(case)}."
    if case.question.symptom:
        return (f"Compared: whether a run shows {case.question.symptom}. It does at {counts[0]}, at {counts[1]}.",)
    return (f"Compared: how the program ends. It {what} at {counts[0]}, at {counts[1]}.{failure}",)


def say_symptom(case: Case) -> str:
    """Return the failure of the bad end as its first failing run tells it."""
    for run in runs_of_end(case, "bad"):
        if run.seen.outcome.kind is OutcomeKind.FAILED:
            ending = run.fingerprint.ending
            return run.seen.outcome.reason if ending.is_healthy else say_failure(ending)
    return mask_line(case.ends.signature)


def _tell_values(case: Case) -> tuple[str, ...]:
    ends, unit = case.ends, case.unit
    assert ends.good is not None and ends.bad is not None
    sides = (ends.good, ends.bad)
    good, bad = (say_spread(side.mean, side.sd if side.num > 1 else None, side.num, unit=unit) for side in sides)
    compared = f"Compared: {say_metric(case.question.metric)}. Good end {good}, bad end {bad}."
    if ends.gap == 0.0:
        return compared, "The two means are equal."
    direction = "worse" if ends.gap > 0 else "better"
    verb = "looks" if ends.status is EndsStatus.UNCLEAR else "is"
    times = f", {abs(ends.gap) / ends.spread:.1f} seed standard deviations" if ends.spread and not ends.are_seeds_inert else ""
    return compared, f"The bad end {verb} {direction} by {say_number(abs(ends.gap), unit=unit)}{times}.{_say_p(ends.p_value)}"


def _tell_exact(case: Case) -> tuple[str, ...]:
    """Return what counts by the exact criterion: all bits, and less than these an equal printed metric."""
    if case.ends.criterion is not Criterion.EXACT:
        return ()
    name = case.question.metric.name
    text = "Judged exactly: a run counts for an end where all that was recorded is equal bit for bit, on the same seed."
    if is_metric_fine(case.ends):
        text += (
            f" Where other bits differ, {name} equal to one end to the last digit counts for that end, too, but weighs less."
        )
    return (text,)


def _say_p(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return f" Seeds alone would do this in {say_share(p_value)} of such comparisons." if p_value > 0 else ""


def _tell_noise(case: Case) -> tuple[str, ...]:
    ends, unit = case.ends, case.unit
    told = []
    if ends.repeats_bitwise is not None:
        again = "the same bits" if ends.repeats_bitwise else "other bits"
        told.append(f"The same seed run again gives {again}.")
    if case.are_ends_equal:
        return tuple(told)
    if ends.are_seeds_inert:
        smallest = say_number(ends.min_effect, unit=unit)
        told.append(f"Other seeds change nothing; a worsening under {smallest} counts as harmless (--min-effect sets it).")
    elif ends.min_effect:
        source = _source_of_effect(case)
        told.append(f"Smallest worsening that counts: {say_number(ends.min_effect, unit=unit)} ({source}).")
    if ends.status in (EndsStatus.SAME, EndsStatus.UNCLEAR) and ends.bound is not None and not ends.are_seeds_inert:
        told.append(f"With 95 % confidence the bad end is {say_bound(ends.bound, unit=unit)}.")
    return tuple(told)


def _source_of_effect(case: Case) -> str:
    """Return where the smallest worsening that counts comes from."""
    if case.question.min_effect is not None:
        return "--min-effect"
    if case.question.metric.is_paired and case.ends.min_effect == MAX_DEFAULT_PERCENT:
        return "where --min-effect gives none"
    return "one seed standard deviation of the good end"
