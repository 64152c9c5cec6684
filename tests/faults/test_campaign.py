"""A short slice of the fault campaign, with fixed seeds; `python -m tests.faults.campaign` runs as much of it as you like."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bisect_train.core.errors import MachineError
from bisect_train.store.sql import SqlStore
from tests.faults.campaign import NONE, TRUE, WRONG, Story, Tally, draw_story, run_campaign
from tests.faults.places import Place, tear
from tests.faults.story import NodePlan, StoryPlan
from tests.support.simulated_bisection import Lab


def test_slice_of_the_campaign_keeps_every_promise(tmp_path: Path) -> None:
    tally = run_campaign(tmp_path, seed=1, num_faults=18)
    assert tally.broken == [], tally.render()
    assert set(tally.answers) <= {TRUE, NONE}
    assert tally.answers[TRUE] >= 3
    assert len({fault for fault, _ in tally.rows}) >= 6, "several kinds of faults"
    assert tally.rows["coordinator killed (SIGKILL)", "resumed"] >= 2
    assert "| all | |" in tally.render()


def test_campaign_notices_a_wrong_answer(tmp_path: Path) -> None:
    """The truth that it is held against is another one here, so that each answer is wrong."""
    lab = Lab.build(tmp_path / "lab", num_commits=6, culprit=3)
    tally = Tally()
    story = Story(lab, tmp_path / "story", StoryPlan(5, (), 0.0), tally)
    look = story._look

    def look_with_another_truth() -> None:
        lab.culprit = 2
        look()

    story._look = look_with_another_truth  # type: ignore[method-assign]
    story.run()
    assert tally.answers[WRONG] == 1
    assert any("wrong answer" in line for line in tally.broken)


def test_story_of_a_seed_is_always_the_same() -> None:
    assert [draw_story(seed) for seed in range(50)] == [draw_story(seed) for seed in range(50)]
    kinds = {node.kind for seed in range(200) for node in draw_story(seed).nodes}
    assert kinds == {"honest", "slow", "lossy", "dies", "joins", "wrong", "wrong at times", "stale"}
    assert all(sum(node.kind == "honest" for node in draw_story(seed).nodes) != 1 for seed in range(200))


@pytest.mark.parametrize("seed", range(12))
def test_torn_database_is_a_clear_error_or_whole(tmp_path: Path, seed: int) -> None:
    place = Place(tmp_path / "home")
    try:
        store = SqlStore(f"sqlite:///{place.database}")
        name = store.create({"question": 1}, title="t")
        for idx in range(40):
            store.append(name, "note", {"idx": idx, "text": "x" * 500})
        store.close()
        tear(place, random.Random(seed))
        try:
            again = SqlStore(f"sqlite:///{place.database}")
            seen = [event.data["idx"] for item in again.list() for event in again.events(item.id)]
            again.close()
            assert seen == list(range(len(seen)))
        except MachineError as error:
            assert str(place.database) in str(error) or "damaged" in str(error)
    finally:
        place.close()


def test_node_that_lies_and_one_that_loses_probes_are_named_at_once(tmp_path: Path) -> None:
    lab = Lab.build(tmp_path / "lab", num_commits=8, culprit=4)
    nodes = (NodePlan("a", "wrong"), NodePlan("b", "lossy"), NodePlan("c"), NodePlan("d"))
    tally = Tally()
    Story(lab, tmp_path / "story", StoryPlan(7, nodes, 0.0), tally).run()
    assert tally.broken == []
    assert tally.rows["node wrong", f"named as wrong; {TRUE}"] == 1
