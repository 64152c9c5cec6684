"""The demo's real trainings, recorded once, through the whole coordinator: real numbers, no training, a second or two."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator import Coordinator, Ended
from bisect_train.core.probe import Rung, RunSettings
from bisect_train.core.question import Question, Range
from bisect_train.demo import DemoRepo, build
from bisect_train.report import Cost, build_report, report_to_json
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedExecutor
from tests.support.recorded import DEMO_RUN, read_runs, replay_script


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRepo:
    return build(tmp_path_factory.mktemp("demo") / "charlm")


def _question(demo: DemoRepo) -> Question:
    commits = Range((demo.good,), demo.bad)
    return Question("run", str(demo.path), commits, demo.command, RunSettings("/usr/bin/python3"), Rung(40))


def _replay(demo: DemoRepo, home: Path, *, slots: int) -> tuple[Ended, ChangeSpace, MemoryStore, str]:
    question = _question(demo)
    space = build_space(Repository.open(demo.path, home=home), question)
    store = MemoryStore()
    name = store.create(question.to_json(), title="replay")
    executor = SimulatedExecutor(replay_script(read_runs(DEMO_RUN)), slots=slots)
    with store.lock(name):
        ended = Coordinator(question, bisection_id=name, space=space, store=store, executor=executor).run()
    return ended, space, store, name


def test_replayed_demo_names_the_culprit_past_its_decoys(demo: DemoRepo, tmp_path: Path) -> None:
    ended, space, store, name = _replay(demo, tmp_path, slots=2)
    assert ended.answer.status == "isolated"
    assert [space.changes[idx].id for idx in ended.answer.culprits[0].changes] == [demo.culprit]
    cost = Cost(ended.num_probes, ended.num_reused, ended.wall_s, 0.0)
    plan = ended.plan_with_answer
    report = build_report(store.load(name), _question(demo), space, plan, store.results(name), cost=cost)
    data = report_to_json(report)
    assert (data["status"], report.exit_status) == ("isolated", 0)
    effect = data["culprits"][0]["effect"]
    assert effect["bad"] - effect["good"] == pytest.approx(1.45, abs=0.1)
    assert 0.9 < effect["share"] < 1.15


def test_recorded_midpoints_equal_neither_end(demo: DemoRepo, tmp_path: Path) -> None:
    """What makes the demo honest: the decoys leave few versions bitwise equal to an end."""
    ended, _, _, _ = _replay(demo, tmp_path, slots=2)
    judged = ended.plan.evidence.values()
    assert sum("bitwise" in item.reason for item in judged) * 2 < len(judged)
