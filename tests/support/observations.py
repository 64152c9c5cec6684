"""Observations of the ends and of variants, written short."""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind
from bisect_train.verdict.stats import Summary

LOSS = Metric()


def measured(
    point: Point, seed_idx: int, value: float, *, digest: str = "", repeat: int = 0, attempt: int = 0, proof_of: int = -1
) -> Observation:
    """Return a run with a value."""
    outcome = Outcome(OutcomeKind.MEASURED, value=value, digest=digest)
    return Observation(point, seed_idx, repeat, attempt, proof_of, outcome)


def failed(point: Point, seed_idx: int, signature: str = "boom", *, attempt: int = 0, repeat: int = 0) -> Observation:
    """Return a run that failed with a signature."""
    outcome = Outcome(OutcomeKind.FAILED, signature=signature, reason=signature)
    return Observation(point, seed_idx, repeat, attempt, -1, outcome)


def untestable(point: Point, seed_idx: int, *, attempt: int = 0) -> Observation:
    """Return a run that says nothing."""
    return Observation(point, seed_idx, 0, attempt, -1, Outcome(OutcomeKind.UNTESTABLE, reason="lost"))


def end_runs(point: Point, values: Sequence[float], *, name: str = "", repeats: bool = True) -> list[Observation]:
    """Return one run per seed and the repeat of seed 0; `name` gives them bits of their own, "" leaves them without."""
    runs = [measured(point, idx, value, digest=f"{name}:{idx}" if name else "") for idx, value in enumerate(values)]
    again = (f"{name}:0" if repeats else f"{name}:again") if name else ""
    return [*runs, measured(point, 0, values[0], digest=again, repeat=1)]


def separated_ends(gap: float = 8.0, *, spread: float = 1.0, criterion: Criterion = Criterion.STATISTICAL) -> Ends:
    """Return proved ends, good at 0 and bad at `gap`, with bits g:seed and b:seed."""
    return Ends(
        EndsStatus.SEPARATED,
        criterion=criterion,
        repeats_bitwise=True,
        good=Summary(0.0, spread, 5),
        bad=Summary(gap, spread, 5),
        spread=spread,
        gap=gap,
        min_effect=spread,
        good_digests={idx: f"g:{idx}" for idx in range(5)},
        bad_digests={idx: f"b:{idx}" for idx in range(5)},
        signature="boom" if criterion is Criterion.SYMPTOM else "",
    )
