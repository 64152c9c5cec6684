"""`resources:` of a recipe: what places a probe on a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli.command_check import check_spread
from bisect_train.core.errors import InputError, RecipeError
from bisect_train.core.probe import Rung, join_nodes, local_ranks, num_nodes, split_nodes
from bisect_train.core.question import Question
from bisect_train.recipe import Recipe, load_recipe
from bisect_train.store.contract import gpus_in
from tests.support.git_repos import question_of
from tests.support.probes import make_settings


def recipe_of(tmp_path: Path, resources: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"command: [python, train.py]\nresources: {resources}\n")
    return load_recipe(path)


def test_recipe_places_a_probe(tmp_path: Path) -> None:
    found = recipe_of(tmp_path, "{cpus: 0.5, memory: 8GB, custom: {fast_disk: 1, license: 0.5}, accelerator: H100}").resources
    assert (found.cpus, found.memory, found.accelerator) == (0.5, 8 * 10**9, "H100")
    assert found.custom == (("fast_disk", 1.0), ("license", 0.5))
    assert recipe_of(tmp_path, "{memory: 2GiB}").resources.memory == 2 * 2**30
    assert recipe_of(tmp_path, "{memory: 4096}").resources.memory == 4096


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ("{memory: 8 apples}", "resources.memory: '8 apples' is not a size"),
        ("{memory: 0}", "resources.memory"),
        ("{memory: true}", "resources.memory"),
        ("{custom: {GPU: 1}}", "'GPU' is Ray's own: give `gpus`"),
        ("{custom: {'accelerator_type:L4': 1}}", "give `accelerator`"),
        ("{custom: {disk: 0}}", "resources.custom.disk"),
        ("{custom: {disk: 1.5}}", "1 or 2"),
        ("{cpus: 2.5}", "2 or 3"),
        ("{accelerator: ''}", "resources.accelerator"),
        ("{ranks_per_node: 0}", "resources.ranks_per_node"),
        ("{memroy: 8GB}", "unknown key resources.memroy"),
    ],
)
def test_mistake_is_told_with_its_key(tmp_path: Path, resources: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_of(tmp_path, resources)
    assert words in caught.value.message


def test_stored_question_keeps_what_places_its_probes() -> None:
    settings = make_settings(memory=8_000, custom=(("disk", 1.0),), accelerator="L4")
    question = replace(question_of("a" * 40, "b" * 40), settings=settings)
    assert Question.of_json(json.loads(json.dumps(question.to_json()))).settings == settings


def test_question_stored_before_there_was_placing_asks_for_nothing() -> None:
    stored = json.loads(json.dumps(question_of("a" * 40, "b" * 40).to_json()))
    for name in ("memory", "custom", "accelerator", "ranks_per_node", "nodes"):
        del stored["settings"][name]
    assert Question.of_json(stored).settings == question_of("a" * 40, "b" * 40).settings


def test_where_a_probe_runs_changes_no_result() -> None:
    placed = make_settings(memory=8_000, custom=(("disk", 1.0),), accelerator="L4")
    assert placed.measure_digest == make_settings().measure_digest


@pytest.mark.parametrize(
    ("ranks", "per_node", "expected"), [(1, 0, (1, 1)), (16, 0, (16, 1)), (16, 8, (8, 2)), (4, 8, (4, 1)), (8, 8, (8, 1))]
)
def test_ranks_fill_nodes(ranks: int, per_node: int, expected: tuple[int, int]) -> None:
    assert (local_ranks(ranks, per_node), num_nodes(ranks, per_node)) == expected


def test_rungs_take_the_nodes_and_the_cpus_of_their_ranks() -> None:
    settings = make_settings(cpus=1.0, ranks_per_node=8)
    ladder = (Rung(10, 1), Rung(10, 4), Rung(10, 16), Rung(50, 32))
    question = replace(
        question_of("a" * 40, "b" * 40), settings=settings, rung=ladder[0], ladder=ladder, cpus_follow_ranks=True
    )
    found = [question.at_rung(idx).settings for idx in range(4)]
    assert [(item.nodes, item.cpus) for item in found] == [(1, 1.0), (1, 4.0), (2, 8.0), (4, 8.0)]
    assert [(item.nodes, item.cpus) for item in (question.at_rung(3).at_rung(0).settings,)] == [(1, 1.0)]


def test_spread_ranks_are_another_measurement() -> None:
    assert make_settings(ranks_per_node=8).measure_digest != make_settings().measure_digest
    assert make_settings(nodes=2).measure_digest == make_settings().measure_digest


def test_names_of_nodes_that_run_a_probe_together_come_apart_again() -> None:
    assert split_nodes(join_nodes(["alder", "birch"])) == ["alder", "birch"]
    assert split_nodes("alder") == ["alder"]
    assert join_nodes(["birch", "alder"]) == join_nodes(["alder", "birch"])


def test_ranks_that_can_be_spread_are_taken(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "{ranks_per_node: 2}")
    check_spread(recipe, [("python", "t.py"), ()], [1, 2, 4])
    check_spread(recipe, [("torchrun", "--nproc-per-node={ranks}", "t.py")], [2])
    check_spread(recipe, [("torchrun", "--node-rank={node_rank}", "--nproc-per-node={local_ranks}", "t.py")], [4])
    check_spread(recipe_of(tmp_path, "{}"), [("torchrun", "--nproc-per-node={ranks}", "t.py")], [4])


@pytest.mark.parametrize(
    ("more", "command", "ranks", "words"),
    [
        ("", ("python", "t.py"), [2, 3], "3 ranks at 2 per node leave the last node with 1"),
        (
            "",
            ("torchrun", "--nproc-per-node={ranks}", "t.py"),
            [1, 4],
            "does not say on which node: 4 ranks at 2 per node take 2 nodes",
        ),
        ("restart: {save_at: 3, command: ['{command}']}", ("python", "t.py"), [4], "is not killed and resumed"),
    ],
)
def test_ranks_that_cannot_be_spread_are_told(
    tmp_path: Path, more: str, command: tuple[str, ...], ranks: list[int], words: str
) -> None:
    recipe = recipe_of(tmp_path, "{ranks_per_node: 2}" + (f"\n{more}" if more else ""))
    with pytest.raises(InputError) as caught:
        check_spread(recipe, [command], ranks)
    assert words in caught.value.message


def test_gpus_of_a_probe_are_those_of_all_nodes_of_the_largest_rung() -> None:
    ladder = (Rung(10, 1), Rung(50, 16))
    asked = replace(question_of("a" * 40, "b" * 40), rung=ladder[0], ladder=ladder)
    alone, spread = (replace(asked, settings=make_settings(gpus=4.0, ranks_per_node=num)) for num in (0, 8))
    assert (alone.gpus_of_probe, spread.gpus_of_probe) == (4.0, 8.0)
    assert [gpus_in(json.loads(json.dumps(item.to_json()))) for item in (alone, spread)] == [4.0, 8.0]
    assert gpus_in({"settings": {"gpus": 2, "ranks_per_node": 8}}) == 2.0
