"""More than one culprit: parts of a range that are searched by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from bisect_train.core.changes import Point, make_point
from bisect_train.core.question import Metric
from bisect_train.search.parts import Window
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, RemarkKind, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.rest import Levels, is_plateau, is_step, rest_of
from tests.support.simulated_regression import Solved, World, solve

NUM = 24


def solve_effects(effects: dict[int, float], *, seed: int = 0) -> Solved:
    """Run a bisection in a world where each of these changes shifts the mean by seed standard deviations."""
    world = World(mean_of=lambda point: sum(size for idx, size in effects.items() if point.holds(idx)), seed=seed)
    return solve(world, Rules(NUM, EndRules(Metric())), slots=4, max_probes=2000)


def named(solved: Solved) -> list[int]:
    """Return the culprits in their order."""
    return [idx for culprit in solved.answer.culprits for idx in culprit.changes]


def kinds(solved: Solved) -> set[RemarkKind]:
    """Return which remarks were made."""
    return {remark.kind for remark in solved.answer.remarks}


@pytest.mark.parametrize(
    ("effects", "ranked"),
    [
        ({4: 20.0, 15: 8.0}, [4, 15]),  # the smaller one after the larger
        ({4: 8.0, 15: 20.0}, [15, 4]),
        ({0: 20.0, 23: 9.0}, [0, 23]),  # first and last change
        ({10: 20.0, 11: 8.0}, [10, 11]),  # neighbours
        ({3: 24.0, 9: 12.0, 18: 6.0}, [3, 9, 18]),
    ],
)
def test_plan_names_several_culprits_by_the_size_of_their_effects(effects: dict[int, float], ranked: list[int]) -> None:
    solved = solve_effects(effects, seed=1)
    assert (solved.answer.status, named(solved)) == ("several", ranked), solved.answer


def test_plan_names_two_culprits_of_one_size() -> None:
    """Neither explains more than half of the gap: the versions between them are a level of their own."""
    solved = solve_effects({5: 10.0, 17: 10.0})
    assert solved.answer.status == "several" and sorted(named(solved)) == [5, 17]


def test_plan_of_several_culprits_proves_each_with_less_error_than_the_one_before() -> None:
    solved = solve_effects({4: 20.0, 15: 8.0}, seed=1)
    first, second = solved.answer.culprits
    assert all(claim.status.value == "held" for culprit in (first, second) for claim in culprit.claims)
    assert second.claims[0].claim.healthy == Point(15)
    assert 4 < second.claims[2].claim.healthy.prefix <= 15, "the good end of its part"
    assert second.claims[1].claim.healthy == make_point(NUM, minus=(15,))


def test_plan_says_that_a_later_change_makes_up_for_part() -> None:
    solved = solve_effects({6: 16.0, 18: -8.0})
    assert (solved.answer.status, named(solved)) == ("isolated", [6])
    (remark,) = solved.answer.remarks
    assert remark.kind is RemarkKind.MASKED and remark.size == pytest.approx(-8.0, abs=1.5)
    assert (remark.first, remark.last) == (7, NUM)


def test_plan_says_that_an_earlier_change_made_it_better() -> None:
    solved = solve_effects({6: -8.0, 18: 16.0})
    assert (solved.answer.status, named(solved)) == ("isolated", [18])
    assert kinds(solved) == {RemarkKind.IMPROVED_BEFORE}


def test_plan_of_one_culprit_looks_no_further() -> None:
    num_remarks = 0
    for seed in range(12):
        solved = solve_effects({9: 12.0}, seed=seed)
        assert (solved.answer.status, named(solved)) == ("isolated", [9])
        num_remarks += bool(solved.answer.remarks)
    assert num_remarks <= 2


def test_plan_of_a_drift_names_nobody() -> None:
    for seed in range(4):
        solved = solve_effects(dict.fromkeys(range(NUM), 0.5), seed=seed)
        assert solved.answer.status in ("drift", "candidates", "not_reproduced"), (seed, solved.answer)


def test_plan_of_parts_depends_on_the_observations_only() -> None:
    """Rebuilt from its observations in another order, at any moment, it wants the same and answers the same."""
    world = World(mean_of=lambda point: 20.0 * point.holds(4) + 8.0 * point.holds(15), seed=1)
    rules = Rules(NUM, EndRules(Metric()))
    seen: list[Observation] = []
    rng = np.random.default_rng(0)
    phases = set()
    while (plan := make_plan(rules, Known(seen, slots=3))).answer is None:
        phases.add(plan.phase)
        shuffled = [seen[idx] for idx in rng.permutation(len(seen))]
        assert make_plan(rules, Known(shuffled, slots=3)).wanted == plan.wanted
        started = {(run.point, run.seed_idx, run.repeat, run.attempt, run.part) for run in seen}
        for request in plan.wanted[:3]:
            key = (request.point, request.seed_idx, request.repeat, request.attempt, request.part)
            assert key not in started, f"asked again: {request}"
            seen.append(world.run(request))
    assert Phase.REST in phases and plan.answer.status == "several"


def test_plan_keeps_the_runs_of_a_part_that_are_in_flight() -> None:
    world = World(mean_of=lambda point: 20.0 * point.holds(4) + 8.0 * point.holds(15), seed=1)
    rules = Rules(NUM, EndRules(Metric()))
    seen: list[Observation] = []
    in_flight: list[Request] = []
    num_cancelled = 0
    while (plan := make_plan(rules, Known(seen, in_flight=in_flight, slots=3))).answer is None:
        kept = [request for request in in_flight if request in plan.wanted]
        num_cancelled += len(in_flight) - len(kept)
        new = [request for request in plan.wanted if request not in kept]
        in_flight = [*kept, *new][:3]
        seen.append(world.run(in_flight.pop(0)))
    assert plan.answer.status == "several" and num_cancelled < 12


def test_window_moves_points_in_and_out() -> None:
    window = Window(5, 12)
    for point in (Point(5), Point(12), make_point(12, minus=(7,)), make_point(5, plus=(9,))):
        assert window.holds(point) and window.outside(window.inside(point)) == point
    assert window.inside(make_point(12, minus=(7,))) == make_point(7, minus=(2,))
    outside = (Point(4), Point(13), make_point(12, minus=(3,)), make_point(5, plus=(12,)), Point(-1))
    assert not any(window.holds(point) for point in outside)


def test_rest_tells_where_something_is_left() -> None:
    rng = np.random.default_rng(3)
    good, before, with_it, bad = (list(mean + rng.normal(size=8)) for mean in (0.0, 0.0, 8.0, 12.0))
    left, right = rest_of(Levels(good, before, with_it, bad))
    assert not left.is_worse and right.is_worse and not right.is_better
    _, masked = rest_of(Levels(good, before, bad, with_it))
    assert masked.is_better


def test_rest_flags_a_second_shift_of_half_size_and_hardly_a_clean_one() -> None:
    """Goal G11 of the search study: 8 runs at each of four states, a jump of 4 sd, a second shift of half of it."""
    rng = np.random.default_rng(11)
    flags = {
        second: sum(
            rest_of(Levels(*(list(mean + rng.normal(size=8)) for mean in (0.0, 0.0, 4.0, 4.0 + second))))[1].is_worse
            for _ in range(300)
        )
        for second in (0.0, 2.0)
    }
    assert flags[2.0] >= 0.8 * 300 and flags[0.0] <= 0.03 * 300


def test_plateau_is_one_level_unlike_both_ends() -> None:
    rng = np.random.default_rng(2)
    ends = [list(mean + rng.normal(size=8)) for mean in (0.0, 16.0)]
    level = [list(8.0 + rng.normal(size=3)) for _ in range(3)]
    slope = [list(mean + rng.normal(size=3)) for mean in (3.0, 8.0, 13.0)]
    assert is_plateau(ends[0], level, ends[1])
    assert not is_plateau(ends[0], slope, ends[1])
    assert not is_plateau(ends[0], [[8.0, 8.1]], ends[1]), "two runs are no level"
    assert not is_plateau(ends[0], [list(0.5 + rng.normal(size=3)) for _ in range(3)], ends[1])


def test_step_needs_an_exact_test() -> None:
    low, high = [0.0, 0.1, 0.2, 0.3, 0.4], [1.0, 1.1, 1.2, 1.3, 1.4]
    assert is_step(low, high) and not is_step(high, low) and not is_step(low[:1], high[:1])
