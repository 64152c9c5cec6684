"""Sets of free changes: whole bisections by our planner beside mlbisect's ddmin on the same problems. Run by hand.

    python -m tests.benchmarks.bench_sets [--problems 200] [--only G12,G13,G14,calibration]

128 config keys, the same run whatever the seed. "as the study counts": distinct variants that were run, the full set, the
verification and the complement re-test among them, the good end not. "tests" adds the variants that only our proof needs: the
bad end without each single member of a set, each member alone (the table of a pair), each of several alone in the bad end. A
test round is a round that ran a variant for the first time. "runs" and "rounds" are everything: the proof of the ends, repeats,
fresh seeds of the proofs.
How to install mlbisect: tests/benchmarks/peers.py.
"""

from __future__ import annotations

import argparse
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bisect_train.core.changes import Point, make_point
from bisect_train.core.question import Metric
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import PROVED, Answer, Known, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind
from bisect_train.verdict.proof import ClaimKind
from tests.benchmarks.calibrate import clopper_pearson
from tests.benchmarks.peers import find_peer
from tests.benchmarks.problems import SetProblem
from tests.support.simulated_regression import World, solve

NUM_KEYS = 128
GOALS = {"one": 10.5, "pair": 18.0, "two": 19.5}
NAMES = {"one": "1 culprit", "pair": "a pair", "two": "2 independent", "triple": "3 that need each other"}
NUM_WHOLE = 15  # problems that mlbisect's whole tool is run on
MAX_RUNS = 4000


@dataclass
class SetWorld(World):
    """Every seed gives the same run."""

    def _outcome(self, request: Request) -> Outcome:
        if self.is_broken(request.point):
            return Outcome(OutcomeKind.FAILED, signature="ValueError: invalid", reason="ValueError")
        value = self.mean_of(request.point)
        return Outcome(OutcomeKind.MEASURED, value=value, digest=f"{value}")


@dataclass
class Spent:
    """What one bisection took; see the module."""

    studied: int = 0
    tests: int = 0
    test_rounds: int = 0
    runs: int = 0
    rounds: int = 0
    answer: Answer | None = None
    seen: set[Point] = field(default_factory=set)
    only_proved: set[Point] = field(default_factory=set)  # variants that the search did not ask for

    @property
    def named(self) -> set[frozenset[int]]:
        """The culprits of a proved answer."""
        if self.answer is None or self.answer.status not in PROVED:
            return set()
        return {frozenset(culprit.changes) for culprit in self.answer.culprits}


def run_ours(problem: SetProblem, slots: int) -> Spent:
    """Bisect with `slots` probes a round, to the answer."""
    world = SetWorld(mean_of=lambda point: 10.0 * problem.is_bad(point.holds), is_broken=lambda p: problem.is_invalid(p.holds))
    rules = Rules(problem.num, EndRules(Metric(), min_effect=1.0), num_ordered=0)
    spent, seen = Spent(seen={Point(0)}), list[Observation]()
    while spent.runs < MAX_RUNS:
        plan = make_plan(rules, Known(seen, slots=slots))
        if plan.answer is not None:
            spent.answer = plan.answer
            spent.studied = spent.tests - len(_beyond_study(plan.answer, problem.num) & spent.only_proved)
            return spent
        batch = plan.wanted[:slots]
        new = {request.point for request in batch} - spent.seen
        spent.only_proved |= new & {request.point for request in batch if request.attempt > 0}
        spent.tests, spent.test_rounds = spent.tests + len(new), spent.test_rounds + bool(new)
        spent.runs, spent.rounds, spent.seen = spent.runs + len(batch), spent.rounds + 1, spent.seen | new
        seen += [world.run(request) for request in batch]
    return spent


def _beyond_study(answer: Answer, num: int) -> set[Point]:
    """Return the variants of our proof that the study's search does not test."""
    points: set[Point] = set()
    for culprit in answer.culprits:
        for idx in culprit.changes[:-1]:
            points |= {make_point(num, minus=(idx,)), make_point(0, plus=(idx,))}
        points |= {Point(culprit.changes[-1]), Point(culprit.changes[-1] + 1)}
    heals = [result.claim for culprit in answer.culprits for result in culprit.claims if result.claim.kind is ClaimKind.HEALS]
    return points | ({claim.sick for claim in heals} - {claim.healthy for claim in heals})


def run_ddmin(problem: SetProblem, seed: int) -> tuple[int, set[frozenset[int]]]:
    """Return how many tests mlbisect's ddmin takes and what it finds; it is told no order, so the keys come shuffled."""
    ddmin = find_peer("mlbisect.search").ddmin
    order = [str(idx) for idx in np.random.default_rng(seed).permutation(problem.num)]
    tested: set[frozenset[str]] = set()

    def test(config: frozenset[str]) -> bool:
        tested.add(config)
        held = {int(name) for name in config}
        return not problem.is_invalid(held.__contains__) and problem.is_bad(held.__contains__)

    found = ddmin(order, test)
    return len(tested), {frozenset(int(name) for name in found)}


def run_whole_mlbisect(problem: SetProblem, seed: int) -> tuple[int, int, set[frozenset[int]]]:
    """Return tests, runs and findings of mlbisect as a whole, with its complement rounds and its run cap lifted."""
    base, search, sampler = (find_peer(f"mlbisect.{name}") for name in ("executors.base", "search", "sampler"))
    axes = tuple(str(idx) for idx in np.random.default_rng(seed).permutation(problem.num))

    class Executor:
        def run(self, config: Any, seed: int) -> Any:
            held = {int(name) for name in config.axes}
            is_fine = not problem.is_invalid(held.__contains__)
            value = float(problem.is_bad(held.__contains__)) if is_fine else None
            return base.RunResult(config.axes, seed, value, is_fine, 0.0)

    budget = types.SimpleNamespace(
        max_runs=100_000, baseline_runs=5, min_runs_per_config=3, max_runs_per_config=10, batch_size=2, confidence=0.95
    )
    metric = types.SimpleNamespace(direction="lower_is_better", min_effect=0.5)
    manifest = types.SimpleNamespace(budget=budget, metric=metric, axis_names=lambda: axes)
    found = search.find_culprits(Executor(), manifest, sampler.AdaptiveSampler(Executor(), manifest))
    named = {frozenset(int(name) for name in group) for group in found.culprit_sets}
    return found.configurations_tested - 1, found.runs_used, named


# ---- G12, G13, G14 ----------------------------------------------------------------------------------------------------------


def _say_ours(spent: Sequence[Spent], problems: Sequence[SetProblem]) -> str:
    names = ("studied", "tests", "test_rounds", "runs", "rounds")
    means = [float(np.mean([getattr(item, name) for item in spent])) for name in names]
    complete = sum(item.named == set(problem.culprits) for item, problem in zip(spent, problems, strict=True))
    studied, tests, test_rounds, runs, rounds = means
    return f"{studied:.1f} | {tests:.1f} in {test_rounds:.1f} | {complete} of {len(spent)} | {runs:.1f} in {rounds:.1f}"


def _say_met(spent: Sequence[Spent], goal: float | None) -> str:
    if goal is None:
        return ""
    over = round(float(np.mean([item.studied for item in spent])), 1) - goal
    return f"{goal}: yes" if over <= 1e-9 else f"{goal}: **no**, {over:+.1f} ({over / goal:+.0%})"


def _say_peers(problems: Sequence[SetProblem]) -> str:
    if find_peer("mlbisect") is None:
        return "mlbisect not installed"
    ddmin = [run_ddmin(problem, seed) for seed, problem in enumerate(problems)]
    complete = sum(found[1] == set(problem.culprits) for found, problem in zip(ddmin, problems, strict=True))
    text = f"ddmin {np.mean([found[0] for found in ddmin]):.1f} tests, all found in {complete}"
    whole = [run_whole_mlbisect(problem, seed) for seed, problem in enumerate(problems[:NUM_WHOLE])]
    complete = sum(found[2] == set(problem.culprits) for found, problem in zip(whole, problems, strict=False))
    tests, runs = (float(np.mean([found[idx] for found in whole])) for idx in (0, 1))
    return f"{text}; whole tool {tests:.1f} tests, {runs:.1f} runs, all found in {complete} of {len(whole)}"


def rows_of_sets(num_problems: int) -> Iterator[str]:
    """Yield the rows of G12."""
    for kind, name in NAMES.items():
        problems = [SetProblem.draw(NUM_KEYS, kind, seed) for seed in range(num_problems)]
        for slots in (1, 4):
            spent = [run_ours(problem, slots) for problem in problems]
            goal = GOALS.get(kind) if slots == 1 else None
            peers = _say_peers(problems) if slots == 1 else ""
            met = _say_met(spent, goal)
            yield f"{'G12' if goal else ''} | {name}, k = {slots} | {_say_ours(spent, problems)} | {met} | {peers}"


def rows_of_bitcode(num_problems: int) -> Iterator[str]:
    """Yield the rows of G13: rounds and tests until the culprit is verified."""
    for kind in ("one", "pair", "two"):
        problems = [SetProblem.draw(NUM_KEYS, kind, seed) for seed in range(num_problems)]
        spent = [run_ours(problem, 16) for problem in problems]
        met = _say_met(spent, 16.0 + 1.0) + " (with the full set)" if kind == "one" else ""
        yield f"{'G13' if kind == 'one' else ''} | {NAMES[kind]}, bit code, k = 16 | {_say_ours(spent, problems)} | {met} | "


def rows_of_dependencies(num_problems: int) -> Iterator[str]:
    """Yield the rows of G14: a key needs an earlier one in 16 places, and the order is known."""
    for kind in ("one", "pair", "two"):
        problems = [SetProblem.draw(NUM_KEYS, kind, seed, num_needs=16) for seed in range(num_problems)]
        for slots in (1, 4):
            spent = [run_ours(problem, slots) for problem in problems]
            goal = 34.0 if (kind, slots) == ("pair", 1) else None
            peers = _say_peers(problems) if slots == 1 else ""
            name = f"{NAMES[kind]}, 16 hidden dependencies, k = {slots}"
            yield f"{'G14' if goal else ''} | {name} | {_say_ours(spent, problems)} | {_say_met(spent, goal)} | {peers}"


# ---- calibration ------------------------------------------------------------------------------------------------------------

GAPS = (4.0, 6.0, 8.0, 12.0)
NUM_SMALL = 32
SHAPES = ("one", "pair", "triple", "two", "pair or one", "coupled", "invalid", "two blocks", "null")
OFFSETS = {"bits": 0.0, "4 to 12 sd": 0.0, "4 to 12 sd with offsets of 0.3": 0.3}


def calibration_case(shape: str, seed: int, mode: str) -> tuple[World, SetProblem, Rules]:
    """Return a problem with 32 changes: its world, the truth, and the rules; `mode` is one of OFFSETS."""
    is_noisy = mode != "bits"
    rng = np.random.default_rng(6_000_000 + seed)
    mixed = str(rng.choice(["one", "pair", "two"]))
    kind = {"coupled": "pair", "invalid": "one", "two blocks": mixed, "null": "one"}.get(shape, shape)
    problem = SetProblem.draw(NUM_SMALL, kind, seed, num_needs=8 if shape == "invalid" else 0)
    gap = 0.0 if shape == "null" else float(rng.choice(GAPS)) if is_noisy else 10.0
    if shape == "coupled":
        first, second = sorted(next(iter(problem.culprits)))
        problem.coupled = (first, second)

    def class_of(point: Point) -> str | None:
        return None if is_noisy else f"{problem.is_bad(point.holds) and gap > 0}"

    world = World(
        mean_of=lambda point: gap * problem.is_bad(point.holds),
        is_broken=lambda point: problem.is_invalid(point.holds),
        class_of=class_of,
        offset_sd=OFFSETS[mode],
        seed=seed,
    )
    num_ordered = NUM_SMALL // 2 if shape == "two blocks" else 0
    return world, problem, Rules(NUM_SMALL, EndRules(Metric()), num_ordered=num_ordered)


def rows_of_calibration(num_problems: int, modes: Sequence[str] = tuple(OFFSETS)) -> Iterator[str]:
    """Yield how often whole bisections name somebody who is none of the culprits, and how complete the answers are."""
    for mode in modes:
        for shape in SHAPES:
            counts = Counter(_verdict_on(shape, seed, mode) for seed in range(num_problems))
            low, high = clopper_pearson(counts["wrong"], num_problems)
            withheld = ", ".join(f"{num} {name}" for name, num in counts.items() if name not in ("all", "some", "wrong")) or "0"
            wrong = f"{counts['wrong']} ({low:.2%} to {high:.2%})"
            yield f"{shape}, {mode} | {num_problems} | {counts['all']} | {counts['some']} | {wrong} | {withheld}"


def _verdict_on(shape: str, seed: int, mode: str) -> str:
    world, problem, rules = calibration_case(shape, seed, mode)
    answer = solve(world, rules, slots=4, max_probes=MAX_RUNS).answer
    if answer.status not in PROVED:
        return answer.status
    named = {frozenset(culprit.changes) for culprit in answer.culprits}
    if shape == "null" or not {idx for group in named for idx in group} <= problem.guilty:
        return "wrong"
    return "all" if named == set(problem.culprits) else "some"


# ---- the tables -------------------------------------------------------------------------------------------------------------

HEAD = (
    "goal | 128 keys, every seed the same run | as the study counts | tests in test rounds | all named | runs in rounds "
    "| goal, met? | mlbisect"
)
CALIBRATION_HEAD = "setting | problems | all named | some named | wrong (exact 95 %) | withheld"
SECTIONS = {
    "G12": (HEAD, rows_of_sets),
    "G13": (HEAD, rows_of_bitcode),
    "G14": (HEAD, rows_of_dependencies),
    "calibration": (CALIBRATION_HEAD, rows_of_calibration),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--only", default=",".join(SECTIONS), help="with commas; default: all")
    asked = parser.parse_args()
    last = ""
    for name in asked.only.split(","):
        head, rows = SECTIONS[name]
        if head != last:
            print(f"\n| {head} |\n|{' --- |' * (head.count('|') + 1)}", flush=True)
        last = head
        for row in rows(asked.problems):
            print(f"| {row} |", flush=True)


if __name__ == "__main__":
    main()
