"""Candidates beside versions that cannot run: is the culprit among them at all?"""

from __future__ import annotations

import pytest

from bisect_train.core.changes import Point, make_point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.outside import MAX_RUNS_OF_SET, MAX_SETS, check_candidates
from bisect_train.search.terms import Answer, Known, Phase, Plan, Rules
from bisect_train.verdict.end_terms import EndRules
from tests.support.observations import LOSS, measured, separated_ends
from tests.support.simulated_regression import Solved, World, solve

NUM = 32


def world_of(culprit: int, *, broken: tuple[int, int], island: tuple[int, int], seed: int = 0, bits: bool = True) -> World:
    """Return a world that cannot run from change broken[0] to broken[1], and is bad from island[0] to island[1] and at last."""

    def is_bad(point: Point) -> bool:
        return (point.holds(island[0]) and not point.holds(island[1])) or point.holds(culprit)

    return World(
        mean_of=lambda point: 10.0 * is_bad(point),
        is_broken=lambda point: point.holds(broken[0]) and not point.holds(broken[1]),
        class_of=lambda point: ("bad" if is_bad(point) else "good") if bits else None,
        seed=seed,
    )


def solve_it(world: World, *, slots: int = 2) -> Solved:
    """Run a bisection to its answer."""
    return solve(world, Rules(NUM, EndRules(Metric())), slots=slots, max_probes=1500)


def listed(answer: Answer) -> set[int]:
    """Return the candidates of an answer."""
    return {idx for idx, _ in answer.candidates}


@pytest.mark.parametrize("bits", [True, False])
@pytest.mark.parametrize("slots", [1, 4])
def test_plan_finds_the_culprit_behind_a_broken_and_a_repaired_stretch(bits: bool, slots: int) -> None:
    """The bisection meets 16 (bad, repaired later) and would end with the broken stretch before it; the culprit is 27."""
    world = world_of(27, broken=(9, 14), island=(11, 20), bits=bits)
    answer = solve_it(world, slots=slots).answer
    assert answer.status == "isolated" and [item.changes for item in answer.culprits] == [(27,)]


def test_plan_says_that_the_bad_end_heals_without_the_candidates() -> None:
    world = world_of(12, broken=(9, 14), island=(1, 2))
    solved = solve_it(world)
    assert solved.answer.status == "candidates" and 12 in listed(solved.answer)
    assert "without all of them the bad end is healthy" in solved.answer.reason


def test_plan_spends_few_runs_on_candidates_that_are_right() -> None:
    tried = []
    world = world_of(12, broken=(9, 14), island=(1, 2), bits=False)
    run = world.run

    def noting(request):  # type: ignore[no-untyped-def]
        tried.append(request)
        return run(request)

    world.run = noting  # type: ignore[method-assign]
    solve_it(world)
    num = sum(request.attempt == 0 and request.point.prefix == NUM and len(request.point.minus) > 1 for request in tried)
    assert 1 <= num <= MAX_RUNS_OF_SET


def test_plan_keeps_candidates_that_were_not_the_only_ones() -> None:
    """Two changes make it worse, each in a stretch that cannot run: both stretches are told."""
    world = World(
        mean_of=lambda point: 10.0 * (point.holds(6) or point.holds(24)),
        is_broken=lambda point: any(point.holds(first) and not point.holds(first + 4) for first in (4, 22)),
        class_of=lambda point: "bad" if point.holds(6) or point.holds(24) else "good",
    )
    answer = solve_it(world).answer
    assert answer.status == "candidates" and {4, 5, 6, 7, 8, 22, 23, 24, 25, 26} <= listed(answer)
    assert "without all of them the bad end is healthy" in answer.reason


def test_plan_looks_behind_candidates_that_cannot_be_left_out() -> None:
    """The bad end without the whole stretch is a conflict: versions behind it show that it was healthy again."""
    world = world_of(27, broken=(9, 14), island=(11, 20))
    for first in range(NUM):
        for last in range(first + 2, NUM):
            world.unbuildable[make_point(NUM, minus=tuple(range(first, last)))] = "conflict"
    answer = solve_it(world).answer
    assert answer.status == "isolated" and [item.changes for item in answer.culprits] == [(27,)]


def test_plan_says_where_nothing_could_be_tested() -> None:
    world = world_of(12, broken=(9, 14), island=(1, 2))
    for first in range(NUM):
        for last in range(first + 2, NUM):
            world.unbuildable[make_point(NUM, minus=tuple(range(first, last)))] = "conflict"
    answer = solve_it(world).answer
    assert answer.status == "candidates" and 12 in listed(answer)
    assert "cannot be run" in answer.reason


def test_plan_tests_no_more_than_a_few_sets() -> None:
    """A fourth set is not run any more; those without which the bad end stayed bad are told beside it."""
    rules, ends = Rules(NUM, EndRules(LOSS)), separated_ends(20.0)
    answer = Answer("candidates", "stuck", candidates=((12, 0.5), (13, 0.5)))
    broken = {13: Evidence(VerdictKind.UNTESTABLE)}
    plan = Plan(Phase.DONE, (), ends, posterior=(1.0 / NUM,) * NUM, evidence=broken, answer=answer)
    sets = [(2, 3), (5, 6), (8, 9)]
    runs = [measured(make_point(NUM, minus=pair), 0, 20.0) for pair in sets]
    open_plan = check_candidates(rules, Known(runs[:-1]), plan)
    assert open_plan.answer is None and [want.point for want in open_plan.wanted] == [make_point(NUM, minus=(12, 13))]
    ended = check_candidates(rules, Known(runs), plan)
    assert len(sets) == MAX_SETS and ended.answer is not None
    assert listed(ended.answer) == {2, 3, 5, 6, 8, 9, 12, 13}
