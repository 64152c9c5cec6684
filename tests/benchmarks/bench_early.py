"""Measures how many steps early verdicts save on noisy curves, and how often they are wrong (goal G15).

Run: python -m tests.benchmarks.bench_early [--runs N]
Curves of 100 steps around a rough mean curve. The noise is a random walk, or AR(1) with 0.9; a bad run departs at step 20 and
drifts away, d' about 9 or 10 over the whole run. For each problem the rule is made from 3 + 3 reference runs, as the
coordinator makes it; then good and bad runs are watched by the code that the workers run. A run that is not stopped costs all
its steps and is not wrong. Exits 1 where the goal is missed: at least half of the steps saved on good and on bad runs (random
walk), at most 1 % of the runs stopped for the wrong end.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bisect_train.core.early import CurveRule, CurveWatch
from bisect_train.verdict.early_rules import fit_curves
from bisect_train.verdict.evidence import OFFSET_SD

FloatArray = NDArray[np.float64]
NUM_STEPS, DEPARTURE, NUM_REFERENCES, RUNS_PER_RULE = 100, 20, 3, 4
RHO = 0.9
MIN_SAVED, MAX_WRONG = 0.5, 0.01
MIN_SAVED_AR = 0.25


@dataclass(frozen=True)
class Case:
    """A kind of noise and a shift; `offset_sd` is a variant's own, in standard deviations of the metric over seeds."""

    name: str
    draw: Callable[[np.random.Generator], FloatArray]
    shift_K: FloatArray
    dprime: float
    min_saved: float | None
    offset_sd: float = 0.0


def walk(rng: np.random.Generator) -> FloatArray:
    """Return a random walk with increments of sd 1."""
    return np.cumsum(rng.normal(size=NUM_STEPS))


def autoregressive(rng: np.random.Generator) -> FloatArray:
    """Return stationary AR(1) noise with innovations of sd 1."""
    noise = np.empty(NUM_STEPS)
    noise[0] = rng.normal() / math.sqrt(1.0 - RHO**2)
    for idx in range(1, NUM_STEPS):
        noise[idx] = RHO * noise[idx - 1] + rng.normal()
    return noise


def ramp(slope: float, departure: int = DEPARTURE) -> FloatArray:
    """Return what departs at a step and drifts away, in units of the noise."""
    return slope * np.maximum(0.0, np.arange(NUM_STEPS) - departure)


def dprime_of(shift_K: FloatArray, rho: float) -> float:
    """Return d' of a whole run: the length of the whitened shift."""
    return float(np.linalg.norm(shift_K[1:] - rho * shift_K[:-1]))


def list_cases() -> list[Case]:
    """Return the goal's case first, then others."""

    def case(name: str, draw: Callable[[np.random.Generator], FloatArray], shift: FloatArray, **more: float | None) -> Case:
        return Case(name, draw, shift, dprime_of(shift, 1.0 if draw is walk else RHO), **more)  # type: ignore[arg-type]

    return [
        case("walk (G15)", walk, ramp(1.0), min_saved=MIN_SAVED),
        case("walk, large", walk, ramp(2.0), min_saved=MIN_SAVED),
        case("walk, late", walk, ramp(1.0, 50), min_saved=None),
        case("walk, own offset", walk, ramp(1.0), min_saved=None, offset_sd=OFFSET_SD),
        case("walk, small", walk, ramp(0.5), min_saved=None),
        case("AR", autoregressive, ramp(0.2), min_saved=MIN_SAVED_AR),
        case("AR, small", autoregressive, ramp(0.1), min_saved=None),
    ]


@dataclass
class Tally:
    """What was measured of the runs of one side: share of the steps saved by run, and how many were stopped wrongly."""

    saved: list[float] = field(default_factory=list)
    num_wrong: int = 0

    @property
    def share(self) -> float:
        """Mean share of the steps that was saved, 0 to 1."""
        return float(np.mean(self.saved))

    @property
    def wrong(self) -> float:
        """Share of the runs that was stopped for the wrong end."""
        return self.num_wrong / len(self.saved)


def tail_of(curve_K: FloatArray) -> float:
    """Return the metric of a curve: the mean of its last quarter."""
    return float(np.mean(curve_K[-NUM_STEPS // 4 :]))


def make_rule(case: Case, base_K: FloatArray, rng: np.random.Generator) -> CurveRule | None:
    """Return the rule that fresh reference runs give."""
    good, bad = (
        np.array([base_K + is_bad * case.shift_K + case.draw(rng) for _ in range(NUM_REFERENCES)]) for is_bad in (0, 1)
    )
    tails = [np.array([tail_of(curve) for curve in side]) for side in (good, bad)]
    spread = math.sqrt((tails[0].var(ddof=1) + tails[1].var(ddof=1)) / 2.0)
    # half the smallest effect that counts, one seed sd of the good end
    offset = max(OFFSET_SD * spread, float(tails[0].std(ddof=1)) / 2.0) / abs(tails[1].mean() - tails[0].mean())
    return fit_curves(good, bad, offset=offset)


def watch(rule: CurveRule | None, curve_K: FloatArray) -> tuple[float, float]:
    """Return the share of the steps that is saved, and the nats for BAD of a run that is stopped (else 0)."""
    if rule is None:
        return 0.0, 0.0
    test = CurveWatch(rule)
    for idx, value in enumerate(curve_K[:-1]):
        if nats := test.take(float(value)):
            return 1.0 - (idx + 1) / NUM_STEPS, nats
    return 0.0, 0.0


def measure(case: Case, num_runs: int, seed: int) -> tuple[Tally, Tally, float]:
    """Return the tallies of good and bad runs, and the share of problems in which the rule could be made."""
    rng, tallies, num_rules = np.random.default_rng(seed), (Tally(), Tally()), 0
    num_problems = math.ceil(num_runs / RUNS_PER_RULE)
    sd_of_tail = float(np.std([tail_of(case.draw(rng)) for _ in range(400)]))
    for _ in range(num_problems):
        base = 3.0 * np.exp(-np.arange(NUM_STEPS) / 30.0) + 0.5 * rng.normal(size=NUM_STEPS)
        rule = make_rule(case, base, rng)
        num_rules += rule is not None
        for is_bad, tally in enumerate(tallies):
            for _ in range(RUNS_PER_RULE):
                # a variant's own offset grows as the shift does
                own = case.offset_sd * sd_of_tail * rng.normal() * case.shift_K / tail_of(case.shift_K)
                saved, nats = watch(rule, base + is_bad * case.shift_K + own + case.draw(rng))
                tally.saved.append(saved)
                tally.num_wrong += nats != 0.0 and (nats > 0.0) != bool(is_bad)
    return tallies[0], tallies[1], num_rules / num_problems


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="good runs, and as many bad ones, of each case")
    num_runs = parser.parse_args().runs
    print("| case | d' | rule made | saved: good, bad | wrong: good, bad |\n|---|---|---|---|---|")
    is_missed = False
    for case in list_cases():
        good, bad, made = measure(case, num_runs, seed=1)
        shares = f"{good.share:.0%}, {bad.share:.0%}"
        print(f"| {case.name} | {case.dprime:.1f} | {made:.0%} | {shares} | {good.wrong:.2%}, {bad.wrong:.2%} |", flush=True)
        is_missed |= max(good.wrong, bad.wrong) > MAX_WRONG
        is_missed |= case.min_saved is not None and min(good.share, bad.share) < case.min_saved
    print("goal missed" if is_missed else "goals met: half of the steps saved (walk), at most 1 % wrong")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
