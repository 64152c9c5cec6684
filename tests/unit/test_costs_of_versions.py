"""Costs of the next run: what needs packages that no probe has had is dearer, by as much as the probes so far have shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator.costs import UNKNOWN_BUILD_COST, Costs
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import EnvironmentSettings, ProbeResult
from bisect_train.core.question import Question
from bisect_train.search.terms import Known, Phase, Plan, Request
from bisect_train.store.memory import MemoryStore
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train_workers.simulated import SIMULATED_FACTS
from tests.support.git_repos import UserRepo, question_of
from tests.support.simulated_bisection import limits

NUM, BUMP = 8, 5  # commits after the good end, and the one that asks for another package


class Desk:
    """A question about a history in which a commit asks for another version of a package, and what is known of it."""

    def __init__(self, folder: Path, *, has_environments: bool = True) -> None:
        repo = UserRepo.create(folder / "repo")
        commits = [
            repo.commit({"train.py": f"# {idx}\n", "requirements.txt": f"toyopt=={2 if idx >= BUMP else 1}.0\n"})
            for idx in range(NUM + 1)
        ]
        asked = replace(question_of(commits[0], commits[-1]), repo=str(repo.path), limits=limits(reuse=False))
        files = ("requirements.txt",) if has_environments else ()
        environment = EnvironmentSettings(files=files, installed=("toyopt==1.0",) if files else ())
        self.question: Question = replace(asked, settings=replace(asked.settings, environment=environment))

        self.space: ChangeSpace = build_space(repo.open(folder / "home"), self.question)
        self.store = MemoryStore()
        self.id = self.store.create(self.question.to_json(), title="costs")
        self.knowledge = Knowledge(
            self.question, bisection_id=self.id, store=self.store, facts=SIMULATED_FACTS, listener=lambda event: None
        )

    def ran(self, version: int, wall_s: float, *, seed_idx: int = 0) -> None:
        """Note a probe that has run."""
        result = ProbeResult(f"{version}/{seed_idx}", Fingerprint(Ending(EndingKind.STOPPED)), wall_s=wall_s)
        point = Point(version)
        self.knowledge.take_result(result, [Request(point, seed_idx)], self.space.variant(point))

    def costs(self) -> dict[int, float]:
        """Return the costs while nothing is decided."""
        costs = Costs(self.question, bisection_id=self.id, space=self.space, store=self.store, knowledge=self.knowledge)
        plan = Plan(Phase.SEARCH, (), Ends(EndsStatus.SEPARATED), tuple([1 / NUM] * NUM))
        return costs.of(plan, self.knowledge.known([], 1))


def test_versions_with_packages_that_no_probe_has_had_cost_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ran(0, 3.0)
    assert desk.costs() == dict.fromkeys(range(BUMP, NUM), UNKNOWN_BUILD_COST)


def test_how_much_more_is_learnt_from_first_and_later_runs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ran(0, 30.0)
    desk.ran(0, 3.0, seed_idx=1)
    desk.ran(1, 3.0)
    assert desk.costs() == dict.fromkeys(range(BUMP, NUM), pytest.approx(10.0))
    desk.ran(NUM, 30.0)
    assert desk.costs() == {}, "both environments are there"


def test_a_first_run_that_is_no_slower_makes_nothing_cheaper(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ran(0, 1.0)
    desk.ran(1, 3.0)
    assert set(desk.costs().values()) == {1.0}


def test_without_packages_that_change_all_versions_cost_the_same(tmp_path: Path) -> None:
    desk = Desk(tmp_path, has_environments=False)
    desk.ran(0, 30.0)
    desk.ran(1, 3.0)
    assert desk.costs() == {}
    assert isinstance(desk.knowledge.known([], 1), Known)
