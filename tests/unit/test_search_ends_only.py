"""A question about the ends alone: it ends where a search would begin, and can count on seeds of its own."""

from __future__ import annotations

import pytest

from bisect_train.core.question import Metric
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, Rules
from bisect_train.verdict.end_terms import EndRules, EndsStatus
from tests.support.simulated_regression import solve, step_world


def rules(**more: int) -> Rules:
    return Rules(num_changes=8, ends=EndRules(Metric("loss")), ends_only=True, **more)


@pytest.mark.parametrize("first_seed", [0, 1000])
def test_worse_end_is_told_without_a_search(first_seed: int) -> None:
    solved = solve(step_world(8, 3, 30.0), rules(first_seed=first_seed))
    assert solved.answer.status == "candidates" and solved.plan.ends.status is EndsStatus.SEPARATED
    assert solved.plan.phase is Phase.DONE and solved.answer.candidates == ()
    assert solved.num_probes <= 8, "both ends on three seeds, the first one twice"


def test_equal_ends_are_told_as_in_a_search() -> None:
    world = step_world(8, 3, 0.0, class_of=lambda point: "same")
    assert solve(world, rules()).answer.status == "no_regression"


def test_other_seeds_are_those_from_the_first_one_on() -> None:
    wanted = make_plan(rules(first_seed=500), Known()).wanted
    assert {request.seed_idx for request in wanted} == {500}
    first = solve(step_world(8, 3, 30.0), rules())
    other = solve(step_world(8, 3, 30.0), rules(first_seed=500))
    assert first.plan.ends.bad_values != other.plan.ends.bad_values
    assert sorted(other.plan.ends.bad_values) == [0, 1, 2]
