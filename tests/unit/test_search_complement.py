"""Either is enough: the range without what was found is searched again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.changes import GOOD_END, Point, make_point
from bisect_train.search.complement import MAX_CULPRITS
from bisect_train.search.leftout import COMPLEMENT, LeftOut
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, RemarkKind, Request, Rules
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import ClaimKind, ClaimStatus
from tests.support.simulated_regression import World, solve
from tests.unit.test_search_sets import NUM, free_rules, named, set_world


@given(st.sets(st.integers(0, 9), min_size=1, max_size=9), st.sets(st.integers(0, 9)))
def test_left_out_moves_points_in_and_out(left_out: set[int], held: set[int]) -> None:
    left = LeftOut(tuple(sorted(left_out)))
    point = make_point(10, minus=tuple(set(range(10)) - held))
    inside = left.inside(point)
    assert (inside is None) == bool(left_out & held)
    if inside is not None:
        kept = [idx for idx in range(10) if idx not in left_out]
        assert {kept[idx] for idx in range(len(kept)) if inside.holds(idx)} == held
        assert left.outside(inside) == point
    assert left.inside(GOOD_END) == left.outside(GOOD_END) == GOOD_END


@pytest.mark.parametrize("num_ordered", [0, 32, NUM])
@pytest.mark.parametrize("groups", [((20,), (50,)), ((0,), (63,)), ((30,), (31,)), ((9,), (25,), (60,))])
def test_plan_names_each_change_that_is_enough(groups: tuple[tuple[int, ...], ...], num_ordered: int) -> None:
    solved = solve(set_world(*groups), free_rules(num_ordered=num_ordered), slots=2)
    assert (solved.answer.status, sorted(named(solved))) == ("several", list(groups)), solved.answer
    assert RemarkKind.EITHER_ENOUGH in {remark.kind for remark in solved.answer.remarks}
    assert all(culprit.is_necessary is False and culprit.is_sufficient is True for culprit in solved.answer.culprits)


def test_plan_proves_each_with_less_error_than_the_one_before() -> None:
    world, rules, seen = set_world((20,), (50,)), free_rules(), list[Observation]()
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    attempts = {change: {run.attempt for run in seen if run.proof_of == change and run.attempt} for change in (20, 50)}
    assert attempts == {20: {1}, 50: {2}}
    assert {run.part for run in seen if run.proof_of == 50} == {COMPLEMENT}


@pytest.mark.parametrize("groups", [((20, 50), (33,)), ((33,), (20, 50)), ((11,), (20, 50)), ((5, 8), (40, 60))])
def test_plan_names_a_pair_beside_another_that_is_enough(groups: tuple[tuple[int, ...], ...]) -> None:
    solved = solve(set_world(*groups), free_rules(), slots=2)
    assert (solved.answer.status, sorted(named(solved))) == ("several", sorted(groups)), solved.answer


def test_plan_of_a_failure_names_each_change_that_is_enough() -> None:
    world = World(mean_of=lambda point: 0.0, signature_of=lambda p: "NaN" if p.holds(20) or p.holds(50) else "")
    solved = solve(world, free_rules(), slots=2)
    assert (solved.answer.status, sorted(named(solved))) == ("several", [(20,), (50,)])


def test_plan_of_a_failure_that_comes_and_goes_is_no_case_of_either() -> None:
    world = World(
        mean_of=lambda point: 0.0,
        signature_of=lambda p: "NaN" if p.holds(20) or p.holds(50) else "",
        failure_rate_of=lambda point: 0.7,
    )
    solved = solve(world, free_rules(), slots=4, max_probes=2000)
    assert solved.answer.status == "candidates" and 20 in {idx for idx, _ in solved.answer.candidates}


def test_plan_of_one_flaky_or_noisy_culprit_never_looks_for_another_that_is_enough() -> None:
    for seed in range(3):
        rates = {"signature_of": lambda p: "NaN" if p.holds(20) else "", "failure_rate_of": lambda point: 0.7}
        for world in (set_world((20,), bits=False, seed=seed), World(mean_of=lambda point: 0.0, seed=seed, **rates)):
            rules, seen = free_rules(), list[Observation]()
            while (plan := make_plan(rules, Known(seen, slots=4))).answer is None:
                assert all(request.part == 0 for request in plan.wanted)
                seen += [world.run(request) for request in plan.wanted[:4]]
            assert [culprit.changes for culprit in plan.answer.culprits] in ([(20,)], [])


def test_plan_where_a_later_change_made_up_for_the_first_names_the_one_that_is_left() -> None:
    """10 breaks it, 55 repairs that, 60 breaks it for good: 10 is enough on the good end, and no culprit of the bad end."""

    def is_bad(point: Point) -> bool:
        return point.holds(60) or (point.holds(10) and not point.holds(55))

    world = World(mean_of=lambda point: 10.0 * is_bad(point), class_of=lambda point: f"{is_bad(point)}")
    solved = solve(world, free_rules(), slots=2)
    assert (solved.answer.status, named(solved)) == ("isolated", [(60,)])
    assert solved.answer.culprits[0].is_necessary is True
    assert [(remark.kind, remark.first) for remark in solved.answer.remarks] == [(RemarkKind.UNDONE, 10)]


def test_plan_where_the_first_cannot_be_left_out_answers_as_before() -> None:
    world = set_world((20,), (50,), unbuildable={make_point(NUM, minus=(20,)): "conflict"})
    solved = solve(world, free_rules(num_ordered=NUM), slots=2)
    assert named(solved) in ([(20,)], []) and not any(r.kind is RemarkKind.EITHER_ENOUGH for r in solved.answer.remarks)


def test_plan_where_the_second_search_is_stuck_names_nobody_alone() -> None:
    """Without the first one no version behind it can be built."""
    broken = {make_point(version, minus=(20,)): "conflict" for version in range(22, NUM)}
    solved = solve(set_world((20,), (50,), unbuildable=broken), free_rules(), slots=2)
    assert solved.answer.status == "candidates"
    assert [culprit.is_necessary for culprit in solved.answer.culprits] == [False]


def test_plan_of_more_than_four_that_are_enough_names_nobody_for_sure() -> None:
    groups = tuple((idx,) for idx in (5, 15, 25, 35, 45))
    assert len(groups) > MAX_CULPRITS
    assert solve(set_world(*groups), free_rules(), slots=2, max_probes=2000).answer.status == "candidates"


def test_plan_of_a_complement_depends_on_the_observations_only() -> None:
    world, rules, seen = set_world((20,), (33, 50), bits=False), free_rules(), list[Observation]()
    rng = np.random.default_rng(0)
    in_flight: list[Request] = []
    num_cancelled = 0
    while (plan := make_plan(rules, Known(seen, in_flight=in_flight, slots=3))).answer is None:
        shuffled = [seen[idx] for idx in rng.permutation(len(seen))]
        assert make_plan(rules, Known(shuffled, in_flight=in_flight, slots=3)).wanted == plan.wanted
        kept = [request for request in in_flight if request in plan.wanted]
        num_cancelled += len(in_flight) - len(kept)
        in_flight = [*kept, *(request for request in plan.wanted if request not in kept)][:3]
        done = in_flight.pop(0)
        keys = {(run.point, run.seed_idx, run.repeat, run.attempt, run.part) for run in seen}
        assert (done.point, done.seed_idx, done.repeat, done.attempt, done.part) not in keys, f"asked again: {done}"
        seen.append(world.run(done))
    assert sorted(culprit.changes for culprit in plan.answer.culprits) == [(20,), (33, 50)] and num_cancelled < 20


def test_joint_claims_are_about_the_bad_end_without_all_of_them() -> None:
    solved = solve(set_world((20,), (50,)), free_rules(), slots=2)
    healed, only = make_point(NUM, minus=(20, 50)), {20: make_point(NUM, minus=(50,)), 50: make_point(NUM, minus=(20,))}
    for culprit in solved.answer.culprits:
        statuses = {
            (result.claim.healthy, result.claim.sick): result.status
            for result in culprit.claims
            if result.claim.kind is ClaimKind.HEALS
        }
        assert statuses[healed, only[culprit.changes[0]]] is ClaimStatus.HELD


def test_the_range_without_a_culprit_knows_what_is_free_and_skipped() -> None:
    """50 needs 45, which is told in the numbers of the whole; no skipped version is run there either."""
    world = set_world((3,), (50,), is_broken=lambda point: point.holds(50) and not point.holds(45))
    rules, seen = Rules(NUM, free_rules().ends, num_ordered=32, skipped=frozenset({20, 40})), list[Observation]()
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    assert sorted(culprit.changes for culprit in plan.answer.culprits) == [(3,), (50,)]
    assert (RemarkKind.NEEDS, 45) in {(remark.kind, remark.first) for remark in plan.answer.remarks}
    assert {run.point for run in seen}.isdisjoint({make_point(version, minus=(3,)) for version in (20, 40)})
