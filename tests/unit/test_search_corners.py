"""Four corners: the code, the rest, both, or either."""

from __future__ import annotations

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.corners import MIN_CHANGES, corner_points, has_corners
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import CornersOutcome, Known, Plan, Rules
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.outcome import Observation
from tests.support.simulated_regression import World, solve
from tests.unit.test_search_sets import free_rules, named, set_world

NUM_CODE, NUM = 40, 64
RULES = free_rules(NUM, num_ordered=NUM_CODE)
CODE, REST = corner_points(RULES)


@pytest.mark.parametrize("bits", [True, False])
@pytest.mark.parametrize(
    ("groups", "outcome"),
    [
        (((7,),), CornersOutcome.CODE_ALONE),
        (((50,),), CornersOutcome.REST_ALONE),
        (((7, 50),), CornersOutcome.BOTH_NEEDED),
        (((7,), (50,)), CornersOutcome.EITHER_ENOUGH),
        (((7, 21),), CornersOutcome.CODE_ALONE),
        (((45, 60),), CornersOutcome.REST_ALONE),
        (((7, 45, 60),), CornersOutcome.BOTH_NEEDED),
    ],
)
def test_plan_says_which_block_it_is_and_finds_the_culprits(
    groups: tuple[tuple[int, ...], ...], outcome: CornersOutcome, bits: bool
) -> None:
    solved = solve(set_world(*groups, bits=bits), RULES, slots=3)
    assert solved.plan.corners is not None and solved.plan.corners.outcome is outcome
    assert sorted(named(solved)) == sorted(groups), solved.answer


def after_the_ends(world: World, rules: Rules, *, slots: int = 1) -> tuple[Plan, list[Observation]]:
    """Return the first plan with proved ends."""
    seen: list[Observation] = []
    while (plan := make_plan(rules, Known(seen, slots=slots))).ends.status is not EndsStatus.SEPARATED:
        seen += [world.run(request) for request in plan.wanted[:slots]]
    return plan, seen


def test_corners_are_the_first_two_runs_after_the_ends() -> None:
    world = set_world((7,))
    plan, seen = after_the_ends(world, RULES)
    assert [request.point for request in plan.wanted[:2]] == [CODE, REST]
    assert Point(NUM_CODE) == CODE and [REST.holds(idx) for idx in (0, 39, 40, 63)] == [False, False, True, True]
    seen += [world.run(request) for request in plan.wanted[:2]]
    later = make_plan(RULES, Known(seen))
    assert later.corners is not None and later.corners.outcome is CornersOutcome.CODE_ALONE
    assert later.wanted and {request.point for request in later.wanted}.isdisjoint({CODE, REST})


def test_a_running_corner_stays_wanted() -> None:
    plan, seen = after_the_ends(set_world((7,)), RULES, slots=2)
    again = make_plan(RULES, Known(seen, in_flight=plan.wanted[:2], slots=2))
    assert set(plan.wanted[:2]) <= set(again.wanted)


@pytest.mark.parametrize(("num", "num_ordered"), [(4, 2), (64, 0), (64, 64)])
def test_few_changes_or_one_block_have_no_corners(num: int, num_ordered: int) -> None:
    rules = free_rules(num, num_ordered=num_ordered)
    assert not has_corners(rules) and has_corners(free_rules(MIN_CHANGES, num_ordered=2))
    assert solve(set_world((1,)), rules).plan.corners is None


def test_a_corner_that_cannot_be_run_is_said_and_the_other_one_tells_the_block() -> None:
    world = set_world((50,), is_broken=lambda point: point == CODE)
    solved = solve(world, RULES)
    corners = solved.plan.corners
    assert corners is not None and corners.outcome is CornersOutcome.UNTESTABLE
    assert corners.code is not None and corners.code.verdict is VerdictKind.UNTESTABLE and corners.code.reason == "ImportError"
    assert corners.rest is not None and corners.rest.verdict is VerdictKind.BAD
    assert named(solved) == [(50,)]


def test_the_other_corner_steers_the_search_where_the_first_cannot_be_run() -> None:
    """All code cannot be run; the good code with the rest is bad: no version of the code is worth a run."""
    world = set_world((50,), is_broken=lambda point: point == CODE)
    plan, seen = after_the_ends(world, RULES)
    seen += [world.run(request) for request in plan.wanted[:2]]
    posterior = make_plan(RULES, Known(seen)).posterior
    assert sum(posterior[:NUM_CODE]) < 0.01 < min(posterior[NUM_CODE:])


def test_a_corner_that_cannot_be_built_is_said() -> None:
    world = set_world((50,), unbuildable={REST: "the config needs the new code"})
    corners = solve(world, RULES).plan.corners
    assert corners is not None and corners.outcome is CornersOutcome.UNTESTABLE
    assert corners.rest is not None and corners.rest.reason == "the config needs the new code"


def test_a_skipped_corner_is_never_run() -> None:
    rules = Rules(NUM, RULES.ends, num_ordered=NUM_CODE, skipped=frozenset({NUM_CODE}))
    world, seen = set_world((50,)), list[Observation]()
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    assert CODE not in {run.point for run in seen}
    assert plan.corners is not None and plan.corners.outcome is CornersOutcome.UNTESTABLE


def test_a_corner_that_decides_nothing_is_run_three_times_and_said() -> None:
    """The rest alone makes half of the gap."""

    def mean_of(point: Point) -> float:
        return 16.0 * point.holds(50) if point.holds(7) else 8.0 * point.holds(50)

    world, seen = World(mean_of=mean_of, seed=1), list[Observation]()
    while (plan := make_plan(RULES, Known(seen, slots=4))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:4]]
    assert sum(run.point == REST and run.attempt == 0 for run in seen) == 3
    assert plan.corners is not None and plan.corners.outcome is CornersOutcome.UNCLEAR
    assert plan.corners.code is not None and plan.corners.code.verdict is VerdictKind.GOOD
