"""What idle workers of a large cluster begin: fewer rounds, the same answers, and hardly a run more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.search import ahead
from bisect_train.search.islands import ISLANDS, MAX_LOOKS
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from tests.support.simulated_regression import Solved, World, solve, step_world

NUM, CULPRIT, SLOTS = 128, 90, 64
RULES = Rules(NUM, EndRules(Metric()))
FIRST_LOOK = {Request(point, *run) for point in (Point(0), Point(NUM)) for run in ((0, 0), (0, 1), (1, 0), (2, 0))}


def solve_without(world: World, rules: Rules, monkeypatch: pytest.MonkeyPatch) -> Solved:
    with monkeypatch.context() as patch:
        patch.setattr(ahead, "MIN_SLOTS", SLOTS + 1)
        return solve(world, rules, slots=SLOTS)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gap", [3.0, 12.0])
def test_idle_workers_save_rounds_and_change_no_answer(seed: int, gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    world = step_world(NUM, CULPRIT, gap, seed=seed)
    after, before = solve(world, RULES, slots=SLOTS), solve_without(world, RULES, monkeypatch)
    assert after.answer == before.answer
    assert gap < 10.0 or [culprit.changes for culprit in after.answer.culprits] == [(CULPRIT,)]
    assert after.num_rounds < before.num_rounds
    assert after.num_probes <= before.num_probes + (0 if gap > 10.0 else MAX_LOOKS)  # a proof that failed needed no looks


def test_equal_ends_take_no_run_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(mean_of=lambda point: 0.0, class_of=lambda point: "same")
    after, before = solve(world, RULES, slots=SLOTS), solve_without(world, RULES, monkeypatch)
    assert (after.answer, after.num_probes) == (before.answer, before.num_probes)
    assert (after.num_rounds, after.answer.status) == (1, "no_regression")


def test_first_look_is_begun_as_a_whole_where_there_is_room() -> None:
    assert set(make_plan(RULES, Known([], slots=8)).wanted) == FIRST_LOOK
    assert len(make_plan(RULES, Known([], slots=7)).wanted) == 2
    seen = [step_world(NUM, CULPRIT, 9.0).run(Request(Point(0), 1))]
    assert set(make_plan(RULES, Known(seen, slots=8)).wanted) == FIRST_LOOK - {Request(Point(0), 1)}
    known_to_repeat = replace(RULES, ends=replace(RULES.ends, repeats_known=True))
    assert set(make_plan(known_to_repeat, Known([], slots=8)).wanted) == {item for item in FIRST_LOOK if item.repeat == 0}


@pytest.mark.parametrize(
    "asked",
    [EndRules(Metric(is_paired=True)), EndRules(Metric(), has_judge=True), EndRules(Metric(), criterion=Criterion.SYMPTOM)],
    ids=["costs", "judge", "symptom"],
)
def test_ends_that_values_may_not_decide_are_looked_at_run_by_run(asked: EndRules) -> None:
    few, many = (make_plan(Rules(NUM, asked), Known([], slots=slots)).wanted for slots in (7, SLOTS))
    assert few == many


def test_looks_are_made_beside_the_proof_and_stay_wanted() -> None:
    world, observations = step_world(NUM, CULPRIT, 12.0), []
    while (plan := make_plan(RULES, Known(observations, slots=2))).phase is not Phase.PROOF:
        observations += [world.run(request) for request in plan.wanted[:2]]
    plan = make_plan(RULES, Known(observations, slots=SLOTS))
    assert plan.phase is Phase.PROOF
    looks = [request for request in plan.wanted if request.part == ISLANDS]
    assert looks and all(0 < request.point.prefix <= CULPRIT for request in looks)
    assert len(plan.wanted) > len(looks)
    again = make_plan(RULES, Known(observations, in_flight=list(plan.wanted), slots=SLOTS))
    assert set(looks) <= set(again.wanted)
    few = make_plan(RULES, Known(observations, slots=len(plan.wanted) - len(looks)))
    assert not any(request.part == ISLANDS for request in few.wanted)
