"""The apps that are bisected on real frameworks, without the frameworks: their histories, and what `init` makes of them."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from bisect_train.core.fingerprint import MetricOrigin, MetricSeries
from bisect_train.recipe import Tree, find_rest, load_recipe, preset_path, preset_template, recognise
from tests.frameworks.app import App
from tests.frameworks.apps import APPS
from tests.frameworks.bisect_apps import compare, digest_in, plain_command
from tests.scenarios.library.repository import build_repository
from tests.support.git_repos import git

OWN = [app for app in APPS.values() if not app.copied]  # the others need the files of the framework
every_app = pytest.mark.parametrize("app", OWN, ids=lambda app: app.name)


def trees_of(app: App) -> list[dict[str, str]]:
    """Return the files at each version, the first one's without a commit."""
    tree = app.base()
    trees = [dict(tree)]
    for step in app.history:
        step.apply(tree)
        trees.append(dict(tree))
    return trees


@every_app
def test_every_commit_changes_files_and_every_version_can_be_read(app: App) -> None:
    trees = trees_of(app)
    assert len(trees) > 12
    assert all(before != after for before, after in pairwise(trees))
    for tree in trees:
        for name, text in tree.items():
            if name.endswith(".py"):
                compile(text, name, "exec", dont_inherit=True)
            elif name.endswith(".yaml"):
                assert isinstance(yaml.safe_load(text), dict)
            elif name.endswith(".json"):
                json.loads(text)


@every_app
def test_bad_commit_can_be_left_out_of_the_last_version_and_put_on_the_first(app: App, tmp_path: Path) -> None:
    by_subject, main = build_repository(tmp_path / "repo", app.base(), app.history)
    culprit = by_subject[app.culprit.subject]
    assert culprit in main[3:-3]
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    git(tmp_path / "repo", *who, "revert", "--no-edit", culprit)
    git(tmp_path / "repo", "checkout", "-q", main[0])
    git(tmp_path / "repo", *who, "cherry-pick", culprit)


@every_app
def test_init_takes_every_version_for_its_preset_and_its_recipe_loads(app: App, tmp_path: Path) -> None:
    for files in trees_of(app):
        tree = Tree(tuple(files), files.__getitem__)
        found, *others = recognise(tree)
        assert found.name == app.name
    target = tmp_path / "bisect-train.yaml"
    target.write_text(preset_template(found, find_rest(found, tree), others=others))
    recipe = load_recipe(target)
    assert recipe.command[-1] in ("{overrides}", "{config}")
    assert not recipe.config.file or recipe.config.file in files
    assert not recipe.config.hydra or any(name.startswith(f"{recipe.config.hydra}/") for name in files)
    started = plain_command(recipe, recipe.command, python="/env/bin/python", ranks=2, port=29500, out="/out")
    assert not any("{" in part for part in started)


@pytest.mark.parametrize(
    ("written", "origin", "is_equal"),
    [
        ((2.0, 1.25), MetricOrigin("jsonl", decimals=17, digits=17), True),
        ((2.0, 1.3), MetricOrigin("log", decimals=1, digits=2), True),
        ((2.0, 1.4), MetricOrigin("log", decimals=1, digits=2), False),
        ((2.0,), MetricOrigin("log", decimals=1, digits=2), False),
        ((), MetricOrigin("log", note="no value"), False),
        ((2.0, 1.25000005), MetricOrigin("tensorboard", bits=24), True),
        ((2.0, 1.25001), MetricOrigin("tensorboard", bits=24), False),
    ],
)
def test_compare_takes_as_equal_what_the_written_digits_cannot_tell_apart(
    written: tuple[float, ...], origin: MetricOrigin, is_equal: bool
) -> None:
    assert compare([2.0, 1.25], MetricSeries("loss", written, origin=origin), 0.0).is_equal is is_equal


def test_digest_in_takes_the_last_digest_and_refuses_a_text_without() -> None:
    assert digest_in(f"parameters {'a' * 64}\nx parameters {'b' * 64}\n") == "b" * 64
    with pytest.raises(ValueError, match="no digest"):
        digest_in("parameters abc")


@pytest.mark.parametrize("value", [1.56712, 3.07, 12.0, 1.25e-05, 0.0, 1234567.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["loss", "eval_loss"])
def test_trainers_lines_are_read_as_both_generations_print_them(name: str, value: float) -> None:
    recipe = load_recipe(preset_path("hf-trainer"))
    [reader] = [item.to_pattern() for item in recipe.metrics if item.name in (name, f"printed_{name}")]
    rest = {"grad_norm": 1.5, "epoch": 0.5}
    rounded = str({name: round(value, 4), **rest})  # transformers 4
    quoted = str({key: f"{number:.4g}" for key, number in {name: value, **rest}.items()})  # from 5 on
    for line, read_as in ((rounded, round(value, 4)), (quoted, float(f"{value:.4g}"))):
        found = re.search(reader.pattern, f"  2%|x | 1/40 [00:00<00:11,  3.47it/s]\r   \r{line}")
        assert found is not None and str(float(found["value"])) == str(read_as)
    for other in ("{'train_runtime': 4.8, 'train_loss': 2.018}", "{'eval_loss': 2.0}" if name == "loss" else "{'loss': 2.0}"):
        assert re.search(reader.pattern, other) is None
