"""Changes that the program does not read: nothing is run for them, and no answer changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.inert import Groups
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Answer, Known, Phase, Request, Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation
from tests.support.properties import examples
from tests.support.simulated_regression import World, step_world


def truthful(world: World, inert: Iterable[int], num: int) -> World:
    """Return the world in which versions that inert changes part are the same program."""
    groups = Groups.of(num, inert)

    def name(point: Point) -> str | None:
        return f"group {groups.group_of(point.prefix)}" if point.is_prefix and point.prefix >= 0 else None

    return replace(world, class_of=name)


def solve(
    world: World, rules: Rules, inert: frozenset[int], *, slots: int = 2, marks: dict[int, VerdictKind] | None = None
) -> tuple[Answer, list[Observation]]:
    """Run a bisection to its answer."""
    seen: list[Observation] = []
    while True:
        plan = make_plan(rules, Known(seen, slots=slots, inert=inert, marks=marks or {}))
        if plan.answer is not None:
            return plan.answer, seen
        assert plan.wanted, "a plan without an answer must want something"
        assert len(seen) < 600
        seen += [world.run(request) for request in plan.wanted[:slots]]


def searched(seen: Iterable[Observation], num: int) -> list[Observation]:
    """Return the runs of the search, without those of ends and proofs."""
    return [run for run in seen if run.attempt == 0 and run.part == 0 and run.point.is_prefix and 0 < run.point.prefix < num]


def request(version: int, seed_idx: int) -> Request:
    """Return a run of the search."""
    return Request(Point(version), seed_idx)


def culprits(answer: Answer) -> list[tuple[int, ...]]:
    return [item.changes for item in answer.culprits]


@given(st.integers(1, 30), st.data())
def test_groups_hold_each_version_once_and_begin_after_a_kept_change(num: int, data: st.DataObject) -> None:
    inert = data.draw(st.sets(st.integers(0, num - 1)))
    groups = Groups.of(num, inert)
    assert [v for group in range(groups.num_groups) for v in groups.versions_of(group)] == list(range(num + 1))
    for version in range(num + 1):
        assert version in groups.versions_of(groups.group_of(version))
    for idx in range(num):
        assert (groups.group_of(idx) == groups.group_of(idx + 1)) == (idx in inert)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(4, 60), st.integers(0, 3), st.booleans(), st.data())
def test_search_with_truthful_inert_changes_gives_the_same_answer_and_never_names_one(
    num: int, seed: int, is_exact: bool, data: st.DataObject
) -> None:
    culprit = data.draw(st.integers(0, num - 1))
    inert = frozenset(data.draw(st.sets(st.integers(0, num - 1).filter(lambda idx: idx != culprit))))
    world = truthful(step_world(num, culprit, 12.0, seed=seed, noise_sd=0.0 if is_exact else 1.0), inert, num)
    rules = Rules(num, EndRules(Metric()))
    plain, plain_seen = solve(world, rules, frozenset())
    answer, seen = solve(world, rules, inert)
    assert (answer.status, culprits(answer)) == (plain.status, culprits(plain))
    assert not {idx for item in answer.culprits for idx in item.changes} & inert
    groups = Groups.of(num, inert)
    runs = [(groups.group_of(run.point.prefix), run.seed_idx, run.repeat) for run in searched(seen, num)]
    assert len(runs) == len(set(runs)), "no group runs the same seed twice"
    assert not {group for group, _, _ in runs} & {0, groups.num_groups - 1}, "nor is a version run that equals an end"
    if answer.status == "isolated" and len(inert) > num // 2 and num > 20:
        assert len(searched(seen, num)) <= len(searched(plain_seen, num)) + 2


def test_search_among_many_inert_changes_takes_few_runs() -> None:
    num, culprit = 200, 130
    inert = frozenset(range(num)) - {20, 60, culprit, 180}
    world = truthful(step_world(num, culprit, 12.0), inert, num)
    answer, seen = solve(world, Rules(num, EndRules(Metric())), inert, slots=1)
    assert (answer.status, culprits(answer)) == ("isolated", [(culprit,)])
    assert len(searched(seen, num)) <= 4
    _, plain = solve(world, Rules(num, EndRules(Metric())), frozenset(), slots=1)
    assert len(searched(plain, num)) >= len(searched(seen, num)) + 3


def begun(world: World, rules: Rules) -> list[Observation]:
    """Return the runs that prove the ends."""
    seen: list[Observation] = []
    while (plan := make_plan(rules, Known(seen, slots=2))).phase is Phase.ENDS:
        seen += [world.run(request) for request in plan.wanted[:2]]
    return seen


def test_belief_in_inert_changes_is_a_thousandth_and_not_nothing() -> None:
    rules, world = Rules(8, EndRules(Metric())), step_world(8, 5, 12.0)
    plan = make_plan(rules, Known(begun(world, rules), inert=frozenset({1, 2, 3})))
    posterior = np.array(plan.posterior)
    assert plan.inert == {1, 2, 3}
    assert 0 < posterior[[1, 2, 3]].max() <= 0.001 / 5, "a thousandth of what each of the five others has in the mean"
    assert posterior.sum() == pytest.approx(1.0)


def test_runs_of_two_versions_of_a_group_count_once() -> None:
    rules, inert = Rules(16, EndRules(Metric())), frozenset({6, 7, 8})
    world = truthful(step_world(16, 12, 4.0), inert, 16)
    seen = begun(world, rules)
    one, both = [world.run(request(7, 0))], [world.run(request(7, 0)), world.run(request(9, 0))]
    alone = make_plan(rules, Known([*seen, *one], inert=inert))
    twice = make_plan(rules, Known([*seen, *both], inert=inert))
    assert twice.posterior == alone.posterior
    plain = [make_plan(rules, Known([*seen, *runs])).posterior for runs in (one, both)]
    assert plain[0] != plain[1] and plain[0], "without the group the second run counts"
    rested = [version for version, item in twice.evidence.items() if item.num_runs > 0]
    assert rested == [7], "the other versions of the group rest on its runs"
    assert set(twice.evidence) == {6, 7, 8, 9}


def test_running_probe_of_a_version_that_equals_a_known_one_is_obsolete() -> None:
    rules, world = Rules(16, EndRules(Metric())), step_world(16, 12, 12.0)
    seen = [*begun(world, rules), world.run(request(8, 0))]
    running = [request(9, 0), request(13, 0)]
    plan = make_plan(rules, Known(seen, in_flight=running, slots=2, inert=frozenset({8})))
    assert running[0] not in plan.wanted
    assert running[1] in plan.wanted, "a running request comes back as it was begun"


def test_group_that_contradicts_itself_is_searched_change_by_change() -> None:
    rules, inert = Rules(16, EndRules(Metric())), frozenset(range(4, 12))
    world = step_world(16, 7, 12.0)  # the culprit is among those that are said to be inert
    answer, seen = solve(world, rules, inert)
    assert (answer.status, culprits(answer)) == ("isolated", [(7,)]), "the proof runs both sides afresh and shows it"
    assert {run.point.prefix for run in searched(seen, 16)} & {5, 6, 7, 8, 9, 10, 11}, "then each version counts for itself"
    runs = [*begun(world, rules), world.run(request(5, 0)), world.run(request(10, 0))]
    assert make_plan(rules, Known(runs, inert=inert)).inert == frozenset()


def test_group_with_other_bits_on_one_seed_is_no_group() -> None:
    rules, inert = Rules(16, EndRules(Metric())), frozenset({3, 4, 5})
    world = step_world(16, 12, 12.0)  # each version has bits of its own, and runs repeat
    runs = [*begun(world, rules), world.run(request(4, 0)), world.run(request(5, 0))]
    assert make_plan(rules, Known(runs[:-1], inert=inert)).inert == inert
    assert make_plan(rules, Known(runs, inert=inert)).inert == frozenset()


def test_ends_in_one_group_trust_no_inert_change() -> None:
    world = step_world(12, 5, 12.0)
    answer, _ = solve(world, Rules(12, EndRules(Metric())), frozenset(range(12)))
    assert (answer.status, culprits(answer)) == ("isolated", [(5,)])


@pytest.mark.parametrize("kind", [VerdictKind.GOOD, VerdictKind.UNTESTABLE])
def test_mark_on_a_version_counts_for_its_group(kind: VerdictKind) -> None:
    rules, inert, num = Rules(16, EndRules(Metric())), frozenset({3, 4, 5}), 16
    world = truthful(step_world(num, 12, 12.0), inert, num)
    answer, seen = solve(world, rules, inert, marks={4: kind})
    assert culprits(answer) == [(12,)]
    assert not [run for run in searched(seen, num) if 3 <= run.point.prefix <= 6]


def test_marks_that_disagree_in_a_group_break_it() -> None:
    rules, world = Rules(16, EndRules(Metric())), step_world(16, 4, 12.0)
    marks = {4: VerdictKind.GOOD, 6: VerdictKind.BAD}
    plan = make_plan(rules, Known(begun(world, rules), inert=frozenset({4, 5}), marks=marks))
    assert plan.inert == frozenset()


def test_version_that_cannot_be_built_is_replaced_by_another_of_its_group() -> None:
    rules, inert, num = Rules(3, EndRules(Metric())), frozenset({1}), 3
    world = step_world(num, 2, 12.0)
    seen = begun(world, rules)
    plan = make_plan(rules, Known(seen, {Point(1): "a conflict"}, inert=inert))
    assert [item.point for item in plan.wanted] == [Point(2)]
    plan = make_plan(replace(rules, skipped=frozenset({1})), Known(seen, {Point(2): "a conflict"}, inert=inert))
    assert not {Point(1), Point(2)} & {item.point for item in plan.wanted if item.attempt == 0}


def test_costs_choose_the_version_that_is_known_already() -> None:
    rules, world = Rules(3, EndRules(Metric())), step_world(3, 2, 12.0)
    seen = begun(world, rules)
    (first,) = make_plan(rules, Known(seen, inert=frozenset({1}), costs={2: 0.0})).wanted
    assert first.point == Point(2)
