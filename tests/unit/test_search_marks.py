"""What a person says about versions and changes: marks override runs and are never a proof; priors say where to look first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.core.changes import Point, make_point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.marks import MARK_KINDS, evidence_of_mark, with_marks
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, Plan, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.evidence import MAX_NATS
from bisect_train.verdict.outcome import Observation
from tests.support.properties import examples
from tests.support.simulated_regression import World, step_world

GOOD, BAD, UNTESTABLE = MARK_KINDS
Marks = Mapping[int, VerdictKind]


def rules_of(num_changes: int, **more: object) -> Rules:
    return Rules(num_changes, EndRules(Metric()), **more)  # type: ignore[arg-type]


def solve_marked(
    world: World, rules: Rules, marks: Marks, *, seen: list[Observation] | None = None
) -> tuple[Plan, list[Request]]:
    """Run to the answer, two probes a round; return the last plan and what was run."""
    observations, asked = list(seen or []), []
    for _ in range(200):
        plan = make_plan(rules, Known(observations, slots=2, marks=marks))
        if plan.answer is not None:
            return plan, asked
        for request in plan.wanted[:2]:
            asked.append(request)
            observations.append(world.run(request))
    raise AssertionError("no answer after 200 rounds")


def culprits_of(plan: Plan) -> list[tuple[int, ...]]:
    assert plan.answer is not None
    return [culprit.changes for culprit in plan.answer.culprits]


@pytest.mark.parametrize("kind", [VerdictKind.OTHER, VerdictKind.INCONCLUSIVE])
def test_mark_of_another_kind_is_refused(kind: VerdictKind) -> None:
    with pytest.raises(ValueError, match="good, bad or untestable"):
        evidence_of_mark(kind)


def test_mark_weighs_as_the_best_single_run_and_rests_on_none() -> None:
    evidence = with_marks({3: evidence_of_mark(BAD)}, {5: BAD, 3: GOOD, 1: UNTESTABLE})
    assert list(evidence) == [1, 3, 5]
    assert [item.nats for item in evidence.values()] == [0.0, -MAX_NATS, MAX_NATS]
    assert {item.num_runs for item in evidence.values()} == {0}


def test_marks_beside_the_culprit_leave_little_but_the_proof_to_run() -> None:
    plan, asked = solve_marked(step_world(32, 13, 10.0, seed=1), rules_of(32), {13: GOOD, 14: BAD})
    assert plan.answer is not None and plan.answer.status == "isolated" and culprits_of(plan) == [(13,)]
    searched = {request.point.prefix for request in asked if request.attempt == 0 and not request.part} - {0, 32}
    assert len(searched) <= 2 and not searched & {13, 14}
    proved = {request.point for request in asked if request.attempt > 0}
    assert {Point(13), Point(14), make_point(32, minus=(13,))} <= proved, "a mark does not stand in for a fresh run"


@pytest.mark.parametrize("seed", range(4))
def test_wrong_marks_never_isolate_an_innocent_change(seed: int) -> None:
    world = step_world(24, 17, 10.0, seed=seed)
    plan, _ = solve_marked(world, rules_of(24), {5: GOOD, 6: BAD})
    assert plan.answer is not None and (culprits_of(plan) == [(17,)] or plan.answer.status == "candidates")
    plan, _ = solve_marked(world, rules_of(24), dict.fromkeys(range(1, 6), GOOD) | dict.fromkeys(range(6, 24), BAD))
    assert plan.answer is not None and plan.answer.status == "candidates" and plan.posterior[5] > 0.99
    assert "its proof failed" in plan.answer.reason


def test_marks_do_not_count_as_states_that_agree() -> None:
    """The culprit can neither be left out nor added alone, and a person has marked every state but its neighbours."""
    world = step_world(8, 3, 12.0, seed=2)
    unbuildable = {make_point(8, minus=(3,)): "conflict", make_point(0, plus=(3,)): "conflict"}
    observations: list[Observation] = []
    marks = {version: GOOD if version <= 3 else BAD for version in range(1, 8)}
    for _ in range(100):
        plan = make_plan(rules_of(8), Known(observations, unbuildable, slots=2, marks=marks))
        if plan.answer is not None:
            break
        observations += [world.run(request) for request in plan.wanted[:2]]
    assert plan.answer is not None and plan.answer.status == "candidates"
    # the same where runs say it
    observations, plan = [], make_plan(rules_of(8), Known())
    while plan.answer is None:
        observations += [world.run(request) for request in plan.wanted[:2]]
        plan = make_plan(rules_of(8), Known(observations, unbuildable, slots=2))
    assert plan.answer.status == "isolated"


@pytest.mark.parametrize("neighbour", [13, 14])
def test_neighbour_marked_untestable_is_not_run_not_even_in_the_proof(neighbour: int) -> None:
    plan, asked = solve_marked(step_world(32, 13, 10.0, seed=1), rules_of(32), {neighbour: UNTESTABLE})
    assert plan.answer is not None and plan.answer.status == "candidates"
    assert {12, 13} & {idx for idx, _ in plan.answer.candidates} and 13 in dict(plan.answer.candidates)
    assert Point(neighbour) not in {request.point for request in asked}


def test_proof_point_marked_untestable_says_so() -> None:
    world = step_world(16, 7, 10.0, seed=3)
    plan, first = solve_marked(world, rules_of(16), {})
    assert plan.answer is not None and plan.answer.status == "isolated"
    seen = [world.run(request) for request in first]
    plan, more = solve_marked(world, rules_of(16), {7: UNTESTABLE}, seen=seen)
    assert plan.answer is not None and plan.answer.status == "candidates", "the mark comes after the proof and undoes it"
    assert Point(7) not in {request.point for request in more}
    assert "marked untestable" in plan.answer.reason or not plan.claims


def test_mark_replaces_what_runs_say_even_where_they_lie() -> None:
    """Version 12 trains badly for a reason of its own; a person knows that it is fine."""
    world = step_world(32, 20, 10.0, seed=4)
    honest = world.mean_of
    world.mean_of = lambda point: 10.0 if point == Point(12) else honest(point)
    lies = [world.run(Request(Point(12), seed_idx)) for seed_idx in range(3)]
    without, _ = solve_marked(world, rules_of(32), {}, seen=lies)
    plan, _ = solve_marked(world, rules_of(32), {12: GOOD}, seen=lies)
    assert plan.evidence[12].verdict is VerdictKind.GOOD and without.evidence[12].verdict is VerdictKind.BAD
    assert culprits_of(plan) == [(20,)]


@given(st.dictionaries(st.integers(1, 15), st.sampled_from(MARK_KINDS)), st.integers(0, 15), st.integers(0, 3))
@settings(max_examples=examples(40))
def test_marked_versions_are_never_searched_and_wrong_marks_name_nobody_else(marks: Marks, culprit: int, seed: int) -> None:
    plan, asked = solve_marked(step_world(16, culprit, 12.0, seed=seed), rules_of(16), marks)
    # a part's ends are run although they are marked: a mark never stands in for a proof
    searched = {
        request.point.prefix for request in asked if request.attempt == 0 and request.point.is_prefix and not request.part
    }
    assert not searched & marks.keys()
    assert plan.answer is not None
    if plan.answer.status == "isolated":
        assert culprits_of(plan) == [(culprit,)]


def test_marks_without_any_change_nothing() -> None:
    world = step_world(16, 7, 10.0, seed=5)
    plan, asked = solve_marked(world, rules_of(16), {})
    again, asked_again = solve_marked(world, rules_of(16, prior_nats={}), {})
    assert (plan.answer, asked) == (again.answer, asked_again)


# ---- priors --------------------------------------------------------------------------------------------------------------


def num_searched(asked: list[Request]) -> int:
    return sum(request.attempt == 0 and 0 < request.point.prefix < 64 for request in asked)


def test_prior_for_the_culprit_shortens_the_search_and_one_against_it_does_not_hide_it() -> None:
    world = step_world(64, 50, 10.0, seed=6)
    plain, asked = solve_marked(world, rules_of(64), {})
    likely, fewer = solve_marked(world, rules_of(64, prior_nats={50: math.log(100.0)}), {})
    unlikely, _ = solve_marked(world, rules_of(64, prior_nats={50: math.log(0.001)}), {})
    assert culprits_of(plain) == culprits_of(likely) == culprits_of(unlikely) == [(50,)]
    assert num_searched(fewer) < num_searched(asked)


def test_prior_against_the_culprit_does_not_shorten_the_list_across_an_untestable_stretch() -> None:
    """Version 20 to 23 cannot be run: 19 to 23 are left, whatever a person believes of one of them."""
    world = step_world(32, 21, 10.0, seed=8, is_broken=lambda point: point.is_prefix and 20 <= point.prefix <= 23)
    plan, _ = solve_marked(world, rules_of(32, prior_nats={21: math.log(0.001)}), {})
    assert plan.answer is not None and plan.answer.status == "candidates"
    assert {idx for idx, _ in plan.answer.candidates} >= set(range(19, 24))


def test_strongest_prior_for_an_innocent_change_is_outweighed() -> None:
    prior = {idx: math.log(0.001) for idx in range(32)} | {9: math.log(1000.0)}
    plan, _ = solve_marked(step_world(32, 21, 10.0, seed=7), rules_of(32, prior_nats=prior), {})
    assert plan.phase is Phase.DONE and culprits_of(plan) == [(21,)]
