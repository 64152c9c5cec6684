"""Where two runs of the same seed first differ, rank by rank, and the learning rate of every parameter group there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.verdict.divergence import Divergence, first_divergence


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Learning rates of the parameter groups of one rank at the first step at which they differ: 0-based, (left, right)."""

    rank: int
    step: int
    rates: tuple[tuple[float | None, float | None], ...]


def divergences_by_rank(left: Fingerprint, right: Fingerprint) -> tuple[tuple[int, Divergence | None], ...]:
    """Return (rank, first difference or None) of each rank that both runs have; what only the log shows is left out."""
    found = []
    for a, b in zip(left.ranks, right.ranks, strict=False):
        sides = [replace(run, ranks=(rank,), metrics=()) for run, rank in ((left, a), (right, b))]
        first = first_divergence(sides[0], sides[1])
        found.append((a.rank, replace(first, rank=a.rank) if first else None))
    return tuple(found)


def first_rates(left: Fingerprint, right: Fingerprint) -> GroupRates | None:
    """Return the learning rates where they first differ: the earliest step, then the lowest rank; None where they do not."""
    found = []
    for a, b in zip(left.ranks, right.ranks, strict=False):
        of_right = {step.step: step.lr for step in b.steps}
        for step in a.steps:
            other = of_right.get(step.step)
            if other is not None and step.lr != other:
                found.append(GroupRates(a.rank, step.step, _paired(step.lr, other)))
                break
    return min(found, key=lambda item: (item.step, item.rank), default=None)


def _paired(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[tuple[float | None, float | None], ...]:
    num = max(len(left), len(right))
    sides = [(*side, *[None] * (num - len(side))) for side in (left, right)]
    return tuple(zip(*sides, strict=True))
