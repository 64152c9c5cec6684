"""Seeded problems of the search study: the same culprit and the same outcomes whatever method is run on them.

Versions 0..N, 0 known good, N known bad; the culprit c (1..N) is the first bad version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.outcome import Observation
from tests.support.observations import LOSS, end_runs, failed, measured, separated_ends

SURE_ENDS = separated_ends(20.0)
FIRST_RATE_SEED = 99_000
FIRST_VALUE_SEED = 1_000


class SureProblem:
    """Every run repeats bitwise; some versions cannot be tested, in runs of a given mean length."""

    def __init__(self, num: int, culprit: int, broken: frozenset[int]) -> None:
        self.num, self.culprit, self.broken = num, culprit, broken

    @staticmethod
    def draw_many(num: int, how_many: int, *, share: float = 0.0, run_length: float = 8.0) -> list[SureProblem]:
        """Return problems with culprits drawn at random and, with a share, untestable versions from a two-state chain."""
        rng, problems = np.random.default_rng(11), []
        for _ in range(how_many):
            culprit = int(rng.integers(1, num + 1))
            problems.append(SureProblem(num, culprit, _draw_broken(rng, num, share, run_length) if share else frozenset()))
        return problems

    def run(self, version: int, seed_idx: int) -> Observation:
        """Return what a run of a version shows."""
        if version in self.broken:
            return failed(Point(version), seed_idx)
        side, value = ("b", 20.0) if version >= self.culprit else ("g", 0.0)
        return measured(Point(version), seed_idx, value, digest=f"{side}:{seed_idx}")


def _draw_broken(rng: np.random.Generator, num: int, share: float, run_length: float) -> frozenset[int]:
    leave, enter = 1.0 / run_length, share / (1.0 - share) / run_length
    is_broken, broken = rng.random() < share, set()
    for version in range(1, num):
        if is_broken:
            broken.add(version)
        is_broken = rng.random() >= leave if is_broken else rng.random() < enter
    return frozenset(broken)


class RateProblem:
    """Runs fail with one rate below the culprit and another from it on; the j-th run of a version is the same for all methods.

    The draws are those of the study's paired table: seed 99000 + t for problem t.
    """

    num_runs = 500

    def __init__(self, num: int, good_rate: float, bad_rate: float, seed: int) -> None:
        rng = np.random.default_rng(FIRST_RATE_SEED + seed)
        self.num, self.rates, self.seed = num, (good_rate, bad_rate), seed
        self.culprit = int(rng.integers(1, num + 1))
        self._uniform = rng.random((num + 1, self.num_runs))
        self._num_done = [0] * (num + 1)

    def run(self, version: int) -> bool:
        """Return whether the next run of a version fails."""
        draw = self._uniform[version, self._num_done[version] % self.num_runs]
        self._num_done[version] += 1
        return bool(draw < self.rates[version >= self.culprit])

    def history(self, num_good: int, num_bad: int) -> dict[int, tuple[int, int]]:
        """Return failures and passes of old runs of the two ends, by version."""
        rng = np.random.default_rng(FIRST_RATE_SEED + self.seed + 10**6)
        fails = int(rng.binomial(num_good, self.rates[0])), int(rng.binomial(num_bad, self.rates[1]))
        return {0: (fails[0], num_good - fails[0]), self.num: (fails[1], num_bad - fails[1])}


class ValueProblem:
    """Values with unit spread, the bad side worse by `gap`; the ends are known from a few seeds each."""

    num_seeds = 64

    def __init__(self, num: int, gap: float, seed: int) -> None:
        rng = np.random.default_rng(FIRST_VALUE_SEED + seed)
        self.num, self.gap, self.culprit = num, gap, int(rng.integers(1, num + 1))
        self._noise = rng.normal(size=(num + 1, self.num_seeds))

    def value(self, version: int, seed_idx: int) -> float:
        """Return the metric of a version on a seed."""
        return float(self._noise[version, seed_idx] + (self.gap if version >= self.culprit else 0.0))

    def run(self, version: int, seed_idx: int) -> Observation:
        """Return a run without bits."""
        return measured(Point(version), seed_idx, self.value(version, seed_idx))

    def ends(self, num_seeds: int) -> Ends:
        """Return the ends as `num_seeds` runs of each show them, taken as proved however few they are."""
        good, bad = ([self.value(version, idx) for idx in range(num_seeds)] for version in (0, self.num))
        shown = prove_ends(end_runs(Point(0), good), end_runs(Point(self.num), bad), EndRules(LOSS, max_seeds=num_seeds))
        return replace(shown, status=EndsStatus.SEPARATED, wanted=())


class SetProblem:
    """Free changes 0..num - 1 in the order of what they need: sick with all changes of any culprit, invalid with an open need.

    Attributes:
        culprits: sets of changes; any of them is enough.
        needs: (change, earlier change that it needs).
        coupled: two changes that are valid together only, or ().
    """

    def __init__(self, num: int, culprits: frozenset[frozenset[int]], needs: tuple[tuple[int, int], ...] = ()) -> None:
        self.num, self.culprits, self.needs = num, culprits, needs
        self.coupled: tuple[int, ...] = ()

    @staticmethod
    def draw(num: int, kind: str, seed: int, *, num_needs: int = 0) -> SetProblem:
        """Return a problem of a kind: one, pair, triple, two (independent ones), or "pair or one"."""
        rng = np.random.default_rng(1000 * seed + num)
        order = [int(idx) for idx in rng.permutation(num)]
        groups = {
            "one": [order[:1]],
            "pair": [order[:2]],
            "triple": [order[:3]],
            "two": [order[:1], order[1:2]],
            "pair or one": [order[:2], order[2:3]],
        }[kind]
        pairs = [rng.permutation(num)[:2] for _ in range(num_needs)]
        needs = tuple((int(max(pair)), int(min(pair))) for pair in pairs)
        return SetProblem(num, frozenset(frozenset(group) for group in groups), needs)

    @property
    def guilty(self) -> set[int]:
        """All changes of all culprits."""
        return {idx for group in self.culprits for idx in group}

    def is_bad(self, holds: Callable[[int], bool]) -> bool:
        """Return whether a set of changes is sick."""
        return any(all(holds(idx) for idx in group) for group in self.culprits)

    def is_invalid(self, holds: Callable[[int], bool]) -> bool:
        """Return whether the program refuses a set of changes."""
        is_torn = len({holds(idx) for idx in self.coupled}) > 1
        return is_torn or any(holds(idx) and not holds(needed) for idx, needed in self.needs)
