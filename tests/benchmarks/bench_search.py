"""The search against git's choice of commits, git-bayesect and mlbisect: the same seeded problems, one table. Run by hand.

    python -m tests.benchmarks.bench_search [--problems 200] [--only G1,G5] [--processes 2]

Columns: what our search took, the goal (not to be exceeded), whether it is met, what the others took on the same problems, and
the bound. "a | b" is the run at which the belief first reached 0.95 | 0.99; "(w)" counts wrong answers, searches that never
reached the level among them. How to install the other tools: tests/benchmarks/peers.py. The settings are those of the search
study; the goals' figures stand in GOALS.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from tests.benchmarks import speed
from tests.benchmarks.peers import Stopped, find_peer, run_bayesect, run_git, run_mlbisect
from tests.benchmarks.problems import RateProblem, SureProblem, ValueProblem
from tests.benchmarks.searches import Cost, search_rates, search_sure, search_values
from tests.benchmarks.second_shift import rows_of_second_shift

LEVELS = (0.95, 0.99)
RATES = ((0.0, 1.0), (0.05, 0.95), (0.0, 0.5), (0.1, 0.7), (0.2, 0.8))
HISTORY = (20, 5)  # runs of the good and the bad end that are known already
MAX_WRONG_SHARE = 0.025  # of G5: 5 of 200
NUM_MLBISECT = {16: 40, 128: 15}  # problems that it is run on, at most
WORKERS = (1, 2, 4, 8, 16)
SIZES = (16, 128, 1024, 16384)
GOALS: dict[str, tuple[float, ...]] = {
    "G1": (4, 7, 10, 14),
    "G5": (15, 20.5, 60, 57, 62),
    "G6": (11, 16, 41, 48, 50),
    "G7": (3.2, 4.1, 8, 7.8, 9.2),
    "G8": (11.5, 14.5, 46, 45.5, 46),
    "G9": (32, 15.5, 13.3),
}
G2_GOALS = {1024: (7, 5, 4, 3), 16384: (9, 7, 5, 4)}
GAPS = (2.0, 4.0, 8.0)
NEEDED_SEEDS = {2.0: 8, 4.0: 5, 8.0: 5}  # per end, before the product takes ends this far apart as proved

Row = tuple[str, str, str, str, str]
Map = Callable[[Callable[..., object], Sequence[object]], Iterator[object]]


def verdict(value: float, goal: float, *, is_safe: bool = True) -> str:
    """Return whether a goal is met, and by how much not; means are compared as they are printed, to a tenth."""
    over = round(value, 1) - goal
    if over > 1e-9:
        return f"**no**, {over:+.1f} ({over / goal:+.0%})"
    return "yes" if is_safe else "**no**: too many wrong"


def mean_and_wrong(results: Sequence[Stopped], field: str = "runs") -> str:
    """Return the means at every level, with the number of wrong answers."""
    means = np.mean([getattr(result, field) for result in results], axis=0)
    wrong = np.sum([result.wrong for result in results], axis=0)
    return " \\| ".join(f"{mean:.1f} ({num})" for mean, num in zip(means, wrong, strict=True))


def bound_of_rates(num: int, good: float, bad: float, level: float) -> float:
    """Return the fewest runs in the mean, rates known: ((1 - e) log2 N - h(e)) / capacity."""
    share = np.linspace(0.0, 1.0, 20001)
    information = _h(share * bad + (1 - share) * good) - share * _h(bad) - (1 - share) * _h(good)
    error = 1.0 - level
    return float((level * math.log2(num) - _h(error)) / information.max())


def _h(p: float | np.ndarray) -> np.ndarray:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


# ---- deterministic: G1 to G4 ------------------------------------------------------------------------------------------------


def _solve_sure(slots: int, problem: SureProblem) -> Cost:
    return search_sure(problem, slots)


def _mean(costs: Sequence[Cost], field: str) -> float:
    return float(np.mean([getattr(cost, field) for cost in costs]))


def rows_of_sure(num_problems: int, each: Map) -> Iterator[Row]:
    """Yield rounds of deterministic searches: every number of workers, beside git's rule one probe at a time."""
    for size in SIZES:
        problems = SureProblem.draw_many(size, num_problems if size < 2000 else max(1, num_problems // 4))
        git = np.mean([run_git(problem) for problem in problems], axis=0)[0]
        for slots in WORKERS:
            costs = list(each(partial(_solve_sure, slots), problems))
            bound = math.ceil(math.log(size) / math.log(slots + 1) - 1e-9)
            goal = bound if slots == 1 else dict(zip(WORKERS[1:], G2_GOALS.get(size, ()), strict=False)).get(slots)
            rounds = _mean(costs, "rounds")
            name = "G1" if slots == 1 else "G2" if goal else ""
            found = (
                f"{rounds:.1f} rounds ({_mean(costs, 'probes'):.1f} probes); 0.99 after {_mean(costs, 'rounds_named'):.1f} "
                f"({_mean(costs, 'probes_named'):.1f})"
            )
            met = f"{goal}: {verdict(rounds, goal)}" if goal else ""
            yield name, f"deterministic, N = {size}, k = {slots}", found, met, f"git {git:.1f}; bound {bound}"


def rows_of_untestable(num_problems: int, each: Map) -> Iterator[Row]:
    """Yield probes and suspects where a fifth of the versions cannot be tested."""
    for name, run_length, most, suspects in (("G3", 8.0, 14.0, 6.0), ("G4", 50.0, 14.5, 29.0)):
        problems = SureProblem.draw_many(1024, num_problems, share=0.2, run_length=run_length)
        costs = list(each(partial(_solve_sure, 1), problems))
        git = np.mean([run_git(problem) for problem in problems], axis=0)
        probes, left = _mean(costs, "probes_open"), _mean(costs, "suspects")
        found = f"{probes:.1f} probes, {left:.1f} suspects; with repeats of failed ones {_mean(costs, 'probes_named'):.1f}"
        met = f"{most}, {suspects:.0f}: {verdict(probes, most, is_safe=left <= suspects)}"
        setting = f"20 % untestable in runs of ~{run_length:.0f}, N = 1024, k = 1"
        yield name, setting, found, met, f"git {git[0]:.1f} probes, {git[1]:.1f} suspects"


# ---- failure rates: G5 to G8 ------------------------------------------------------------------------------------------------


def _solve_rates(
    size: int, rates: tuple[float, float], slots: int, history: tuple[int, int], levels: tuple[float, ...], seed: int
) -> Stopped:
    return search_rates(RateProblem(size, *rates, seed), slots, levels, history=history)


def _solve_bayesect(size: int, rates: tuple[float, float], seed: int) -> Stopped:
    return run_bayesect(RateProblem(size, *rates, seed), LEVELS)


def _solve_mlbisect(size: int, rates: tuple[float, float], seed: int) -> Stopped:
    return run_mlbisect(RateProblem(size, *rates, seed), min_effect=rates[1] - rates[0])


def _say_peers(size: int, rates: tuple[float, float], num_problems: int, each: Map) -> str:
    said = "git-bayesect not installed"
    if find_peer("git_bayesect"):
        said = f"git-bayesect {mean_and_wrong(list(each(partial(_solve_bayesect, size, rates), range(num_problems))))}"
    if not find_peer("mlbisect"):
        return f"{said}; mlbisect not installed"
    num = min(num_problems, NUM_MLBISECT[size])
    ml = list(each(partial(_solve_mlbisect, size, rates), range(num)))
    return f"{said}; mlbisect {mean_and_wrong(ml)} of {num}"


def rows_of_rates(num_problems: int, each: Map) -> Iterator[Row]:
    """Yield runs where a failure comes by chance, its rates unknown: without and with known old runs of the ends."""
    for name, size, history in (("G5", 128, (0, 0)), ("G6", 128, HISTORY), ("G8", 16, (0, 0))):
        for rates, goal in zip(RATES, GOALS[name], strict=True):
            solve = partial(_solve_rates, size, rates, 1, history, LEVELS)
            results = list(each(solve, range(num_problems)))
            runs, wrong = np.mean([r.runs for r in results], axis=0)[1], sum(r.wrong[1] for r in results)
            met = f"{goal}: {verdict(runs, goal, is_safe=name != 'G5' or wrong <= MAX_WRONG_SHARE * num_problems)}"
            old = "" if history == (0, 0) else f", {history[0]} good and {history[1]} bad runs known"
            peers = _say_peers(size, rates, num_problems, each) if history == (0, 0) else "git-bayesect as in G5"
            bounds = " \\| ".join(f"{bound_of_rates(size, *rates, level):.1f}" for level in LEVELS)
            yield name, f"rates {rates}, N = {size}{old}", mean_and_wrong(results), met, f"{peers}; bound {bounds}"


def rows_of_rate_batches(num_problems: int, each: Map) -> Iterator[Row]:
    """Yield rounds to 0.95 with several workers."""
    for idx, rates in enumerate(RATES):
        for slots in WORKERS:
            few = num_problems if slots in (1, 8) else max(1, num_problems * 2 // 5)  # batches of 16 take long
            results = list(each(partial(_solve_rates, 128, rates, slots, (0, 0), LEVELS[:1]), range(few)))
            rounds = float(np.mean([result.rounds[0] for result in results]))
            met = f"{GOALS['G7'][idx]}: {verdict(rounds, GOALS['G7'][idx])}" if slots == 8 else ""
            found = f"{rounds:.1f} rounds, {mean_and_wrong(results)} runs"
            yield "G7" if slots == 8 else "", f"rates {rates}, N = 128, k = {slots}, to 0.95", found, met, ""


# ---- values: G9, G10 --------------------------------------------------------------------------------------------------------


def _solve_values(gap: float, slots: int, num_seeds: int, is_offset_free: bool, seed: int) -> tuple[Stopped, bool | None]:
    problem = ValueProblem(128, gap, seed)
    return search_values(problem, slots, LEVELS[:1], num_end_seeds=num_seeds, is_offset_free=is_offset_free)


def rows_of_values(num_problems: int, each: Map) -> Iterator[Row]:
    """Yield runs (those of the ends included) and rounds to 0.95 for a shift of the mean, in seed standard deviations."""
    for gap, goal in zip(GAPS, GOALS["G9"], strict=True):
        for slots in WORKERS:
            for num_seeds in (3, NEEDED_SEEDS[gap]) if slots == 1 else (3,):
                for is_free in (False, True) if (slots, num_seeds) == (1, 3) else (False,):
                    pairs = list(each(partial(_solve_values, gap, slots, num_seeds, is_free), range(num_problems)))
                    results, ended = [pair[0] for pair in pairs], [pair[1] for pair in pairs if pair[1] is not None]
                    runs, rounds = (float(np.mean([getattr(r, f)[0] for r in results])) for f in ("runs", "rounds"))
                    wrong = sum(result.wrong[0] for result in results) - len(ended)
                    found = f"{runs:.1f} runs, {rounds:.1f} rounds, {wrong} wrong"
                    found += f"; {len(ended)} ended below 0.95, the best change right in {sum(ended)}" if ended else ""
                    name, met = "", ""
                    if (slots, num_seeds, is_free) == (1, 3, False):
                        name, met = "G9", f"{goal}: {verdict(runs, goal)}"
                    if (slots, gap) == (8, 4.0):
                        name, met = "G10", f"3.2: {verdict(rounds, 3.2)}"
                    setting = f"shift {gap:.0f} sd, N = 128, k = {slots}, {num_seeds} + {num_seeds} end runs"
                    yield name, setting + (", no offsets allowed for" if is_free else ""), found, met, ""


SECTIONS: dict[str, Callable[[int, Map], Iterator[Row]]] = {
    "G1 G2": rows_of_sure,
    "G3 G4": rows_of_untestable,
    "G5 G6 G8": rows_of_rates,
    "G7": rows_of_rate_batches,
    "G9 G10": rows_of_values,
    "G11": rows_of_second_shift,
    "speed": speed.rows_of_speed,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--only", default="", help="goals, with commas: G1,G9,speed")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    wanted = {name for name in asked.only.split(",") if name}
    print("| goal | setting | ours | goal, met? | others; bound |\n| --- | --- | --- | --- | --- |", flush=True)
    with ProcessPoolExecutor(asked.processes) as pool:
        each: Map = partial(pool.map, chunksize=max(1, asked.problems // (4 * asked.processes)))
        for names, rows in SECTIONS.items():
            if not wanted or wanted & set(names.split()):
                for row in rows(asked.problems, each):
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
