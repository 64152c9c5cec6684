"""The choice of versions by gain per cost: what is known already comes first, and moves no answer."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisect_train.coordinator.costs import Costs
from bisect_train.coordinator.observing import load_state
from bisect_train.core.changes import Point
from bisect_train.core.question import Metric, Question
from bisect_train.search.plan import make_plan
from bisect_train.search.propose import propose_versions
from bisect_train.search.rates import posterior_with_rates, propose_with_rates
from bisect_train.search.terms import Known, Phase, Rules
from bisect_train.store.contract import PROBE_FINISHED
from bisect_train.store.sql import SqlStore
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.outcome import Observation
from tests.support.simulated_bisection import Lab, drive
from tests.support.simulated_regression import World, step_world

RULES = Rules(32, EndRules(Metric()))


def search_begun(world: World) -> list[Observation]:
    """Return the runs of a bisection up to where its search begins."""
    seen: list[Observation] = []
    while (plan := make_plan(RULES, Known(seen, slots=2))).phase is Phase.ENDS:
        seen += [world.run(request) for request in plan.wanted[:2]]
    return seen


def test_search_takes_a_known_version_before_the_middle() -> None:
    seen = search_begun(step_world(32, 20, 12.0))
    (first,) = make_plan(RULES, Known(seen)).wanted
    assert first.point == Point(16)
    (first,) = make_plan(RULES, Known(seen, costs={9: 0.0})).wanted
    assert first.point == Point(9)
    (first,) = make_plan(RULES, Known(seen, costs={1: 0.0, 13: 0.0, 30: 0.0})).wanted
    assert first.point == Point(13), "of several known ones that which tells most"


def test_rate_search_takes_a_known_version_before_the_middle() -> None:
    counts = {0: (0, 8), 32: (8, 0)}
    posterior, worth, cost = posterior_with_rates(32, counts), np.ones(33), np.ones(33)
    cost[9] = 0.0
    assert propose_with_rates(32, counts, posterior, worth, num=1) != [9]
    assert propose_with_rates(32, counts, posterior, worth, num=1, cost=cost) == [9]


@pytest.mark.parametrize("seed", range(5))
def test_costs_move_the_choice_and_never_whether_anything_is_worth_a_run(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.full(40, 0.05 + 0.1 * seed))
    cost = rng.choice([0.0, 1.0], 41)
    testable = rng.random(41)
    for num in (1, 3):
        plain = propose_versions(posterior, testable, num=num)
        weighed = propose_versions(posterior, testable, num=num, cost=cost)
        assert bool(plain) == bool(weighed)


def test_plan_answers_the_same_whatever_the_costs() -> None:
    world, rng = step_world(32, 20, 12.0, seed=2), np.random.default_rng(0)
    seen: list[Observation] = []
    while True:
        costs = {int(version): 0.0 for version in rng.choice(31, 8, replace=False) + 1}
        plain, weighed = make_plan(RULES, Known(seen, slots=2)), make_plan(RULES, Known(seen, slots=2, costs=costs))
        assert replace(plain, wanted=()) == replace(weighed, wanted=())
        assert bool(plain.wanted) == bool(weighed.wanted)
        if weighed.answer is not None:
            break
        seen += [world.run(request) for request in weighed.wanted[:2]]
    assert [item.changes for item in weighed.answer.culprits] == [(20,)]


def ask_shorter(lab: Lab) -> Question:
    """Return the question about the same history without its last commits: its middle lies elsewhere."""
    asked = lab.question()
    return replace(asked, range=replace(asked.range, bad=lab.commits[-8]))


def bisect_again(lab: Lab, database: Path) -> int:
    """Bisect a shorter range with one worker, where a bisection is stored already; return the new runs of its search."""
    store, asked = SqlStore(f"sqlite:///{database}"), ask_shorter(lab)
    name, ended = drive(lab, store, question=asked, executor=lab.executor(slots=1))
    space = lab.space(asked)
    assert [space.changes[idx].id for item in ended.answer.culprits for idx in item.changes] == [lab.commits[lab.culprit]]
    rebuilt = load_state(store, name, asked).plan(asked, space)
    assert rebuilt.answer == ended.answer, "the answer follows from what is stored, without the costs"
    fresh = [event.data["spec"] for event in store.events(name) if event.kind == PROBE_FINISHED]
    store.close()
    inner = {str(version) for version in range(1, len(space.changes))}
    return sum(spec["attempt"] == 0 and spec["part"] == 0 and spec["point"] in inner for spec in fresh)


def test_second_bisection_of_the_same_history_runs_known_versions_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, database = Lab.build(tmp_path, num_commits=40, culprit=21), tmp_path / "first.db"
    store = SqlStore(f"sqlite:///{database}")
    drive(lab, store, executor=lab.executor(slots=1))
    store.close()
    copies = [Path(shutil.copy(database, tmp_path / name)) for name in ("plain.db", "weighed.db")]
    with monkeypatch.context() as patched:
        patched.setattr(Costs, "of", lambda self, plan, known: {})
        num_plain = bisect_again(lab, copies[0])
    num_weighed = bisect_again(lab, copies[1])
    print(num_weighed, num_plain)
    assert num_weighed < num_plain
