"""Which node is off where runs do not repeat themselves: what the same variants do on other nodes is what is usual. Pure.

Values:

    y of variant v on node n = mean_v + shift_n + noise

The node is left out without which the others agree best (least pooled spread s within each variant, d degrees of freedom). It
is odd where two of its runs or more lie so far from the others' mean of their variant that chance does that in FAR_LEVEL of the
runs (t_d), while no run of the others does; or where the sum of its differences, without the largest, is that far off by
SHIFT_LEVEL: one run that went astray is no shift.

Failures: the number of its failing runs is far off for a random choice of as many runs of each variant (exact, RATE_LEVEL).

The levels are strict, since the tests are made again after each probe, and for the oddest of several nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

from bisect_train.verdict.stats import t_upper_tail

MIN_DOF = 4
FAR_LEVEL, MIN_FAR = 3e-4, 2
SHIFT_LEVEL, LAST_SHIFT_LEVEL, MIN_SHIFTED = 1e-5, 1e-3, 4  # the second one once, before an answer that blames nothing
RATE_LEVEL = 1e-4
Told = Mapping[str, Sequence[tuple[str, float]]]
"""(node, value) of the runs of each variant; of failures the value is 1 where a run failed, else 0."""


@dataclass(frozen=True, slots=True)
class OddNode:
    """A node that is off.

    Attributes:
        node: the node.
        others: that it was compared with; a single one might as well be the odd one itself.
        how: in words, after the name of the node: `its 5 runs are off by 0.2 on average`.
    """

    node: str
    others: tuple[str, ...]
    how: str


@dataclass(frozen=True, slots=True)
class _Fit:
    """How well the other nodes agree without one: their spread, and the differences of that one from them."""

    node: str
    spread: float
    dof: int
    differences: tuple[tuple[float, int], ...]  # from the others' mean, and how many runs that mean has
    groups: tuple[tuple[int, int], ...]  # of each variant: its own runs, and theirs
    residuals: tuple[tuple[float, int], ...]  # of the others
    others: tuple[str, ...]


def find_odd_values(values: Told, *, shift_level: float = SHIFT_LEVEL) -> OddNode | None:
    """Return the node whose values are off, None where none is; `shift_level` is the error of the test of its sum."""
    fits = [fit for node in _nodes_of(values) if (fit := _fit_without(node, values)) is not None]
    if not fits:
        return None
    best = min(fits, key=lambda fit: fit.spread)
    if not (_has_far_runs(best) or _is_shifted(best, shift_level)):
        return None
    num = len(best.differences)
    shift = math.fsum(difference for difference, _ in best.differences) / num
    how = f"its values in {num} runs are off by {shift:.3g} on average, where others vary by {best.spread:.3g} in a variant"
    return OddNode(best.node, best.others, how)


def find_odd_failures(failures: Told) -> OddNode | None:
    """Return the node on which runs fail more often, or less often, than on the others, None where there is none."""
    found = []
    for node in _nodes_of(failures):
        chances, num_own = np.ones(1), 0
        for runs in failures.values():
            own = [bool(failed) for name, failed in runs if name == node]
            num_failed = sum(bool(failed) for _, failed in runs)
            num_own += sum(own)
            possible = np.arange(len(own) + 1)
            chances = np.convolve(chances, hypergeom.pmf(possible, len(runs), num_failed, len(own)))
        p_value = 2.0 * float(min(chances[: num_own + 1].sum(), chances[num_own:].sum()))
        found.append((p_value, node, num_own))
    p_value, node, num_own = min(found, default=(1.0, "", 0))
    if p_value > RATE_LEVEL:
        return None
    every = [(name, failed) for runs in failures.values() for name, failed in runs]
    elsewhere = [failed for name, failed in every if name != node]
    num = len(every) - len(elsewhere)
    how = f"{num_own} of its {num} runs failed, and {int(sum(elsewhere))} of {len(elsewhere)} elsewhere"
    return OddNode(node, tuple(name for name in _nodes_of(failures) if name != node), how)


def _nodes_of(told: Told) -> list[str]:
    return sorted({node for runs in told.values() for node, _ in runs})


def _fit_without(node: str, values: Told) -> _Fit | None:
    differences: list[tuple[float, int]] = []
    groups: list[tuple[int, int]] = []
    residuals: list[tuple[float, int]] = []
    others: set[str] = set()
    for runs in values.values():
        own = [value for name, value in runs if name == node]
        rest = [value for name, value in runs if name != node]
        if len(rest) < 2:
            continue
        others.update(name for name, _ in runs if name != node)
        mean = math.fsum(rest) / len(rest)
        differences += [(value - mean, len(rest)) for value in own]
        groups.append((len(own), len(rest)))
        residuals += [(value - mean, len(rest)) for value in rest]
    dof = sum(num - 1 for _, num in groups)
    if dof < MIN_DOF or not differences:
        return None
    spread = math.sqrt(math.fsum(residual**2 for residual, _ in residuals) / dof)
    if spread == 0.0:
        return None
    return _Fit(node, spread, dof, tuple(differences), tuple(groups), tuple(residuals), tuple(sorted(others)))


def _has_far_runs(fit: _Fit) -> bool:
    def is_far(difference: float, scale: float) -> bool:
        return 2.0 * t_upper_tail(abs(difference) / (fit.spread * scale), fit.dof) <= FAR_LEVEL

    num_far = sum(is_far(difference, math.sqrt(1.0 + 1.0 / num)) for difference, num in fit.differences)
    return num_far >= MIN_FAR and not any(is_far(difference, math.sqrt(1.0 - 1.0 / num)) for difference, num in fit.residuals)


def _is_shifted(fit: _Fit, level: float) -> bool:
    """Return whether its runs together lie to one side: the variance of their sum is s^2 sum_v (k_v + k_v^2 / m_v)."""
    if len(fit.differences) < MIN_SHIFTED:
        return False
    variance = fit.spread**2 * math.fsum(own + own**2 / rest for own, rest in fit.groups)
    total = math.fsum(sorted((difference for difference, _ in fit.differences), key=abs)[:-1])
    return 2.0 * t_upper_tail(abs(total) / math.sqrt(variance), fit.dof) <= level
