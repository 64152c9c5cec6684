"""Changes that can only be changed together: stretches of free changes in which nothing can be run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.changes import Point, make_point
from bisect_train.search.coupling import COUPLING, MAX_RUNS_PER_CHANGE, MORE_RUNS, Items, reduce_set
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, RemarkKind
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import ClaimStatus
from tests.support.simulated_regression import World, solve
from tests.unit.test_search_sets import NUM, free_rules, named, set_world


def reduce_fully(items: Items, is_bad) -> tuple[Items, int]:  # type: ignore[no-untyped-def]
    """Return what is left of a set, and how many subsets were judged."""
    known: dict[Items, bool] = {}
    while (step := reduce_set(items, known.get)).wanted:
        known |= {subset: is_bad(set(subset)) for subset in step.wanted}
    return step.items, len(known)


@given(st.integers(2, 24), st.sets(st.integers(0, 23), min_size=1, max_size=4))
def test_reduced_set_is_the_one_that_is_bad(num: int, wanted: set[int]) -> None:
    core = {idx % num for idx in wanted}
    assert reduce_fully(tuple(range(num)), core.__le__)[0] == tuple(sorted(core))


@given(st.integers(2, 16), st.data())
def test_reduced_set_of_coupled_changes_is_smallest(num: int, data: st.DataObject) -> None:
    """Groups of changes are valid together only: what is left is bad, valid, and no group of it can be left out."""
    group_of = data.draw(st.lists(st.integers(0, 3), min_size=num, max_size=num))
    culprit = data.draw(st.integers(0, num - 1))
    groups = [{idx for idx in range(num) if group_of[idx] == number} for number in range(4)]

    def is_bad(items: set[int]) -> bool:
        return culprit in items and all(not (group & items) or group <= items for group in groups)

    left, _ = reduce_fully(tuple(range(num)), is_bad)
    assert is_bad(set(left))
    assert not any(is_bad(set(left) - {idx}) for idx in left)


def test_reduction_of_a_large_group_halves_it() -> None:
    left, num_judged = reduce_fully(tuple(range(64)), {17}.__le__)
    assert left == (17,) and num_judged <= 4 * math.log2(64)


def torn(*group: int):  # type: ignore[no-untyped-def]
    """Return that a state with some of a group and without the others cannot be run."""
    return lambda point: len({point.holds(idx) for idx in group}) > 1


@pytest.mark.parametrize("bits", [True, False])
@pytest.mark.parametrize("group", [(30, 31), (30, 38), (0, 5), (20, 63), (10, 14, 19)])
def test_plan_names_coupled_changes_as_one_culprit(group: tuple[int, ...], bits: bool) -> None:
    solved = solve(set_world((group[0],), bits=bits, is_broken=torn(*group)), free_rules(), slots=2)
    assert (solved.answer.status, named(solved)) == ("isolated", [group]), solved.answer
    (culprit,) = solved.answer.culprits
    assert culprit.is_necessary is culprit.is_sufficient is True
    assert culprit.claims[1].claim.healthy == make_point(NUM, minus=group)
    assert RemarkKind.COUPLED in {remark.kind for remark in solved.answer.remarks}


def test_plan_names_a_culprit_between_coupled_changes_alone() -> None:
    solved = solve(set_world((33,), is_broken=torn(30, 38)), free_rules(), slots=2)
    assert named(solved) == [(33,)] and not solved.answer.remarks


def test_plan_of_coupled_changes_beside_the_culprit_does_not_blame_them() -> None:
    for culprit in (29, 32, 50):
        solved = solve(set_world((culprit,), is_broken=torn(30, 31)), free_rules(), slots=2)
        assert named(solved) == [(culprit,)]


def test_plan_of_ordered_changes_that_cannot_be_run_stays_with_candidates() -> None:
    solved = solve(set_world((30,), is_broken=torn(30, 33)), free_rules(num_ordered=NUM), slots=2)
    assert solved.answer.status == "candidates" and 30 in {idx for idx, _ in solved.answer.candidates}


def test_plan_of_coupled_changes_tries_few_sets_and_in_another_part() -> None:
    world, rules, seen = set_world((30,), is_broken=torn(30, 38)), free_rules(), list[Observation]()
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    tried = [run for run in seen if run.part == COUPLING and run.attempt == 0]
    assert 0 < len(tried) <= MAX_RUNS_PER_CHANGE * 9 + MORE_RUNS
    assert {run.attempt for run in seen if run.part == COUPLING} == {0, 1}


def test_plan_of_a_stretch_that_cannot_be_reduced_stops() -> None:
    """Nothing between 10 and 60 can be run unless all of it is there."""
    world = set_world((30,), is_broken=torn(*range(10, 60)))
    solved = solve(world, free_rules(), slots=4, max_probes=1000)
    assert named(solved) == [tuple(range(10, 60))]


def test_plan_names_no_group_whose_proof_fails() -> None:
    """The group acts only with an earlier change: alone it leaves the good end healthy."""
    solved = solve(set_world((5, 30), is_broken=torn(30, 31)), free_rules(), slots=2)
    assert solved.answer.status == "candidates"
    assert [claim.status for claim in solved.answer.culprits[0].claims][2] is ClaimStatus.FAILED


def test_plan_of_noise_without_a_regression_names_no_group() -> None:
    for seed in range(8):
        world = World(mean_of=lambda point: 0.0, is_broken=torn(30, 31), seed=seed)
        assert solve(world, free_rules(), slots=4).answer.status in ("no_regression", "not_reproduced")


def test_plan_shows_that_a_member_which_can_be_left_out_is_needed() -> None:
    """Noise made 7 look needed beside 2 and 8, which can only be changed together: the proof of the group did not see it."""
    for seed in (109, *range(6)):
        world = set_world((2, 8), bits=False, seed=seed, is_broken=torn(2, 8))
        world.mean_of = lambda point: 6.0 * (point.holds(2) and point.holds(8))
        solved = solve(world, free_rules(32), slots=4)
        assert solved.answer.status == "candidates" or named(solved) == [(2, 8)], seed


def test_a_point_of_the_stretch_is_the_version_where_it_is_one() -> None:
    assert make_point(10, plus=(10, 11)) == Point(12)
