"""Runs where a failure comes and goes: one run decides nothing, so it is told what happened, and how often so far."""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.evidence import failures_and_passes
from bisect_train.verdict.outcome import Observation


def are_rates_compared(ends: Ends) -> bool:
    """Return whether the ends are told apart by how often they fail."""
    is_by_failure = ends.criterion in (Criterion.SYMPTOM, Criterion.JUDGE)
    return ends.status is EndsStatus.SEPARATED and is_by_failure and ends.is_flaky


def say_outcome(seen: Observation, ends: Ends) -> str:
    """Return `failed` or `passed`, "" for a run that says nothing about the failure."""
    num_failed, num_passed = failures_and_passes([seen], ends)
    return "failed" if num_failed else "passed" if num_passed else ""


def say_rate(runs: Sequence[Observation], ends: Ends) -> str:
    """Return how many runs of one variant have failed so far: `3 of 7 fail`."""
    num_failed, num_passed = failures_and_passes(runs, ends)
    return f"{num_failed} of {num_failed + num_passed} fail"
