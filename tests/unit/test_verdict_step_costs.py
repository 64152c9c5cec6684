"""What a step costs, judged by pairs: which steps count, what is compared, and what a noisy machine can tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, MetricSeries, RankRecord, Reference, StepRecord
from bisect_train.core.question import Metric
from bisect_train.recipe import load_recipe
from bisect_train.search.terms import Request, Rules
from bisect_train.verdict.end_terms import EndRules, EndsStatus
from bisect_train.verdict.outcome import Observation, OutcomeKind, judge_outcome, recorded_metric
from bisect_train.verdict.step_costs import MAX_PAIRS, num_warm_up, pairs_needed, percent_above, say_too_noisy, step_times
from tests.support.simulated_regression import Solved, World, solve

STOPPED = Ending(EndingKind.STOPPED)
CPU, WALL = recorded_metric("step_cpu_s"), recorded_metric("step_s")


def record_of(times: list[float], *, own_s: float = 0.0, rank: int = 0) -> RankRecord:
    steps = [StepRecord(0, loss=1.0)]
    steps += [StepRecord(idx, loss=1.0, step_s=t, step_cpu_s=t, self_s=own_s) for idx, t in enumerate(times, start=1)]
    return RankRecord(rank, tuple(steps))


def pair_of(times: list[float], beside: list[float], **more: float) -> Fingerprint:
    reference = Reference(STOPPED, (record_of(beside),))
    return Fingerprint(STOPPED, (record_of(times, **more),), reference=reference)  # type: ignore[arg-type]


# ---- one pair ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_steps", "num"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (14, 2), (15, 3), (50, 10), (200, 40)])
def test_warm_up_is_a_fifth_and_two_steps_at_least_but_never_all(num_steps: int, num: int) -> None:
    assert num_warm_up(num_steps) == num


def test_first_steps_and_the_recorders_own_time_do_not_count() -> None:
    record = record_of([9.0, 5.0, 5.0, 5.0], own_s=1.0)
    assert step_times((record,), "step_s") == (4.0, 4.0, 4.0)
    assert step_times((record,), "step_cpu_s") == (5.0, 5.0, 5.0)  # recorded without it
    assert step_times((record,), "step_cuda_s") == () == step_times((), "step_s")


def test_a_checksum_counted_in_one_step_leaves_no_step_too_fast() -> None:
    """The recorder's own time of a step may have been spent in the step after it."""
    steps = [StepRecord(idx, step_s=1.0, self_s=0.9 if idx == 7 else 0.1) for idx in range(12)]
    assert min(step_times((RankRecord(0, tuple(steps)),), "step_s")) == pytest.approx(0.9)


def test_times_are_means_over_ranks() -> None:
    ranks = (record_of([9.0, 1.0, 1.0]), record_of([9.0, 3.0, 5.0], rank=1))
    assert step_times(ranks, "step_cpu_s") == (2.0, 3.0)


def test_wall_time_is_the_fastest_step_and_cpu_time_the_median_against_the_good_end() -> None:
    found = pair_of([9.0, 3.0, 4.0, 8.0, 4.0], [9.0, 2.0, 4.0, 5.0, 4.0])
    wall, cpu = judge_outcome(found, WALL), judge_outcome(found, CPU)
    assert (wall.kind, wall.value) == (OutcomeKind.MEASURED, pytest.approx(50.0))
    assert cpu.value == pytest.approx(0.0)
    assert CPU.is_paired and CPU.unit == "%" and not recorded_metric("rss_mib").is_paired


def test_rate_from_the_log_is_worse_when_it_falls() -> None:
    rate = Metric("tokens_per_s", reduce="median", better="higher", unit="%", is_paired=True)
    reference = Reference(STOPPED, metrics=(MetricSeries("tokens_per_s", (3000.0, 3200.0, 3400.0)),))
    found = Fingerprint(STOPPED, metrics=(MetricSeries("tokens_per_s", (2400.0, 2401.0, 2300.0)),), reference=reference)
    assert judge_outcome(found, rate).value == pytest.approx(-25.0)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (None, "no run of the good end beside it"),
        (Reference(Ending(EndingKind.CRASHED, message="boom", exit_status=1)), "beside it: boom"),
        (Reference(Ending(EndingKind.CRASHED, exit_status=3)), "it ended with status 3"),
        (Reference(STOPPED, (record_of([0.0, 0.0, 0.0]),)), "no step_cpu_s above 0 was seen"),
        (Reference(STOPPED), "no step_cpu_s above 0 was seen"),
    ],
)
def test_nothing_to_compare_with_is_no_verdict(reference: Reference | None, said: str) -> None:
    found = replace(pair_of([1.0] * 5, [1.0] * 5), reference=reference)
    outcome = judge_outcome(found, CPU)
    assert outcome.kind is OutcomeKind.UNTESTABLE and said in outcome.reason


def test_percent_is_of_the_reference() -> None:
    assert percent_above(1.25, 1.0) == pytest.approx(25.0)
    assert percent_above(1.0, 0.0) is None


def test_pairs_needed_grow_with_the_square_of_the_noise() -> None:
    assert pairs_needed(10.0, 1.0) == 5
    assert (pairs_needed(4.0, 8.0), pairs_needed(4.0, 16.0)) == (107, 426)
    assert pairs_needed(-1.0, 5.0) is None is pairs_needed(5.0, 0.0)


def test_too_noisy_says_what_would_help() -> None:
    said = say_too_noisy(WALL, gap=4.0, spread=5.0, num_pairs=8)
    assert said.startswith("this machine is too noisy to tell: by step_s the bad end looks worse by 4 %, and pairs of runs ")
    assert "spread by 5 % (8 at each end)" in said
    assert "about 42 pairs at each end would be needed (--seeds 42)" in said and "--metric step_cpu_s" in said
    better = say_too_noisy(CPU, gap=-170.0, spread=110.0, num_pairs=9)
    assert "looks better by 170 %, and pairs of runs spread by 110 % (9 at each end)" in better and "--seeds" not in better
    assert "(--seeds 12)" in say_too_noisy(CPU, gap=-170.0, spread=110.0, num_pairs=9, any_change=True)
    hopeless = say_too_noisy(CPU, gap=0.5, spread=9.0, num_pairs=8)
    assert "would be needed" not in hopeless and "step_cpu_s is less" not in hopeless
    assert MAX_PAIRS < 1000


# ---- whole bisections --------------------------------------------------------------------------------------------------


@dataclass
class BusyMachine(World):
    """Recorded costs of a machine on which others work: `noise_sd` of one run in percent, and bursts of one run of a pair.

    `mean_of` is by how many percent a point is slower than the good end.
    """

    burst_share: float = 0.1

    def run(self, request: Request) -> Observation:
        rng = self._rng(request.point.to_text(), request.seed_idx, request.repeat, request.attempt)
        both = np.exp(0.3 * rng.normal())  # the load of the hour: it hits both runs of a pair
        sides = []
        for percent in (self.mean_of(request.point), 0.0):
            level = 0.01 * (1 + percent / 100) * both * np.exp(self.noise_sd / 100 * abs(rng.normal()))
            level *= 1.0 + (rng.random() < self.burst_share) * rng.random() * self.noise_sd / 20
            sides.append([float(level * (1 + 0.1 * rng.exponential())) for _ in range(20)])
        outcome = judge_outcome(pair_of(*sides), CPU)
        return Observation(request.point, request.seed_idx, request.repeat, request.attempt, request.proof_of, outcome, 0)


def bisect(seed: int, *, slower: float, noise: float, num: int = 12) -> Solved:
    """Bisect a history in which change `seed % num` makes a step slower, and another one by 3 % (a decoy)."""
    culprit, decoy = seed % num, (seed + 5) % num

    def mean_of(point: Point) -> float:
        return slower * point.holds(culprit) + 3.0 * point.holds(decoy)

    world = BusyMachine(mean_of, noise_sd=noise, seed=seed)
    return solve(world, Rules(num, EndRules(CPU)))


def named(solved: Solved) -> list[tuple[int, ...]]:
    return [culprit.changes for culprit in solved.answer.culprits if solved.answer.status in ("isolated", "several")]


@pytest.mark.parametrize("slower", [0.0, 10.0, 35.0])
def test_noisy_machine_never_names_a_wrong_change(slower: float) -> None:
    """200 worlds a row; wrong and confident in 1 % at most, and where the ends do not separate the answer says why."""
    num_wrong = num_noisy = 0
    for seed in range(200):
        solved = bisect(seed, slower=slower, noise=60.0)
        num_wrong += any(changes != (seed % 12,) for changes in named(solved))
        if solved.plan.ends.status is EndsStatus.UNCLEAR:
            num_noisy += 1
            assert "this machine is too noisy to tell" in solved.answer.reason
    assert num_wrong <= 2
    assert num_noisy >= 100


def test_quiet_machine_names_the_change_and_clears_the_small_decoy() -> None:
    for seed in range(6):
        solved = bisect(seed, slower=35.0, noise=2.0)
        assert (solved.answer.status, named(solved)) == ("isolated", [(seed % 12,)]), solved.answer


def test_recipe_metric_can_be_paired(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("command: [python, train.py]\nmetrics: {rate: {pattern: 'rate ([0-9.]+)', better: higher, paired: true}}\n")
    metric = load_recipe(path).metric("rate").to_metric()
    assert (metric.is_paired, metric.unit, metric.better) == (True, "%", "higher")
