"""Replicates of the two ends: values of distinct seeds, copies left out, and whether the same run repeats bitwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bisect_train.core.question import Metric
from bisect_train.verdict.outcome import Observation, OutcomeKind

MIN_SEEDS = 3  # runs that must agree before seeds without bits to compare count as copies


def worsening(value: float, metric: Metric) -> float:
    """Return the value with the sign that makes larger worse."""
    return value if metric.better == "lower" else -value


def run_of(runs: Sequence[Observation], seed_idx: int, repeat: int) -> Observation | None:
    """Return the run of a seed and repeat, None when there is none."""
    return next((run for run in runs if run.seed_idx == seed_idx and run.repeat == repeat), None)


def order_of(run: Observation) -> tuple[int, int]:
    """Return the key that sorts the runs of one point."""
    return run.seed_idx, run.repeat


@dataclass(frozen=True, slots=True)
class Replicates:
    """Values of distinct seeds (copies left out), signed so that larger is worse, by seed index; and bitwise facts.

    `is_good_inert`, `is_bad_inert`: every other seed of that end is a copy, so that more seeds would tell nothing.
    """

    good: dict[int, float]
    bad: dict[int, float]
    good_digests: dict[int, str]
    bad_digests: dict[int, str]
    repeats_bitwise: bool | None
    is_good_inert: bool
    is_bad_inert: bool

    @property
    def are_seeds_inert(self) -> bool:
        """Whether no seed changes anything at either end."""
        return self.is_good_inert and self.is_bad_inert

    def first(self, num: int) -> Replicates:
        """Return the same with the values of the first `num` distinct seeds."""
        good, bad = (dict(sorted(group.items())[:num]) for group in (self.good, self.bad))
        return replace(self, good=good, bad=bad)


def replicates_of(good: Sequence[Observation], bad: Sequence[Observation], metric: Metric) -> Replicates:
    """Return what the runs of both ends give as replicates."""
    values: list[dict[int, float]] = []
    digests: list[dict[int, str]] = []
    is_inert: list[bool] = []
    for runs in (good, bad):
        measured = [run for run in sorted(runs, key=order_of) if run.outcome.kind is OutcomeKind.MEASURED]
        first_runs = {run.seed_idx: run for run in measured if run.repeat == 0}
        copies = _copies_in(first_runs)
        is_inert.append(0 < len(copies) == len(first_runs) - 1)
        values.append({k: worsening(run.outcome.value or 0.0, metric) for k, run in first_runs.items() if k not in copies})
        digests.append({k: run.outcome.digest for k, run in first_runs.items()})
    repeats_bitwise = _repeats_bitwise(good, bad)
    return Replicates(values[0], values[1], digests[0], digests[1], repeats_bitwise, is_inert[0], is_inert[1])


def _copies_in(first_runs: dict[int, Observation]) -> set[int]:
    """Return the seeds that repeat seed 0: bitwise, or (without bits to compare) all with its very value."""
    origin = first_runs.get(0)
    if origin is None:
        return set()
    others = {idx: run for idx, run in first_runs.items() if idx > 0}
    if not any(run.outcome.digest for run in first_runs.values()):
        is_constant = all(run.outcome.value == origin.outcome.value for run in others.values())
        return set(others) if is_constant and len(first_runs) >= MIN_SEEDS else set()
    return {idx for idx, run in others.items() if run.outcome.digest and run.outcome.digest == origin.outcome.digest}


def _repeats_bitwise(good: Sequence[Observation], bad: Sequence[Observation]) -> bool | None:
    answers = []
    for runs in (good, bad):
        first, again = run_of(runs, 0, 0), run_of(runs, 0, 1)
        if first is None or again is None:
            return None
        answers.append(bool(first.outcome.digest) and first.outcome.digest == again.outcome.digest)
    return all(answers)


def are_all_equal(seen: Replicates) -> bool:
    """Return whether both ends are bitwise equal on every seed that both ran."""
    shared = seen.good_digests.keys() & seen.bad_digests.keys()
    return bool(shared) and all(seen.good_digests[idx] == seen.bad_digests[idx] != "" for idx in shared)
