"""The rungs of a ladder, from the cheapest up, and the error that each may spend."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bisect_train.core.probe import Rung


def make_ladder(steps: Sequence[int | None], ranks: Sequence[int]) -> tuple[Rung, ...]:
    """Return every pair of steps and ranks, the cheapest first: by steps x ranks, of equal ones the fewer ranks.

    Args:
        steps: optimizer steps; None lets the program finish, which costs more than any number.
        ranks: processes of one probe.
    """
    rungs = {Rung(num, count) for num in steps for count in ranks}
    return tuple(sorted(rungs, key=lambda rung: (_cost_of(rung), rung.ranks)))


def _cost_of(rung: Rung) -> tuple[bool, float]:
    return rung.steps is None, float(rung.ranks * (rung.steps or 1))


def level_share(num_rungs: int, idx: int) -> float:
    """Return the share of the error that rung `idx` may spend: a half, a quarter, ...; the last takes the rest of 1."""
    if num_rungs <= 1:
        return 1.0
    return math.ldexp(1.0, -min(idx + 1, num_rungs - 1))
