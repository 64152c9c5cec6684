"""Bad stretches before the culprit: they are looked for and told with their edges, and never move the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.search.islands import (
    DECIDED,
    ISLANDS,
    MAX_ISLAND_RUNS,
    MAX_LOOKS,
    MIN_UNSEEN,
    UNSEEN_SHARE,
    spread_versions,
)
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Island, Known, Plan, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation
from tests.support.simulated_regression import World, solve

NUM = 32


def island_world(first: int, last: int, culprit: int, *, seed: int = 0, gap: float = 12.0) -> World:
    """Return a world where changes `first` and `culprit` make it bad and `last` heals the first."""
    return World(
        mean_of=lambda point: gap * ((point.holds(first) and not point.holds(last)) or point.holds(culprit)), seed=seed
    )


@pytest.mark.parametrize("slots", [1, 4, 64])
def test_plan_tells_where_a_bad_stretch_began_and_ended(slots: int) -> None:
    solved = solve(island_world(9, 17, 24), Rules(NUM, EndRules(Metric())), slots=slots, max_probes=1500)
    assert [culprit.changes for culprit in solved.answer.culprits] == [(24,)]
    assert solved.answer.islands == (Island(9, 10, 17, 18),)


def test_plan_leaves_an_edge_open_where_versions_cannot_run() -> None:
    world = island_world(9, 17, 24)
    world.is_broken = lambda point: point.is_prefix and 18 <= point.prefix <= 20
    seen = [world.run(Request(Point(16), 0))]
    while (plan := make_plan(Rules(NUM, EndRules(Metric())), Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    (island,) = plan.answer.islands
    assert (island.good_before, island.first_bad) == (9, 10) and island.last_bad == 17 and island.good_again > 20


def longest_unseen(plan: Plan, culprit: int) -> int:
    """Return how many versions in a row before the culprit have no verdict."""
    judged = [version for version, item in plan.evidence.items() if 0 < version < culprit and item.verdict in DECIDED]
    return max(after - before - 1 for before, after in pairwise([0, *judged, culprit]))


@pytest.mark.parametrize("slots", [1, 8])
def test_plan_looks_where_a_clean_history_was_not_seen_and_spends_little(slots: int) -> None:
    num_looks = []
    for seed in range(12):
        culprit = 5 * seed + 4
        world = World(mean_of=lambda point, c=culprit: 12.0 * point.holds(c), seed=seed)  # type: ignore[misc]
        rules, seen = Rules(64, EndRules(Metric())), []
        while (plan := make_plan(rules, Known(seen, slots=slots))).answer is None:
            seen += [world.run(request) for request in plan.wanted[:slots]]
        assert [item.changes for item in plan.answer.culprits] == [(culprit,)] and plan.answer.islands == ()
        num_looks.append(sum(run.part == ISLANDS for run in seen))
        assert longest_unseen(plan, culprit) <= max(MIN_UNSEEN, (culprit - 1) // UNSEEN_SHARE) + 1
    assert max(num_looks) <= MAX_LOOKS and sum(num_looks) / len(num_looks) <= 5


def test_plan_finds_a_bad_stretch_that_the_search_jumps_over() -> None:
    """Bisection of 64 versions with a culprit near the end runs 32, 48, ...: it never meets the stretch from 12 to 22."""
    world, rules = island_world(11, 22, 50, seed=2), Rules(64, EndRules(Metric()))
    seen: list[Observation] = []
    while (plan := make_plan(rules, Known(seen))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:1]]
    assert not any(run.part == 0 and run.point.is_prefix and 11 < run.point.prefix <= 22 for run in seen)
    assert plan.answer.islands == (Island(11, 12, 22, 23),)


def test_plan_does_not_look_among_changes_that_can_come_in_any_order() -> None:
    rules, seen = Rules(64, EndRules(Metric()), num_ordered=0), []
    world = World(mean_of=lambda point: 12.0 * point.holds(50), seed=3)
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    assert [item.changes for item in plan.answer.culprits] == [(50,)]
    assert not any(run.part == ISLANDS for run in seen)


def test_plan_keeps_the_looks_that_run_and_cancels_none() -> None:
    """One of several looks finishes at a time: the others stay wanted, and no more than allowed are made."""
    world, rules = World(mean_of=lambda point: 12.0 * point.holds(60), seed=1), Rules(64, EndRules(Metric()))
    seen: list[Observation] = []
    running: list[Request] = []
    num_looks = 0
    while (plan := make_plan(rules, Known(seen, in_flight=running, slots=3))).answer is None:
        gone = [request for request in running if request not in plan.wanted and request.part == ISLANDS]
        assert not gone, "a running look is no longer wanted"
        running = [request for request in plan.wanted if request in running][:3]
        new = [request for request in plan.wanted if request not in running][: 3 - len(running)]
        num_looks += sum(request.part == ISLANDS for request in new)
        running += new
        seen.append(world.run(running.pop(0)))
    assert 0 < num_looks <= MAX_LOOKS


def test_plan_runs_a_weak_bad_stretch_again_before_it_is_told() -> None:
    """One look in a clean history shows a value of the bad end by chance: a second run takes it back."""
    world, rules = World(mean_of=lambda point: 6.0 * point.holds(60), seed=4), Rules(64, EndRules(Metric()))
    seen: list[Observation] = []
    odd: set[int] = set()
    while (plan := make_plan(rules, Known(seen, slots=4))).answer is None:
        for request in plan.wanted[:4]:
            run = world.run(request)
            if request.part == ISLANDS and not odd:
                odd.add(request.point.prefix)
                run = replace(run, outcome=replace(run.outcome, value=4.5))
            seen.append(run)
    runs = [run for run in seen if run.part == ISLANDS and run.point.prefix in odd]
    assert len(runs) == 2 and plan.answer.islands == ()


@pytest.mark.parametrize(
    ("edges", "free", "longest", "num", "chosen"),
    [
        ([0, 10], range(1, 10), 4, 6, [5]),
        ([0, 10], range(1, 10), 2, 6, [2, 5, 7]),
        ([0, 10], range(1, 10), 2, 1, [5]),  # as short as one can make it
        ([0, 10], range(1, 10), 2, 0, []),
        ([0, 10], [1, 9], 4, 6, [1]),  # the nearest that can run
        ([0, 10, 13], range(1, 13), 9, 6, []),
        ([0, 30, 40], range(1, 40), 9, 2, [10, 20]),
    ],
)
def test_spread_versions_cuts_the_longest_stretches(
    edges: list[int], free: Sequence[int], longest: int, num: int, chosen: list[int]
) -> None:
    assert spread_versions(edges, [version for version in free if version not in edges], longest=longest, num=num) == chosen


def test_plan_answers_the_same_with_and_without_the_runs_of_islands() -> None:
    world, rules = island_world(9, 17, 24), Rules(NUM, EndRules(Metric()))
    seen: list[Observation] = []
    num_island_runs = 0
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        num_island_runs += sum(request.part == ISLANDS for request in plan.wanted[:2])
        seen += [world.run(request) for request in plan.wanted[:2]]
    assert 0 < num_island_runs <= MAX_ISLAND_RUNS
    assert plan.posterior == make_plan(rules, Known([run for run in seen if run.part == 0], slots=2)).posterior
