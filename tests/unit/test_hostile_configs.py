"""YAML, Python and recipes that no person writes: each was found by fuzzing, and is refused or read, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bisect_train.baseline import read_baseline
from bisect_train.changes.config import apply_settings, diff_configs
from bisect_train.changes.config_formats import parse_config
from bisect_train.changes.config_omegaconf import load_omegaconf, read_omegaconf_value
from bisect_train.changes.packages import read_packages_text
from bisect_train.changes.run_folder import read_run_folder
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import InputError, RecipeError
from bisect_train.core.question import ConfigEnd
from bisect_train.core.yaml_text import MAX_VALUES, load_yaml_documents, load_yaml_text
from bisect_train.recipe import load_recipe
from bisect_train.recipe.template import inspect_tree, quoted, recipe_template
from tests.fuzz.text_changes import BOMB

MISFITS = ("!!timestamp x", "!!bool x", "!!int ''", "!!float ''", "a: !!timestamp ''", "[!!bool 3]")


def end_of(name: str, text: str) -> ConfigEnd:
    return ConfigEnd(name, FilePatch(name, text))


@pytest.mark.parametrize("text", MISFITS)
def test_value_that_does_not_fit_its_tag_is_malformed_yaml(text: str, tmp_path: Path) -> None:
    with pytest.raises((yaml.YAMLError, ValueError)):
        load_yaml_text(text)
    with pytest.raises((yaml.YAMLError, ValueError)):
        list(load_yaml_documents(f"a: 1\n---\n{text}"))
    with pytest.raises(RecipeError, match="this is not valid YAML"):
        parse_config(end_of("a.yaml", text))
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(RecipeError, match="this is not valid YAML"):
        load_recipe(tmp_path / "r.yaml")
    with pytest.raises(InputError, match="this is not valid YAML"):
        read_packages_text("environment.yml", text)
    with pytest.raises(RecipeError, match=r"cannot be read|YAML"):
        apply_settings(end_of("b.yaml", "a: 1\n"), [f"a={text}"])


def test_few_lines_that_stand_for_millions_of_values_are_refused_at_once(tmp_path: Path) -> None:
    said = f"more than {MAX_VALUES:,} values"
    with pytest.raises(yaml.YAMLError, match=said):
        load_yaml_text(BOMB)
    with pytest.raises(yaml.YAMLError, match="refers to itself"):
        load_yaml_text("a: &a {b: [1, *a]}")
    with pytest.raises(InputError, match=said):
        read_packages_text("environment.yml", BOMB)
    baseline = tmp_path / ".bisect-train" / "baselines" / "main.yaml"
    baseline.parent.mkdir(parents=True)
    baseline.write_text(BOMB)
    with pytest.raises(InputError, match=said):
        read_baseline(tmp_path, "main")
    hydra = tmp_path / "run" / ".hydra"
    hydra.mkdir(parents=True)
    (hydra / "config.yaml").write_text("lr: 1\n")
    (hydra / "overrides.yaml").write_text("- " + BOMB.replace("\n", "\n  "))
    assert read_run_folder(tmp_path / "run").hydra is None


def test_yaml_in_the_usual_size_and_with_shared_parts_is_read() -> None:
    assert load_yaml_text("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}
    assert list(load_yaml_documents("a: 1\n---\n- 2\n")) == [{"a": 1}, [2]]
    assert load_yaml_text("") is None


@pytest.mark.parametrize("text", MISFITS[:3])
def test_omegaconf_refuses_it_as_well(text: str) -> None:
    pytest.importorskip("omegaconf")
    for read in (load_omegaconf, read_omegaconf_value):
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize("text", ["h = *8\n", "a: int = *b\n", "h = (*8)\n"])
def test_python_that_only_the_compiler_refuses_is_told_with_its_line(text: str) -> None:
    with pytest.raises(RecipeError, match=r"a\.py, line 1: this is not valid Python"):
        parse_config(end_of("a.py", text))


@pytest.mark.parametrize(
    ("name", "text", "setting", "written"),
    [
        ("a.yaml", "lr: 0.1\n", "lr=nan", ".nan"),
        ("a.yaml", "lr: 0.1\n", "lr=-inf", "-.inf"),
        ("a.yaml", "lr: 0.1\n", "lr=1e-4", "1.0e-4"),
        ("a.json", '{"lr": 0.1}', "lr=nan", "NaN"),
        ("a.json", '{"lr": 0.1}', "lr=inf", "Infinity"),
    ],
)
def test_number_that_the_format_reads_as_text_is_told_as_it_is_written(
    name: str, text: str, setting: str, written: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        apply_settings(end_of(name, text), [setting])
    assert caught.value.hint == f"write {written}"
    apply_settings(end_of(name, text), [f"lr={written}"])


def test_steps_beyond_any_number_of_python_floats_are_compared(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(f"shrink: {{steps: [10, {10**400}, end], ranks: [1, {10**350}]}}\n")
    assert load_recipe(tmp_path / "r.yaml").shrink.steps == (10, 10**400, None)
    (tmp_path / "r.yaml").write_text(f"shrink: {{steps: [{10**400}, 10]}}\n")
    with pytest.raises(RecipeError, match="from small to large"):
        load_recipe(tmp_path / "r.yaml")


def test_dotenv_file_cannot_hold_documents() -> None:
    with pytest.raises(RecipeError, match="dotenv cannot hold the new values of all documents"):
        diff_configs(end_of("a.env", "A=1\n"), end_of("b.yaml", "a: 1\n---\nb: 2\n"))


@pytest.mark.parametrize("text", ['a"b\\', "\x7f", "\udcff", "\U0001f642\0", "\n\t", "\ufeff", "é", "\u2028", "\ud83d\ude42"])
def test_any_text_is_read_back_from_a_recipe_that_init_writes(text: str) -> None:
    assert yaml.safe_load(f"x: {quoted(text)}") == {"x": text}


def test_recipe_for_files_with_unprintable_names_loads(tmp_path: Path) -> None:
    files = {
        f"{mark}train.py": "loss.backward()\nopt.zero_grad()\n--config" for mark in ("", "\x7f", "\x1b[31m", "\u2028", "a\nb")
    }
    text = recipe_template(inspect_tree([*files, "configs/\x85train.yaml"], lambda path: files.get(path, "")))
    (tmp_path / "r.yaml").write_text(text)
    assert load_recipe(tmp_path / "r.yaml").command[0] == "python"


@pytest.mark.parametrize("place", ["/\ud800", "x\0y", "\udfff"])
def test_package_in_a_place_that_no_file_can_have_is_no_folder_here(place: str) -> None:
    entries: dict[str, Any] = {"default": {"a": {"path": place}}}
    assert read_packages_text("Pipfile.lock", json.dumps(entries))["a"].url == place
