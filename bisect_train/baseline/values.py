"""A baseline as values: which commit, saved when and why, with its runs by platform."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bisect_train.core.golden import Golden


@dataclass(frozen=True, slots=True)
class Intended:
    """A change that is meant to shift the metric: it is never blamed again."""

    commit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Saved:
    """One saving of a baseline.

    Attributes:
        commit: 40 hex digits.
        date: of the saving, ISO 8601.
        reason: why it was saved or renewed, "" if nobody said.
    """

    commit: str
    date: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A stored baseline.

    Attributes:
        name: letters, digits, `.`, `_`, `-`.
        saved: the newest saving; its commit is the one that the golden values are of.
        history: savings before it, the oldest first.
        command: training command, for a person.
        metric: name of the primary metric, and how a run's values are reduced.
        golden: runs, one entry a platform, rung and way of measuring.
        intended: changes that are meant to shift the metric.
    """

    name: str
    saved: Saved
    command: tuple[str, ...]
    metric: tuple[str, str]
    golden: tuple[Golden, ...]
    history: tuple[Saved, ...] = ()
    intended: tuple[Intended, ...] = ()

    def with_platform(self, golden: Golden) -> Baseline:
        """Return the baseline with the runs of one platform added, or put in the place of those it had."""
        others = tuple(item for item in self.golden if platform_of(item) != platform_of(golden))
        return replace(self, golden=(*others, golden))

    def renewed(self, saved: Saved, golden: Golden, intended: Iterable[Intended] = ()) -> Baseline:
        """Return the baseline of another commit: the runs of the old one go, what was saved when stays."""
        known = {item.commit for item in self.intended}
        new = tuple(item for item in intended if item.commit not in known)
        return replace(
            self, saved=saved, golden=(golden,), history=(*self.history, self.saved), intended=(*self.intended, *new)
        )


def platform_of(golden: Golden) -> tuple[str, ...]:
    """Return what the runs of a baseline hold for, the variant aside."""
    return golden.rung, golden.measure, golden.hardware_class, golden.interpreter, golden.recorder


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation of at least one value; 0 of one."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0
