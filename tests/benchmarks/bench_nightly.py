"""Measures how often nights without a regression find one, and after how many nights a slow drift is seen.

Run: python -m tests.benchmarks.bench_nightly [--watches N] [--histories N]
Nights are those of `bisect_train.nightly` in a simulated world: every night a new commit with bits of its own, normal noise
over seeds, the ends proved by the real rules, a pinned commit beside the last good one, the test of the history on top. No
change of a commit is ever proved here, so that each finding rests on the ends. A false finding is one that is told although no
commit changes the metric. Exits 1 where more are found than docs/nightly.md claims: 0.5 % of the nights in all, 0.1 % by the
history alone, whose first false alarm comes after at least 500 nights on average.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bisect_train.nightly.drift import ALPHA, MAX_NIGHTS, MIN_NIGHTS, order_p
from bisect_train.nightly.finding import FindingKind, FindingState
from tests.support.simulated_nights import Nights, Runs, World, name_of

NIGHTS_PER_WATCH = 60
MAX_FALSE, MAX_FALSE_DRIFT, MIN_NIGHTS_TO_FALSE = 0.005, ALPHA, 1 / (2 * ALPHA)
MAX_WAIT = 150


@dataclass(frozen=True)
class Case:
    """A world without a regression; noise in seed standard deviations, `min_effect` in the same."""

    name: str
    min_effect: float
    seed_noise: float = 0.0
    commit_noise: float = 0.0
    copies: int = 0  # of so many commits in a row one has bits of its own


CASES = (
    Case("seeds only", 1.0),
    Case("a seed moves all commits alike", 1.0, seed_noise=1.0),
    Case("each commit with an offset of 0.2", 1.0, commit_noise=0.2),
    Case("two of three commits change no bits", 1.0, copies=3),
    Case("the smallest effect is half a seed sd", 0.5),
)


def watch_of(case: Case, seed: int, *, level_of: Callable[[int], float] = lambda idx: 0.0, pinned: bool = True) -> Nights:
    """Return a watch of a world."""
    is_copy = (lambda idx: idx % case.copies != 0) if case.copies else (lambda idx: False)
    world = World(level_of, 1.0, case.seed_noise, case.commit_noise, is_copy=is_copy, seed=seed)
    nights = Nights(world, runs=Runs(world, min_effect=case.min_effect))
    nights.pinned = 0 if pinned else None
    return nights


def count_false(case: Case, num_watches: int) -> tuple[int, Counter[FindingKind], int]:
    """Return the number of nights, the false findings by kind, and the nights whose last good commit moved on."""
    num_nights, num_moved, found = 0, 0, Counter[FindingKind]()
    for seed in range(num_watches):
        nights = watch_of(case, seed)
        for idx in range(NIGHTS_PER_WATCH):
            report = nights.night(idx, first_good=name_of(0))
            num_moved += report.state.goods[-1] == name_of(idx)
        num_nights += NIGHTS_PER_WATCH
        found.update(finding.kind for finding in nights.place.got if finding.state is FindingState.OPEN)
    return num_nights, found, num_moved


def nights_to_false_alarm(num_histories: int, limit: int) -> tuple[int, int]:
    """Return the nights that were tested without a drift, and the first alarms among them; each history ends with its alarm."""
    num_nights = num_alarms = 0
    for seed in range(num_histories):
        means_N = np.random.default_rng([7, seed]).normal(size=limit)
        for num in range(MIN_NIGHTS, limit + 1):
            num_nights += 1
            if order_p(means_N[max(0, num - MAX_NIGHTS) : num])[1] <= ALPHA:
                num_alarms += 1
                break
    return num_nights, num_alarms


def nights_until_seen(slope: float, seed: int, *, pinned: bool) -> tuple[int | None, str]:
    """Return after how many nights a drift of `slope` seed sd a night is told, None if not, and as what."""
    nights = watch_of(Case("drift", 1.0), seed, level_of=lambda idx: slope * idx, pinned=pinned)
    for idx in range(1, MAX_WAIT):
        nights.night(idx, first_good=name_of(0))
        if nights.place.got:
            return idx, nights.place.got[0].kind.value
    return None, ""


def print_false(num_watches: int) -> bool:
    """Print the false findings; return whether they stay under what is claimed."""
    print(f"without a regression, {num_watches} watches of {NIGHTS_PER_WATCH} nights a row; findings a night")
    is_met = True
    for case in CASES:
        num_nights, found, num_moved = count_false(case, num_watches)
        kinds = ", ".join(f"{kind.value} {num}" for kind, num in sorted(found.items())) or "none"
        rate = sum(found.values()) / num_nights
        print(f"  {case.name:<40} {100 * rate:5.2f} %  ({kinds}); last good moved on in {100 * num_moved / num_nights:.0f} %")
        is_met &= rate <= MAX_FALSE
    return is_met


def print_alarms(num_histories: int, limit: int) -> bool:
    """Print how often the history alarms without a drift; return whether that stays under what is claimed."""
    num_nights, num_alarms = nights_to_false_alarm(num_histories, limit)
    rate = num_alarms / num_nights
    mean = f"{1 / rate:.0f}" if num_alarms else f"over {num_nights}"
    print(f"history alone: {num_alarms} first alarms in {num_nights} nights, {100 * rate:.3f} % a night; nights to one: {mean}")
    return rate <= MAX_FALSE_DRIFT and (not num_alarms or 1 / rate >= MIN_NIGHTS_TO_FALSE)


def print_delays(num_watches: int) -> None:
    """Print after how many nights a drift is seen."""
    print("a drift of so many seed sd a night is told after (median nights, how much worse by then)")
    for slope in (0.05, 0.1, 0.2):
        for pinned in (False, True):
            seen = [nights_until_seen(slope, seed, pinned=pinned) for seed in range(num_watches)]
            times = [math.inf if num is None else num for num, _ in seen]
            middle = float(np.median(times))
            kinds = Counter(kind for _, kind in seen)
            how = "with a pinned commit" if pinned else "by last good and history"
            print(f"  {slope:4.2f}  {how:<26} {middle:5.0f} nights, {slope * middle:.1f} sd; told as {dict(kinds)}")


def main() -> int:
    """Print the tables; return 1 where a claim is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--watches", type=int, default=8)
    parser.add_argument("--histories", type=int, default=10)
    parser.add_argument("--limit", type=int, default=400)
    args = parser.parse_args()
    is_met = print_false(args.watches)
    is_met &= print_alarms(args.histories, args.limit)
    print_delays(max(3, args.watches // 4))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
