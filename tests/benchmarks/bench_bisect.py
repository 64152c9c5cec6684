"""Whole bisections against `git bisect run`, git-bayesect and mlbisect: steps, probes, wall and processor time, right or wrong.

    python -m tests.benchmarks.bench_bisect [--only long,loud,demo,gpt1,gpt2] [--rounds 3] [--nanogpt FOLDER] [--json FILE]

Each method answers the same question on the same machine in the same run, from nothing, in a clone of its own, along the main
line, one thread per process. bisect-train proves the ends and its answer; the others are given a judging script whose threshold
lies halfway between the ends (measured before, not counted), and prove nothing. Medians over the rounds; methods take turns.
The full script is run `--full-rounds` times, since it takes long.

- floor: probes that any method must run which asks one bit at a time: log2 of the candidates, and the two ends.
- git-bayesect: its own command line (`run`, to 0.95). mlbisect has no axis for a git history: its own search is run with each
  commit as an axis and the recorded levels of both ends, and counted; wall time is its runs times one run of the short script.
  How to install them: tests/benchmarks/peers.py.
- Ray: until the first probe could be started, and the rest ("after Ray").

Bounds of the history of 256 commits (exit status 1 where one is missed): at most 1/10 of the steps and 1/5 of the wall time of
git with the full script; at most 3 times the steps of git with the short script and no more wall time; under 15 s after Ray.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.accounting import describe_machine
from tests.benchmarks.contenders import Bench, Cost
from tests.benchmarks.peers import count_mlbisect, find_peer
from tests.benchmarks.scenarios_to_bisect import SCENARIOS, Scenario, make_nanogpt

GOAL_AFTER_RAY_S = 15.0
Method = Callable[[], Cost | None]


def _mlbisect(bench: Bench, one_run: Cost) -> Cost | None:
    """Count mlbisect's own search over the commits as axes."""
    if find_peer("mlbisect") is None:
        return None
    scenario = bench.scenario
    runs, is_right = count_mlbisect(scenario.num_commits)
    each_steps, each_s = one_run.steps / one_run.probes, one_run.wall_s / one_run.probes
    return Cost(runs, round(runs * each_steps), runs * each_s, None, is_right, note="its search alone, on recorded levels")


def measure(scenario: Scenario, folder: Path, *, rounds: int, full_rounds: int) -> dict[str, list[Cost]]:
    """Return the costs of each method, by its name; one that is not installed is missing."""
    bench = Bench(scenario, folder / "bench")
    methods: dict[str, tuple[int, Method]] = {
        "bisect-train": (rounds, partial(bench.bisect_train, folder / "home")),
        "git bisect run, same short script": (rounds, partial(bench.git_bisect, scenario.short)),
        "git-bayesect, same short script": (rounds, partial(bench.bayesect, scenario.short)),
        "git bisect run, full script": (full_rounds, partial(bench.git_bisect, scenario.full)),
    }
    found: dict[str, list[Cost]] = {}
    for idx in range(max(rounds, full_rounds)):
        for name, (num, method) in methods.items():
            if idx < num and (cost := method()) is not None:
                found.setdefault(name, []).append(cost)
                print(f"  {name}: {cost}", file=sys.stderr, flush=True)
    one = found["git bisect run, same short script"][0]
    if (cost := _mlbisect(bench, one)) is not None:
        found["mlbisect, same short script"] = [cost]
    return found


def _median(costs: Sequence[Cost], field: str) -> float:
    return statistics.median(getattr(cost, field) for cost in costs)


def _row(name: str, costs: Sequence[Cost] | None) -> str:
    if not costs:
        return f"| {name} | not installed | | | | | | |"
    is_run = costs[0].cpu_s is not None
    cpu = f"{_median(costs, 'cpu_s'):.1f}" if is_run else ""
    after = ""
    if costs[0].ray_s is not None:
        after = f"{_median(costs, 'ray_s'):.1f} + {statistics.median(_after_ray_s(cost) for cost in costs):.1f}"
    right = f"{sum(cost.is_right for cost in costs)} of {len(costs)}"
    notes = "; ".join(dict.fromkeys(cost.note for cost in costs if cost.note))
    probes, steps, wall = _median(costs, "probes"), _median(costs, "steps"), _median(costs, "wall_s")
    return f"| {name} | {probes:.0f} | {steps:.0f} | {wall:.1f} | {after} | {cpu} | {right} | {notes} |"


def _after_ray_s(cost: Cost) -> float:
    return cost.wall_s - (cost.ray_s or 0.0)


def print_table(scenario: Scenario, found: dict[str, list[Cost]]) -> None:
    """Print one history's table."""
    print(f"\n**{scenario.name}** ({scenario.num_commits} candidates)\n")
    print("| method | probes | steps | wall s | Ray + rest s | processor s | right | |\n| " + "--- | " * 8)
    names = ("bisect-train", "git bisect run, full script", "git bisect run, same short script")
    for name in (*names, "git-bayesect, same short script", "mlbisect, same short script"):
        print(_row(name, found.get(name)))
    short = found["git bisect run, same short script"]
    probes = math.ceil(math.log2(scenario.num_commits)) + 2
    print(f"| floor | {probes} | {probes * _median(short, 'steps') / _median(short, 'probes'):.0f} | | | | | |", flush=True)


def bounds_of(found: dict[str, list[Cost]]) -> list[tuple[str, float, float]]:
    """Return what is bounded, its figure, and the most that it may be."""
    ours = found["bisect-train"]
    full, short = found["git bisect run, full script"], found["git bisect run, same short script"]
    steps, wall = _median(ours, "steps"), _median(ours, "wall_s")
    return [
        ("steps / those of git with the full script", steps / _median(full, "steps"), 0.1),
        ("wall / that of git with the full script", wall / _median(full, "wall_s"), 0.2),
        ("steps / those of git with the short script", steps / _median(short, "steps"), 3.0),
        ("wall / that of git with the short script", wall / _median(short, "wall_s"), 1.0),
        ("s after Ray is up", statistics.median(_after_ray_s(cost) for cost in ours), GOAL_AFTER_RAY_S),
        ("wrong answers", float(sum(not cost.is_right for cost in ours)), 0.0),
    ]


def print_bounds(bounds: Sequence[tuple[str, float, float]]) -> bool:
    """Print figure and bound of each; return whether all are met."""
    print("\n| bound | figure | at most | met? |\n| --- | --- | --- | --- |")
    for what, figure, most in bounds:
        print(f"| {what} | {figure:.2f} | {most:g} | {'yes' if figure <= most else '**no**'} |", flush=True)
    return all(figure <= most for _, figure, most in bounds)


def main() -> int:
    """Print the tables; the status is 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="long,loud,demo,gpt1,gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full-rounds", type=int, default=1)
    parser.add_argument("--nanogpt", default=os.environ.get("BENCH_NANOGPT", ""), help="a repository of nanoGPT")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    told: list[dict[str, object]] = []
    is_met = True
    for name in asked.only.split(","):
        if name.startswith("gpt") and not asked.nanogpt:
            print(f"\n**nanoGPT {name[3:]}**: not given (--nanogpt FOLDER, or BENCH_NANOGPT)", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="bt-") as folder:
            scenario = (
                make_nanogpt(Path(folder), Path(asked.nanogpt), int(name[3:]) - 1)
                if name.startswith("gpt")
                else SCENARIOS[name](Path(folder))
            )
            machine = describe_machine()
            found = measure(scenario, Path(folder), rounds=asked.rounds, full_rounds=asked.full_rounds)
        print_table(scenario, found)
        print(f"\nbefore: {machine}; after: {describe_machine()}")
        rows = {method: [dataclasses.asdict(cost) for cost in costs] for method, costs in found.items()}
        told.append({"scenario": scenario.name, "machine": machine, "costs": rows})
        if name == "long":
            bounds = bounds_of(found)
            told[-1]["bounds"] = [{"what": what, "figure": figure, "most": most} for what, figure, most in bounds]
            is_met = print_bounds(bounds) and is_met
        if asked.json:
            asked.json.write_text(json.dumps(told, indent=1))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
