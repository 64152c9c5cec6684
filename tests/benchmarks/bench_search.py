"""Rounds and probes of the search against git's choice of commits: goals G1, G2 and G3 of the search study. Run by hand.

    python -m tests.benchmarks.bench_search [--problems 40]

Columns: `contradicted` is the round after which every change that is no longer suspect is contradicted by at least one probe;
`named` is the round at which the belief reaches 0.99 under the cap of ln 1000 per run, or at which the search gives up.
Git's choice is a model: the middle, and beside untestable commits the pseudo-random step of bisect.c (skip_away, get_prn).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.search.line import Line, search_line
from bisect_train.search.terms import Known, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation
from tests.support.observations import LOSS, failed, measured, separated_ends

ENDS = separated_ends(20.0)


@dataclass(frozen=True)
class Cost:
    """What one problem took: rounds and probes until every other change was contradicted, rounds in all, suspects left."""

    contradicted: int
    probes: int
    named: int
    probes_named: int
    suspects: int


def run_version(version: int, seed_idx: int, culprit: int, broken: frozenset[int]) -> Observation:
    """Return what version shows; change `culprit` (from 1) is the first bad one."""
    if version in broken:
        return failed(Point(version), seed_idx)
    side, value = ("b", 20.0) if version >= culprit else ("g", 0.0)
    return measured(Point(version), seed_idx, value, digest=f"{side}:{seed_idx}")


def search_ours(num: int, culprit: int, slots: int, broken: frozenset[int]) -> Cost:
    """Search with slots probes a round until 0.99, or until nothing more is wanted."""
    line, rules = Line(num, Point), Rules(num, EndRules(LOSS))
    observations: list[Observation] = []
    low, high, rounds, first, first_probes = 0, num, 0, 0, 0
    while True:
        belief = search_line(line, rules, Known(observations, slots=slots), ENDS)
        if max(belief.posterior) >= rules.confidence or not belief.wanted:
            return Cost(first, first_probes, rounds, len(observations), high - low)
        rounds, width = rounds + 1, high - low
        for request in belief.wanted[:slots]:
            version = request.point.prefix
            observations.append(run_version(version, request.seed_idx, culprit, broken))
            if version not in broken:
                low, high = (low, min(high, version)) if version >= culprit else (max(low, version), high)
        if high - low < width:
            first, first_probes = rounds, len(observations)


def search_git(num: int, culprit: int, broken: frozenset[int]) -> Cost:
    """Search as git bisect does, one probe at a time."""
    low, high, probes = 0, num, 0
    skipped: set[int] = set()
    while (inside := [version for version in range(low + 1, high) if version not in skipped]) and high - low > 1:
        version = choose_as_git(low, high, inside, skipped)
        probes += 1
        if version in broken:
            skipped.add(version)
        elif version >= culprit:
            high = version
        else:
            low = version
    return Cost(probes, probes, probes, probes, high - low)


def choose_as_git(low: int, high: int, inside: list[int], skipped: set[int]) -> int:
    """Return git's next commit: best distance first; if the best was skipped, a pseudo-random step down the list."""
    best = max(range(low + 1, high), key=lambda version: min(version - low, high - version))
    ranked = sorted(inside, key=lambda version: (-min(version - low, high - version), version))
    if best not in skipped:
        return ranked[0]
    modulo = 32768
    prn = ((len(ranked) * 1103515245 + 12345) // 65536) % modulo
    step = (len(ranked) * prn // modulo) * math.isqrt(prn) // math.isqrt(modulo)
    return ranked[min(step, len(ranked) - 1)]


def draw_broken(rng: np.random.Generator, num: int, *, share: float, run_length: float) -> frozenset[int]:
    """Return untestable versions from a two-state chain with the given share and mean run length; the ends stay testable."""
    leave, enter = 1.0 / run_length, share / (1.0 - share) / run_length
    state, broken = rng.random() < share, set()
    for version in range(1, num):
        state = rng.random() >= leave if state else rng.random() < enter
        if state:
            broken.add(version)
    return frozenset(broken)


def mean_cost(costs: list[Cost]) -> str:
    """Return the means of a list of costs as one row."""
    names = ("contradicted", "probes", "named", "probes_named", "suspects")
    return "".join(f"{np.mean([getattr(cost, name) for cost in costs]):>14.1f}" for name in names)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=40)
    num_problems = parser.parse_args().problems
    print(f"{'goal':<30}{'contradicted':>14}{'probes':>14}{'named':>14}{'probes named':>14}{'suspects':>14}")

    def table(label: str, num: int, solve: Callable[[int, frozenset[int]], Cost], *, share: float = 0.0) -> None:
        rng = np.random.default_rng(num)
        costs = []
        for _ in range(num_problems):
            culprit = int(rng.integers(1, num + 1))
            broken = draw_broken(rng, num, share=share, run_length=8.0) if share else frozenset()
            costs.append(solve(culprit, broken))
        print(f"{label:<30}{mean_cost(costs)}", flush=True)

    for num in (16, 128, 1024, 16384):
        table(f"G1 N={num} k=1", num, lambda culprit, broken, num=num: search_ours(num, culprit, 1, broken))  # type: ignore[misc]
        table(f"   N={num} git", num, lambda culprit, broken, num=num: search_git(num, culprit, broken))  # type: ignore[misc]
    for slots in (2, 4, 8, 16):
        for num in (1024, 16384):
            bound = math.ceil(math.log(num) / math.log(slots + 1) - 1e-9)
            table(
                f"G2 N={num} k={slots} (bound {bound})",
                num,
                lambda culprit, broken, num=num, slots=slots: search_ours(num, culprit, slots, broken),  # type: ignore[misc]
            )
    table("G3 N=1024 20 % untestable", 1024, lambda culprit, broken: search_ours(1024, culprit, 1, broken), share=0.2)
    table("   N=1024 git", 1024, lambda culprit, broken: search_git(1024, culprit, broken), share=0.2)


if __name__ == "__main__":
    main()
