"""Other tools, run as they are on the same problems: git-bayesect's class, mlbisect's search, and a model of git's choice.

The first two are found by an ordinary import, or in the folder that BISECT_TRAIN_PEERS names, where they are kept apart:

    python -m pip install --target DIR --no-deps git-bayesect mlbisect

What is not there is None, and its column says "not installed".
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmarks.problems import RateProblem, SureProblem

FOLDER_VARIABLE = "BISECT_TRAIN_PEERS"


def find_peer(name: str) -> Any:
    """Return a module of another tool, None where it is not installed."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and folder not in sys.path:
        sys.path.append(folder)  # last, so that no library of theirs hides one of ours
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@dataclass(frozen=True)
class Stopped:
    """Where a search first reached each level of belief: runs and whether it named the wrong change (or never got there)."""

    runs: tuple[int, ...]
    wrong: tuple[bool, ...]
    rounds: tuple[int, ...] = ()


class Levels:
    """Notes when a belief first reaches each of some levels."""

    def __init__(self, culprit: int, levels: tuple[float, ...]) -> None:
        self._culprit, self._levels = culprit, levels
        self._reached: list[tuple[int, int, bool]] = []

    def note(self, runs: int, rounds: int, top: float, named: int) -> bool:
        """Take in the belief after some runs; return whether every level has been reached."""
        while not self.is_done and top >= self._levels[len(self._reached)]:
            self._reached.append((runs, rounds, named != self._culprit))
        return self.is_done

    @property
    def is_done(self) -> bool:
        """Whether every level has been reached."""
        return len(self._reached) == len(self._levels)

    def stop(self, runs: int, rounds: int) -> Stopped:
        """Return where each level was reached; those that were not count as wrong, at the runs spent."""
        missing = len(self._levels) - len(self._reached)
        rows = [*self._reached, *[(runs, rounds, True)] * missing]
        return Stopped(tuple(row[0] for row in rows), tuple(row[2] for row in rows), tuple(row[1] for row in rows))


def run_bayesect(problem: RateProblem, levels: tuple[float, ...], *, max_runs: int = 600) -> Stopped:
    """Run git-bayesect's class as its command line does: index 0 is the newest commit, the old one is a candidate too."""
    bisector = find_peer("git_bayesect").Bisector(np.ones(problem.num + 1))
    seen = Levels(problem.culprit, levels)
    with np.errstate(all="ignore"):
        for num_runs in range(1, max_runs + 1):
            idx = bisector.select()
            bisector.record(idx, problem.run(problem.num - idx))
            belief = bisector.distribution
            if seen.note(num_runs, num_runs, float(belief.max()), problem.num - int(belief.argmax())):
                break
    return seen.stop(max_runs, max_runs)


def run_mlbisect(problem: RateProblem, *, min_effect: float) -> Stopped:
    """Run mlbisect's own search, each commit an axis, with its run cap lifted and the true gap as its smallest effect."""
    base, search, sampler = (find_peer(f"mlbisect.{name}") for name in ("executors.base", "search", "sampler"))
    axes = tuple(f"a{idx}" for idx in range(1, problem.num + 1))
    culprit, rng = axes[problem.culprit - 1], np.random.default_rng(problem.seed)

    class Executor:
        def run(self, config: Any, seed: int) -> Any:
            rate = problem.rates[culprit in config.axes]
            return base.RunResult(config.axes, seed, float(rng.random() < rate), True, 0.0)

    budget = types.SimpleNamespace(
        max_runs=100_000, baseline_runs=5, min_runs_per_config=3, max_runs_per_config=10, batch_size=2, confidence=0.95
    )
    metric = types.SimpleNamespace(direction="lower_is_better", min_effect=min_effect)
    manifest = types.SimpleNamespace(budget=budget, metric=metric, axis_names=lambda: axes)
    found = search.find_culprits(Executor(), manifest, sampler.AdaptiveSampler(Executor(), manifest))
    return Stopped((found.runs_used,), ([set(group) for group in found.culprit_sets] != [{culprit}],))


def count_mlbisect(num_axes: int) -> tuple[int, bool]:
    """Return how many runs mlbisect's own search takes where one of many axes makes all the difference; is it right, too?

    Runs repeat exactly but for a spread of a hundredth of the gap, so that no run is a surprise.
    """
    base, search, sampler = (find_peer(f"mlbisect.{name}") for name in ("executors.base", "search", "sampler"))
    axes = tuple(f"a{idx}" for idx in range(1, num_axes + 1))
    culprit, rng = axes[2 * num_axes // 3], np.random.default_rng(0)

    class Executor:
        def run(self, config: Any, seed: int) -> Any:
            return base.RunResult(config.axes, seed, float(culprit in config.axes) + 0.01 * rng.normal(), True, 0.0)

    budget = types.SimpleNamespace(
        max_runs=100_000, baseline_runs=5, min_runs_per_config=3, max_runs_per_config=10, batch_size=2, confidence=0.95
    )
    metric = types.SimpleNamespace(direction="lower_is_better", min_effect=0.5)
    manifest = types.SimpleNamespace(budget=budget, metric=metric, axis_names=lambda: axes)
    found = search.find_culprits(Executor(), manifest, sampler.AdaptiveSampler(Executor(), manifest))
    return found.runs_used, [set(group) for group in found.culprit_sets] == [{culprit}]


def run_git(problem: SureProblem) -> tuple[int, int]:
    """Return how many probes git's rule takes, one at a time, and how many suspects it leaves."""
    low, high, probes = 0, problem.num, 0
    skipped: set[int] = set()
    while (inside := [version for version in range(low + 1, high) if version not in skipped]) and high - low > 1:
        version = _choose_as_git(low, high, inside, skipped)
        probes += 1
        if version in problem.broken:
            skipped.add(version)
        elif version >= problem.culprit:
            high = version
        else:
            low = version
    return probes, high - low


def _choose_as_git(low: int, high: int, inside: list[int], skipped: set[int]) -> int:
    """Return git's next commit: best distance first; if the best was skipped, a pseudo-random step down the list.

    Source: skip_away and get_prn of git's bisect.c, as a model.
    """
    best = max(range(low + 1, high), key=lambda version: min(version - low, high - version))
    ranked = sorted(inside, key=lambda version: (-min(version - low, high - version), version))
    if best not in skipped:
        return ranked[0]
    modulo = 32768
    prn = ((len(ranked) * 1103515245 + 12345) // 65536) % modulo
    step = (len(ranked) * prn // modulo) * math.isqrt(prn) // math.isqrt(modulo)
    return ranked[min(step, len(ranked) - 1)]
