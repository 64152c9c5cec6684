"""What an isolated change leaves unexplained: is the state before it worse than the good end, the bad end worse than it?

    left  = mean(before the change) - mean(good end)        right = mean(bad end) - mean(with the change)

Two-sample t tests with the spread pooled over the four groups, 1 % each: they only tell where to look further, a second culprit
needs ends and a proof of its own. A significant `right` below zero is a later improvement that hides part of the worsening.

And where one change was not found: are the versions between the last good and the first bad one a level of their own?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from bisect_train.verdict.stats import permutation_p, pooled_sd, summarise, t_upper_tail

REST_LEVEL = 0.01
STEP_LEVEL = 0.005
PLATEAU_LEVEL = 0.001
PLATEAU_SHARE = 0.03  # of the gap that a level of its own must keep from both ends, and one standard deviation at least
MIN_PLATEAU_RUNS = 4


@dataclass(frozen=True, slots=True)
class Rest:
    """A difference that a change leaves: positive is worse, in the metric's unit; and the p of its sign."""

    size: float
    p_value: float

    @property
    def is_worse(self) -> bool:
        """Whether something else made it worse there."""
        return self.size > 0 and self.p_value <= REST_LEVEL

    @property
    def is_better(self) -> bool:
        """Whether something improved there."""
        return self.size < 0 and self.p_value <= REST_LEVEL


@dataclass(frozen=True, slots=True)
class Levels:
    """Values, signed so that larger is worse: of the good end, just before a change, with it, of the bad end."""

    good: Sequence[float]
    before: Sequence[float]
    with_it: Sequence[float]
    bad: Sequence[float]


def rest_of(levels: Levels) -> tuple[Rest, Rest]:
    """Return what is left on the side of the good end, and on that of the bad end; all groups have a value."""
    sd, dof = pooled_sd([levels.good, levels.before, levels.with_it, levels.bad])
    return _difference(levels.good, levels.before, sd, dof), _difference(levels.with_it, levels.bad, sd, dof)


def _difference(low: Sequence[float], high: Sequence[float], sd: float, dof: int) -> Rest:
    size = summarise(high).mean - summarise(low).mean
    if dof < 1:
        return Rest(size, 1.0)
    if sd == 0.0:
        return Rest(size, 0.0 if size else 1.0)
    return Rest(size, t_upper_tail(abs(size) / (sd * math.sqrt(1 / len(low) + 1 / len(high))), dof))


def is_step(before: Sequence[float], with_it: Sequence[float]) -> bool:
    """Return whether fresh runs show that a change makes it worse at all, be it by less than half the gap: permutation test."""
    return min(len(before), len(with_it)) > 1 and permutation_p(before, with_it) <= STEP_LEVEL


def is_plateau(good: Sequence[float], groups: Sequence[Sequence[float]], bad: Sequence[float]) -> bool:
    """Return whether the versions in between are one level, unlike both ends.

    Args:
        good, bad: values of the ends, signed so that larger is worse.
        groups: the values of each version in between.
    """
    inside = [value for group in groups for value in group]
    if len(inside) < MIN_PLATEAU_RUNS:
        return False
    low, high = (summarise(end).mean for end in (good, bad))
    sd, dof = pooled_sd([good, *groups, bad])
    middle, least = summarise(inside).mean, max(PLATEAU_SHARE * abs(high - low), sd)
    if not (middle - low >= least and high - middle >= least):
        return False
    apart = [_difference(good, inside, sd, dof), _difference(inside, bad, sd, dof)]
    return all(rest.p_value <= PLATEAU_LEVEL for rest in apart) and not _varies(groups, sd, dof)


def _varies(groups: Sequence[Sequence[float]], sd: float, dof: int) -> bool:
    """Return whether the groups' means differ by more than their spread explains: F test, 1 %."""
    if len(groups) < 2 or dof < 1:
        return False
    grand = summarise([value for group in groups for value in group]).mean
    between = math.fsum(len(group) * (summarise(group).mean - grand) ** 2 for group in groups) / (len(groups) - 1)
    if sd == 0.0:
        return between > 0.0
    return float(special.fdtrc(len(groups) - 1, dof, between / sd**2)) <= REST_LEVEL
