"""The proof of ends where a failure, or a judging command, decides: does the bad end fail, and the good end not?

A failure that comes back with the same signature on each of three seeds while the good end never fails is proved. One that
comes and goes is a rate: looks at 8, 12, 16 and 24 seeds (three times `--seeds` at most), Fisher's exact test, 0.0025 at each
look, together 1 %. A failure with another signature at either end says that something else is broken too: no rate is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import EndRules, EndRun, Ends, EndsStatus
from bisect_train.verdict.outcome import Observation, OutcomeKind, is_blind, signature_of_symptom
from bisect_train.verdict.replicates import order_of, run_of
from bisect_train.verdict.stats import fisher_p

NUM_SYMPTOM_SEEDS = 3
RATE_LOOKS = (8, 12, 16, 24)
RATE_LEVEL = 0.0025  # at each look
RATE_SEEDS_FACTOR = 3  # a rate takes more runs than a mean: seeds per end, at most, in units of `--seeds`
MISSED_ERROR = 0.05


def prove_failing(good: Sequence[Observation], bad: Sequence[Observation], rules: EndRules) -> Ends:
    """Return what the runs of both ends say about a failure, and which runs are needed next.

    Args:
        good, bad: observations of the two ends outside any proof of an answer; seed 0 of both has run.
        rules: what was asked.
    """
    bad, good = (sorted(runs, key=order_of) for runs in (bad, good))
    asked = signature_of_symptom(rules.symptom) if rules.symptom and not rules.has_judge else ""
    shown = [run.outcome.signature for run in bad if run.outcome.signature]
    signature = next((item for item in shown if asked in ("", item)), "")
    if rules.criterion in (Criterion.EXACT, Criterion.STATISTICAL) and not rules.has_judge:
        return Ends(EndsStatus.BAD_UNTESTABLE, signature=signature, reason=bad[0].outcome.reason)
    if broken := find_untestable(good, bad, signature):
        return broken
    criterion = Criterion.JUDGE if rules.has_judge else Criterion.SYMPTOM
    ends = Ends(EndsStatus.OPEN, criterion=criterion, signature=signature)
    if stranger := _find_stranger(good, bad, signature or asked):
        return replace(ends, status=EndsStatus.FLAKY, reason=stranger)
    if not signature:
        return _look_for_failure(bad, ends, rules)
    if wanted := _missing(good, bad, NUM_SYMPTOM_SEEDS):
        return replace(ends, wanted=wanted, reason="does the failure come back?")
    counts = [_counts(runs, signature) for runs in (good, bad)]
    if counts[0][0] == 0 and counts[1][1] == 0:
        reason = f"the bad end fails in {len(bad)} of {len(bad)} runs ({bad[0].outcome.reason}), the good end never"
        ends = replace(ends, good_counts=counts[0], bad_counts=counts[1], gap=1.0)
        return replace(ends, status=EndsStatus.SEPARATED, repeats_bitwise=True, reason=reason)
    return _prove_rates(good, bad, ends, rules)


def find_untestable(good: Sequence[Observation], bad: Sequence[Observation], signature: str = "") -> Ends | None:
    """Return the answer if a seed of either end could not be run at all, or could not have shown this failure."""
    for status, runs in ((EndsStatus.GOOD_UNTESTABLE, good), (EndsStatus.BAD_UNTESTABLE, bad)):
        for run in sorted(runs, key=order_of):
            if run.outcome.kind in (OutcomeKind.UNTESTABLE, OutcomeKind.UNSEEN) or is_blind(run.outcome, signature):
                return Ends(status, reason=f"seed {run.seed_idx}: {run.outcome.reason}")
    return None


def _find_stranger(good: Sequence[Observation], bad: Sequence[Observation], signature: str) -> str:
    """Return the reason if an end fails in another way than the bad end's first failure, else ""."""
    for name, runs in (("bad", bad), ("good", good)):
        for run in runs:
            if run.outcome.signature not in ("", signature):
                return f"the {name} end fails in another way on seed {run.seed_idx}: {run.outcome.reason}"
    return ""


def _look_for_failure(bad: Sequence[Observation], ends: Ends, rules: EndRules) -> Ends:
    """The bad end has not failed yet: look at as many seeds as were allowed before saying so, with what they could miss."""
    num = rules.max_seeds
    wanted = tuple(EndRun(True, seed_idx) for seed_idx in range(num) if run_of(bad, seed_idx, 0) is None)
    if wanted:
        return replace(ends, wanted=wanted, reason="does it ever fail?")
    missed = 1.0 - MISSED_ERROR ** (1.0 / num)  # exact upper bound of a rate after no failure in `num` runs
    said = f"a failure in fewer than {missed:.0%} of the runs could be missed"
    if ends.criterion is Criterion.JUDGE:
        reason = f"the judging command calls both ends good, the bad end in {num} of {num} runs; {said}"
        return replace(ends, status=EndsStatus.SAME, reason=reason)
    does = f"show {rules.symptom}" if rules.symptom else "fail"
    return replace(ends, status=EndsStatus.UNCLEAR, reason=f"the bad end does not {does} in {num} runs; {said}")


def _missing(good: Sequence[Observation], bad: Sequence[Observation], num: int) -> tuple[EndRun, ...]:
    return tuple(
        EndRun(is_bad, seed_idx)
        for seed_idx in range(num)
        for is_bad, runs in ((True, bad), (False, good))
        if run_of(runs, seed_idx, 0) is None
    )


def _counts(runs: Sequence[Observation], signature: str) -> tuple[int, int]:
    """Return failures and passes of distinct seeds."""
    num_failed = sum(run.outcome.signature == signature for run in runs if run.repeat == 0)
    return num_failed, sum(run.repeat == 0 for run in runs) - num_failed


def _prove_rates(good: Sequence[Observation], bad: Sequence[Observation], ends: Ends, rules: EndRules) -> Ends:
    most = max(RATE_SEEDS_FACTOR * rules.max_seeds, RATE_LOOKS[0])
    for look in [look for look in RATE_LOOKS if look <= most]:
        if wanted := _missing(good, bad, look):
            return replace(ends, wanted=wanted, reason="how often does it fail?")
        firsts = ([run for run in runs if run.seed_idx < look] for runs in (good, bad))
        good_counts, bad_counts = (_counts(runs, ends.signature) for runs in firsts)
        gap = (bad_counts[0] - good_counts[0]) / look
        ends = replace(ends, is_flaky=True, good_counts=good_counts, bad_counts=bad_counts, gap=gap)
        said = f"the bad end fails in {bad_counts[0]} of {look} runs, the good end in {good_counts[0]} of {look}"
        p_value = fisher_p(bad_counts, good_counts)
        if p_value <= RATE_LEVEL * rules.level_share:
            return replace(ends, status=EndsStatus.SEPARATED, p_value=p_value, reason=said)
        if fisher_p(good_counts, bad_counts) <= RATE_LEVEL * rules.level_share:
            return replace(ends, status=EndsStatus.BETTER, reason=said)
    return replace(ends, status=EndsStatus.FLAKY, reason=f"{said}: too few to tell their rates apart")
