"""Recipes: `when`, `extends`, stand-ins and the presets; what a good one gives, and what each mistake is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bisect_train.core.changes import DataLink
from bisect_train.core.errors import RecipeError
from bisect_train.recipe import Recipe, load_recipe, preset_names, preset_path

FULL = r"""
command: [python, train.py, "{overrides}"]
config: {override: "--{key}={value}"}
metrics: {loss: {pattern: 'loss ([0-9.]+)'}, acc: {pattern: 'acc ([0-9.]+)', better: higher}}
metric: acc
stubs: [wandb, absent_2]
shims: [cuda-as-cpu]
about: |
  two
  lines
requires: {modules: [torch], gpus: 1}
cannot: [fly]
when:
  - since: v1
    until: v2
    command: [python, old.py, "{overrides}"]
  - exists: data/./new.bin
    file: src/train.py
    contains: '^lr\s*='
    lacks: gone
    data: {link: [data/new.bin, {from: ~/x, to: x}], env: {A: "1"}}
    metrics: {loss: {pattern: 'Loss=([0-9.]+)'}}
"""


def recipe_of(folder: Path, text: str, name: str = "recipe.yaml") -> Recipe:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


def test_blocks_and_stand_ins_are_read(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, FULL)
    first, second = recipe.whens
    assert (first.since, first.until, first.command) == ("v1", "v2", ("python", "old.py", "{overrides}"))
    assert first.where.endswith("recipe.yaml, line 14: when[0]")
    assert (second.exists, second.file, second.contains, second.lacks) == ("data/new.bin", "src/train.py", r"^lr\s*=", "gone")
    assert second.data.links == (DataLink("data/new.bin", "data/new.bin"), DataLink("~/x", "x"))
    assert (second.data.env, second.patterns) == ((("A", "1"),), (("loss", "Loss=([0-9.]+)"),))
    assert (recipe.metric_name, recipe.stubs, recipe.shims) == ("acc", ("wandb", "absent_2"), ("cuda-as-cpu",))
    assert (recipe.about, recipe.needs_modules, recipe.needs_gpus, recipe.cannot) == ("two lines", ("torch",), 1, ("fly",))


BLOCK = "command: [a]\nmetrics: {loss: {pattern: 'l ([0-9]+)'}}\nwhen:\n  - %s\n"
MISTAKES = [
    ("{command: [b]}", r"line 4: when\[0\]: a block needs a condition"),
    ("{since: v1}", r"line 4: when\[0\]: a block changes something"),
    ("{since: v1, data: {}}", r"when\[0\]: a block changes something"),
    ("{contains: x, command: [b]}", r"when\[0\]: contains and lacks are about a file"),
    ("{exists: a, lacks: x, command: [b]}", r"when\[0\]: contains and lacks are about a file"),
    ("{file: a, command: [b]}", r"when\[0\]: file says where to look"),
    ("{file: a, contains: '(', command: [b]}", r"line 4: when\[0\]\.contains: not a regular expression"),
    ("{file: a, lacks: '', command: [b]}", r"when\[0\]\.lacks: an empty expression"),
    ("{file: /a, contains: x, command: [b]}", r"when\[0\]\.file: .*relative to the checkout"),
    ("{exists: ../a, command: [b]}", r"when\[0\]\.exists: .*leads out"),
    ("{since: 5, command: [b]}", r"when\[0\]\.since: .*string"),
    ("{since: v, command: python b}", r"when\[0\]\.command: a command is a list"),
    ("{since: v, command: []}", r"when\[0\]\.command: the command is empty"),
    ("{since: v, comand: [b]}", r"line 4: unknown key when\[0\]\.comand\n.*did you mean `command`"),
    ("{since: v, shrink: {steps: 5}}", r"unknown key when\[0\]\.shrink"),
    ("{since: v, data: {lnk: []}}", r"unknown key when\[0\]\.data\.lnk\n.*did you mean `link`"),
    ("{since: v, metrics: {acc: {pattern: '(x)'}}}", r"line 4: when\[0\]: the recipe has no metric 'acc'\n.*there: loss"),
    ("{since: v, metrics: {loss: {pattern: 'x'}}}", r"when\[0\]\.metrics\.loss\.pattern: the pattern needs a group"),
    ("{since: v, metrics: {loss: {better: lower}}}", r"unknown key when\[0\]\.metrics\.loss\.better"),
    ("{since: v, command: [b, '{confg}']}", r"unknown placeholder \{confg\}, did you mean \{config\}"),
    ("7", r"when\[0\]: .*(dictionary|instance)"),
]


@pytest.mark.parametrize(("block", "words"), MISTAKES, ids=[block for block, _ in MISTAKES])
def test_mistake_in_a_block_names_file_line_and_key(tmp_path: Path, block: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_of(tmp_path, BLOCK % block)
    assert "recipe.yaml" in str(caught.value)
    assert re.search(words, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stubs: [a.b]\n", r"line 1: stubs\[0\]: 'a\.b' is no top-level module"),
        ("stubs: wandb\n", r"stubs: .*list"),
        ("shims: [tpu-as-cpu]\n", r"shims\[0\]: .*cuda-as-cpu"),
        ("requires: {gpus: -1}\n", r"requires\.gpus"),
        ("requires: {module: [a]}\n", r"unknown key requires\.module\n.*did you mean `modules`"),
        ("extends: nosuch\n", r"line 1: extends: there is no preset 'nosuch'\n.*nanogpt"),
        ("extends: nanogtp\n", r"did you mean 'nanogpt'"),
        ("extends: ./none.yaml\n", r"line 1: extends: there is no file .*none\.yaml"),
        ("extends: [nanogpt]\n", r"extends: .*string"),
        ("metric: ''\n", r"metric: "),
    ],
)
def test_mistake_about_stand_ins_and_extends_is_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_of(tmp_path, text)
    assert re.search(words, str(caught.value)), str(caught.value)


def test_block_must_take_the_overrides_that_the_command_takes(tmp_path: Path) -> None:
    text = 'command: [a, "{overrides}"]\nconfig: {override: "{key}={value}"}\nwhen: [{exists: x, command: [b]}]\n'
    with pytest.raises(RecipeError, match=r"line 3: when\[0\]: its command lacks \{overrides\}"):
        recipe_of(tmp_path, text)


# ---- extends --------------------------------------------------------------------------------------------------------


def test_own_keys_win_and_mappings_are_merged(tmp_path: Path) -> None:
    base = 'command: [a, "{overrides}"]\nconfig: {override: "{key}={value}", file: base.yaml}\n'
    base += "shrink: {steps: [5, 10], set: {n: 1, m: 2}}\nstubs: [wandb]\nmetrics: {one: {pattern: '(1)'}}\n"
    base += "when: [{exists: old, data: {env: {A: old}}}]\nabout: of the base\n"
    own = "extends: base.yaml\nconfig: {file: own.yaml}\nshrink: {set: {n: 7}}\nstubs: []\nmetrics: {two: {pattern: '(2)'}}\n"
    own += "when: [{exists: new, data: {env: {A: new}}}]\n"
    (tmp_path / "base.yaml").write_text(base)
    recipe = recipe_of(tmp_path, own)
    assert recipe.command == ("a", "{overrides}")
    assert (recipe.config.file, recipe.config.override) == ("own.yaml", "{key}={value}")
    assert (recipe.shrink.steps, dict(recipe.shrink.set)) == ((5, 10), {"n": "7", "m": "2"})
    assert recipe.stubs == () and [item.name for item in recipe.metrics] == ["two", "one"]
    assert [block.exists for block in recipe.whens] == ["new", "old"]
    assert "line 6: when[0]" in recipe.whens[0].where and recipe.about == ""


def test_null_takes_a_mapping_of_the_base_out(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "extends: nanogpt\nshrink: {set: null}\nmetrics: null\n")
    assert recipe.shrink.set == () and recipe.shrink.steps == (10, 50, 200) and recipe.metrics == ()
    assert recipe_of(tmp_path, "extends: nanogpt\nwhen: null\n").whens == ()


def test_command_without_overrides_may_extend_a_preset_with_them(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "extends: nanogpt\ncommand: [python, train.py]\nshrink: {set: null}\nwhen: null\n")
    assert recipe.command == ("python", "train.py")


def test_recipes_that_extend_each_other_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("extends: ./recipe.yaml\n")
    with pytest.raises(RecipeError, match=r"leads back to this recipe"):
        recipe_of(tmp_path, "extends: other.yaml\n")


def test_mistake_in_what_is_extended_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("\nstub: [x]\n")
    with pytest.raises(RecipeError, match=r"other\.yaml, line 2: unknown key stub"):
        recipe_of(tmp_path, "extends: other.yaml\n")


# ---- presets --------------------------------------------------------------------------------------------------------

WANTED = {
    *("nanogpt", "nanochat", "torchtitan", "deepspeed", "megatron-lm", "vescale", "veomni", "hf-trainer", "accelerate"),
    *("lightning", "litgpt", "hydra"),
}


def test_there_is_a_preset_for_each_framework() -> None:
    assert set(preset_names()) == WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_preset_loads_and_is_complete(name: str) -> None:
    recipe = load_recipe(preset_path(name))
    assert recipe.command and recipe.about and recipe.recognise and recipe.shrink.steps and recipe.needs_modules
    assert recipe.metric_name or not recipe.metrics, "the first of the metrics would decide"
    assert "wandb" in recipe.stubs and not recipe.shims
    assert recipe.resources.timeout_s
    has_launcher = recipe.command[0] in ("torchrun", "accelerate")
    for command in (recipe.command, *(block.command for block in recipe.whens if block.command)):
        assert (command[0] == recipe.command[0]) and any("{ranks}" in part for part in command) == has_launcher
    assert "\t" not in preset_path(name).read_text()
