"""Sets of free changes: what a change needs to break the good end, the table of a pair, halves in one round."""

from __future__ import annotations

import numpy as np
import pytest

from bisect_train.core.changes import Point, make_point
from bisect_train.core.question import Metric
from bisect_train.search.bitcode import halves
from bisect_train.search.partner import two_by_two
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, RemarkKind, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation, OutcomeKind
from tests.support.simulated_regression import Solved, World, solve

NUM = 64


def holds_all(point: Point, group: tuple[int, ...]) -> bool:
    return all(point.holds(idx) for idx in group)


def set_world(*groups: tuple[int, ...], bits: bool = True, **more: object) -> World:
    """A world that is worse by 10 with all changes of any group."""

    def is_bad(point: Point) -> bool:
        return any(holds_all(point, group) for group in groups)

    class_of = (lambda point: f"{is_bad(point)}") if bits else (lambda point: None)
    return World(mean_of=lambda point: 10.0 * is_bad(point), class_of=class_of, **more)  # type: ignore[arg-type]


def still_world(*groups: tuple[int, ...], **more: object) -> World:
    """The same, and every seed gives the same run."""
    world = set_world(*groups, noise_sd=0.0, **more)
    outcome = world._outcome

    def same(request: Request):  # type: ignore[no-untyped-def]
        found = outcome(request)
        seedless = found.digest.split(":")[0]
        return found if found.kind is not OutcomeKind.MEASURED else type(found)(found.kind, value=found.value, digest=seedless)

    world._outcome = same  # type: ignore[method-assign]
    return world


def free_rules(num: int = NUM, *, num_ordered: int = 0, min_effect: float | None = None) -> Rules:
    return Rules(num, EndRules(Metric(), min_effect=min_effect), num_ordered=num_ordered)


def named(solved: Solved) -> list[tuple[int, ...]]:
    return [culprit.changes for culprit in solved.answer.culprits]


@pytest.mark.parametrize("num_ordered", [0, 30, NUM])
@pytest.mark.parametrize("group", [(20, 40), (0, 63), (5, 33, 50), (3, 20, 21, 60)])
def test_plan_names_the_smallest_set_of_up_to_four_that_breaks_the_good_end(group: tuple[int, ...], num_ordered: int) -> None:
    """Key x key, commit x key, commit x commit."""
    solved = solve(set_world(group), free_rules(num_ordered=num_ordered), slots=2)
    assert (solved.answer.status, named(solved)) == ("isolated", [group]), solved.answer
    (culprit,) = solved.answer.culprits
    assert culprit.is_necessary is culprit.is_sufficient is True
    healed = {result.claim.healthy for result in culprit.claims if result.claim.kind.value == "heals"}
    assert healed == {make_point(NUM, minus=(idx,)) for idx in group}
    assert culprit.claims[-1].claim.sick == make_point(0, plus=group)


def test_plan_of_five_that_need_each_other_names_none_of_them_as_enough() -> None:
    solved = solve(set_world((1, 9, 20, 33, 50)), free_rules(), slots=2)
    assert all(culprit.is_sufficient is not True for culprit in solved.answer.culprits)


def test_plan_of_a_noisy_pair_names_both() -> None:
    found = [named(solve(set_world((11, 40), bits=False, seed=seed), free_rules(), slots=4)) for seed in range(4)]
    assert found == [[(11, 40)]] * 4


@pytest.mark.parametrize("bits", [True, False])
def test_two_by_two_holds_every_cell_of_a_pair_on_the_same_fresh_seeds(bits: bool) -> None:
    world, rules, seen = set_world((11, 40), bits=bits), free_rules(), list[Observation]()
    while (plan := make_plan(rules, Known(seen, slots=2))).answer is None:
        seen += [world.run(request) for request in plan.wanted[:2]]
    table = two_by_two(Known(seen), (11, 40))
    seeds = [{run.seed_idx for run in cell} for cell in (table.first, table.second, table.both)]
    assert seeds[0] and seeds[0] == seeds[1] == seeds[2] <= {run.seed_idx for run in table.neither}
    means = [np.mean([run.outcome.value for run in cell]) for cell in (table.neither, table.first, table.second, table.both)]
    assert means == pytest.approx([0.0, 0.0, 0.0, 10.0], abs=3.0)


def test_two_by_two_leaves_a_cell_empty_that_cannot_be_built() -> None:
    world = set_world((11, 40), unbuildable={make_point(0, plus=(11,)): "refused"})
    solved = solve(world, free_rules(), slots=2)
    assert named(solved) == [(11, 40)]
    assert two_by_two(Known(), (11, 40)).first == ()


def test_plan_tells_a_key_that_another_one_needs_from_the_cause() -> None:
    """40 cannot run without 7, and does it alone otherwise."""
    world = set_world((40,), is_broken=lambda point: point.holds(40) and not point.holds(7))
    solved = solve(world, free_rules(), slots=2)
    assert named(solved) == [(40,)] and solved.answer.culprits[0].is_sufficient is None
    assert [(remark.kind, remark.first) for remark in solved.answer.remarks] == [(RemarkKind.NEEDS, 7)]


def test_plan_of_a_pair_names_a_member_that_others_need() -> None:
    """Without 11 the bad end cannot run, since 50 needs it; on the good end it can be left out."""
    world = set_world((11, 40), is_broken=lambda point: point.holds(50) and not point.holds(11))
    solved = solve(world, free_rules(), slots=2)
    assert named(solved) == [(11, 40)]
    assert solved.answer.culprits[0].is_necessary is None, "the bad end without it was never seen"


def test_plan_names_no_pair_of_which_one_is_enough() -> None:
    """11 breaks it, 20 repairs that, and 40 undoes the repair: on the good end 11 needs nobody."""

    def is_bad(point: Point) -> bool:
        return point.holds(11) and (point.holds(40) or not point.holds(20))

    world = World(mean_of=lambda point: 10.0 * is_bad(point), class_of=lambda point: f"{is_bad(point)}")
    solved = solve(world, free_rules(), slots=2)
    assert named(solved) == [(40,)] and solved.answer.culprits[0].is_sufficient is False


# ---- the bit code -----------------------------------------------------------------------------------------------------------


def test_halves_tell_every_two_changes_apart() -> None:
    tests = halves(free_rules(37, num_ordered=5))
    words = {idx: tuple(point.holds(idx) for point in tests) for idx in range(5, 37)}
    assert len(set(words.values())) == 32 and len(tests) == 10
    assert all(sum(word) == 5 for word in words.values()), "one half of every bit"
    assert all(point.holds(idx) for point in tests for idx in range(5))


def rounds_of(world: World, rules: Rules, slots: int) -> list[set[Point]]:
    """Return the new points of each round."""
    seen: list[Observation] = []
    rounds: list[set[Point]] = []
    while (plan := make_plan(rules, Known(seen, slots=slots))).answer is None:
        batch = plan.wanted[:slots]
        rounds.append({request.point for request in batch} - {run.point for run in seen})
        seen += [world.run(request) for request in batch]
    assert plan.phase is Phase.DONE
    return [new for new in rounds if new]


@pytest.mark.parametrize("culprit", [0, 77, 127])
def test_plan_with_workers_for_the_bit_code_finds_one_culprit_of_128_in_two_rounds(culprit: int) -> None:
    """Goal G13: 14 tests, then those of the proof; the round before is that of the ends."""
    rules = free_rules(128, min_effect=1.0)
    rounds = rounds_of(still_world((culprit,)), rules, slots=16)
    assert [set(halves(rules)) <= new for new in rounds] == [False, True, False]
    assert len(rounds[2] | {make_point(0, plus=(culprit,)), make_point(128, minus=(culprit,))}) <= 4
    assert named(solve(still_world((culprit,)), rules, slots=16)) == [(culprit,)]


@pytest.mark.parametrize("groups", [((20, 90),), ((20,), (90,)), ((3, 40, 100),)])
def test_plan_falls_back_from_the_bit_code_where_there_is_not_one_culprit(groups: tuple[tuple[int, ...], ...]) -> None:
    solved = solve(still_world(*groups), free_rules(128, min_effect=1.0), slots=16)
    assert sorted(named(solved)) == sorted(groups)


@pytest.mark.parametrize(("slots", "num"), [(13, 128), (16, 15)])
def test_plan_with_few_workers_or_few_changes_does_without_the_bit_code(slots: int, num: int) -> None:
    rules = free_rules(num, min_effect=1.0)
    run = set[Point]().union(*rounds_of(still_world((9,)), rules, slots))
    assert not set(halves(rules)) <= run


def test_plan_where_seeds_spread_does_without_the_bit_code() -> None:
    rules = free_rules(128)
    run = set[Point]().union(*rounds_of(set_world((9,), bits=False), rules, 16))
    assert not set(halves(rules)) <= run
