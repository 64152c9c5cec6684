"""Bad stretches before the culprit: seen ones are told with their edges, and never move the answer."""

from __future__ import annotations

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.search.islands import ISLANDS, MAX_ISLAND_RUNS
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Island, Known, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation
from tests.support.simulated_regression import World, solve

NUM = 32


def island_world(first: int, last: int, culprit: int, *, seed: int = 0, gap: float = 12.0) -> World:
    """Return a world where changes `first` and `culprit` make it bad and `last` heals the first."""
    return World(
        mean_of=lambda point: gap * ((point.holds(first) and not point.holds(last)) or point.holds(culprit)), seed=seed
    )


@pytest.mark.parametrize("slots", [1, 4])
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


def test_plan_of_a_clean_history_runs_nothing_for_islands() -> None:
    world = World(mean_of=lambda point: 12.0 * point.holds(20), seed=3)
    rules, seen = Rules(NUM, EndRules(Metric())), []
    while (plan := make_plan(rules, Known(seen, slots=4))).answer is None:
        assert all(request.part == 0 for request in plan.wanted)
        seen += [world.run(request) for request in plan.wanted[:4]]
    assert plan.answer.islands == ()


def test_plan_answers_the_same_with_and_without_the_runs_of_islands() -> None:
    world, rules = island_world(9, 17, 24), Rules(NUM, EndRules(Metric()))
    seen: list[Observation] = []
    num_island_runs = 0
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        num_island_runs += sum(request.part == ISLANDS for request in plan.wanted[:2])
        seen += [world.run(request) for request in plan.wanted[:2]]
    assert 0 < num_island_runs <= MAX_ISLAND_RUNS
    assert plan.posterior == make_plan(rules, Known([run for run in seen if run.part == 0], slots=2)).posterior
