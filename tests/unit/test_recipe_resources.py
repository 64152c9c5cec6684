"""`resources:` of a recipe: what places a probe on a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.core.errors import RecipeError
from bisect_train.core.question import Question
from bisect_train.recipe import Recipe, load_recipe
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
    for name in ("memory", "custom", "accelerator"):
        del stored["settings"][name]
    assert Question.of_json(stored).settings == question_of("a" * 40, "b" * 40).settings


def test_where_a_probe_runs_changes_no_result() -> None:
    placed = make_settings(memory=8_000, custom=(("disk", 1.0),), accelerator="L4")
    assert placed.measure_digest == make_settings().measure_digest
