"""Recipes: what a good one gives, and what each mistake is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bisect_train.core.changes import DataLink
from bisect_train.core.errors import RecipeError
from bisect_train.core.probe import MetricPattern, RestartSettings
from bisect_train.core.question import Metric
from bisect_train.recipe import Recipe, load_recipe

FULL = """
command: [python, train.py, "--config={config}", "{overrides}", "--json={\\"a\\": 1}"]
config: {file: configs/./train.yaml, override: "--{key}={value}"}
shrink: {steps: [10, 50, end], ranks: [1, 2], set: {data.rows: 1000, x: text, y: true, z: [1, 2], n: null}}
data: {link: [data/, {from: ../corpus, to: sets/corpus}, {from: /abs/x, to: x}], env: {HF_HUB_OFFLINE: "1", A: b}}
setup: {run: [[python, data/prepare.py]], inputs: [data/prepare.py]}
metrics:
  val_loss: {from: log, pattern: 'val loss ([0-9.]+)', better: lower, reduce: last, unit: nats}
  acc: {pattern: 'acc (?P<value>[0-9.]+) at (?P<step>[0-9]+)', better: higher}
resources: {cpus: 2, gpus: 0, timeout_s: 30, threads: 2}
private: [HF_HOME]
seeds: {exempt: [2357]}
judge: [python, judge.py]
"""


def recipe_of(tmp_path: Path, text: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


def test_full_recipe_gives_all_values(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, FULL)
    assert recipe.command == ("python", "train.py", "--config={config}", "{overrides}", '--json={"a": 1}')
    assert (recipe.config.file, recipe.config.override) == ("configs/train.yaml", "--{key}={value}")
    assert (recipe.shrink.steps, recipe.shrink.ranks) == ((10, 50, None), (1, 2))
    assert recipe.shrink_overrides() == ("--data.rows=1000", "--x=text", "--y=True", "--z=[1, 2]", "--n=null")
    assert recipe.data.env == (("A", "b"), ("HF_HUB_OFFLINE", "1"))
    assert (recipe.setup.run, recipe.setup.inputs) == ((("python", "data/prepare.py"),), ("data/prepare.py",))
    assert recipe.metric("val_loss").to_metric() == Metric("val_loss", "last", "lower", "nats")
    assert recipe.metric("acc").to_pattern() == MetricPattern("acc", "acc (?P<value>[0-9.]+) at (?P<step>[0-9]+)")
    assert (recipe.resources.cpus, recipe.resources.gpus, recipe.resources.timeout_s) == (2, 0, 30)
    assert (recipe.private, recipe.exempt_seeds, recipe.judge) == (("HF_HOME",), (2357,), ("python", "judge.py"))
    assert recipe.path.endswith("recipe.yaml")


def test_links_start_at_the_repository(tmp_path: Path) -> None:
    links = recipe_of(tmp_path, FULL).links_from(Path("/srv/repo"))
    assert [link.target for link in links] == ["data", "sets/corpus", "x"]
    assert links[0].source == "/srv/repo/data"
    assert Path(links[1].source).resolve() == Path("/srv/corpus")
    assert links[2].source == "/abs/x"


def test_empty_parts_take_defaults(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "command: [python, train.py]\n")
    assert recipe == Recipe(path=recipe.path, command=("python", "train.py"))
    assert recipe_of(tmp_path, "shrink: {steps: 20, ranks: 2}\n").shrink.steps == (20,)
    assert recipe_of(tmp_path, "shrink: {steps: end}\n").shrink.steps == (None,)
    assert recipe_of(tmp_path, "data: {link: [a]}\n").data.links == (DataLink("a", "a"),)


def test_unknown_metric_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no metric 'x'") as caught:
        recipe_of(tmp_path, FULL).metric("x")
    assert "val_loss, acc" in caught.value.hint


MISTAKES = [
    # unknown keys
    ("comand: [a]\n", r"line 1: unknown key comand.*\n.*did you mean `command`\?"),
    ("command: [a]\nshrink:\n  step: 3\n", r"line 3: unknown key shrink.step.*\n.*`steps`"),
    ("data:\n  link:\n  - a\n  - {from: x, tto: y}\n", r"line 4: unknown key data.link\[1\].tto.*\n.*`to`"),
    ("metrics:\n  m:\n    patern: '(x)'\n", r"line 3: unknown key metrics.m.patern.*\n.*`pattern`"),
    ("qqqqq: 1\n", r"unknown key qqqqq\n  known keys here: command, config"),
    ("when: {x: 4}\n", r"line 1: when: input should be a valid list"),
    ("environment: {mode: conda}\n", r"line 1: environment.mode"),
    ("environment: {files: [../requirements.txt]}\n", r"leads out of the checkout"),
    ("when: [{}]\n", r"line 1: when\[0\]: a block needs a condition"),
    # yaml
    ("command: [a\nconfig: {}\n", r"line 2, column \d+: this is not valid YAML"),
    ("a:\tb\n\tc", r"line \d, column \d+: this is not valid YAML"),
    ("command: [a]\nconfig: {}\ncommand: [b]\n", r"line 3: the key command is already on line 1"),
    ("config:\n  file: a\n  file: b\n", r"line 3: the key config.file is already on line 2"),
    ("", r"this file is empty"),
    ("- a\n", r"this file is a list"),
    ("text", r"this file is text"),
    ("a: &x [*x]\n", r"nested too deeply"),
    ("command: 2024-13-45\n", r"not valid YAML: month"),
    ("command: !!python/object:os.system [x]\n", r"line 1, column 10: this is not valid YAML"),
    # types
    ("command: []\n", r"line 1: command: the command is empty"),
    ("command: python train.py\n", r"command: a command is a list of arguments"),
    ("command: ['  ', x]\n", r"command: the command names no program"),
    ("command:\n- python\n- 5\n", r'line 3: command\[1\]: .*string.*\(got 5\)\n.*"5"'),
    ("command: null\nshrink: {steps: [0]}\n", r"shrink.steps\[0\]: .*greater than 0.*\(got 0\)"),
    ("shrink: {steps: -3}\n", r"shrink.steps"),
    ("shrink: {steps: []}\n", r"shrink.steps"),
    ("shrink: {steps: '10'}\n", r"shrink.steps"),
    ("shrink: {steps: 1.5}\n", r"shrink.steps"),
    ("shrink: {steps: true}\n", r"shrink.steps"),
    ("shrink: {steps: [50, 10]}\n", r"shrink: steps go from small to large"),
    ("shrink: {steps: [end, 10]}\n", r"shrink: steps go from small to large"),
    ("shrink: {ranks: [2, 2]}\n", r"shrink: ranks go from small to large"),
    ("shrink:\n  set: {a: 1}\n", r"line 2: shrink.set needs config.override"),
    ("shrink: {set: {a: {b: 1}}}\nconfig: {override: '{key}={value}'}\n", r"shrink.set.a"),
    ("config: {override: '--{key}'}\n", r"config.override: .*lacks \{value\}"),
    ("config: {file: ../x.yaml}\n", r"config.file: '../x.yaml' leads out of the checkout"),
    ("command: [a, '{overrides}']\n", r"no config.override"),
    ("command: [a]\nconfig: {override: '{key}={value}'}\n", r"line 2: config.override is never used"),
    ("command: [a, '--c={confg}']\n", r"unknown placeholder \{confg\}, did you mean \{config\}\?"),
    ("config: []\n", r"line 1: config: .*\(got \[\]\)"),
    ("data: {link: [../x]}\n", r"data.link\[0\]: .*leads out.*write \{from: ../x, to: PATH"),
    ("data: {link: [/x]}\n", r"must be relative to the checkout; write \{from: /x"),
    ("data: {link: [{from: x, to: a/../../y}]}\n", r"data.link\[0\].to: .*leads out of the checkout"),
    ("data: {link: [{from: x, to: .}]}\n", r"no place for files"),
    ("data: {link: [{from: x, to: .git/x}]}\n", r"no place for files"),
    ("data: {link: [{from: x}]}\n", r"data.link\[0\] lacks the key `to`"),
    ("data: {link: [a, a/b]}\n", r"two links share a place in the checkout: a and a/b"),
    ("data: {env: {A: 1}}\n", r'data.env.A: .*\(got 1\)\n.*"1"'),
    ("data: {env: {A=B: x}}\n", r"data.env.*no name of an environment variable"),
    ("setup: {run: [python, prepare.py]}\n", r"setup.run\[0\]: a command is a list"),
    ("metrics: {m: {pattern: '(['}}\n", r"metrics.m.pattern: not a regular expression"),
    ("metrics: {m: {pattern: 'loss'}}\n", r"metrics.m.pattern: the pattern needs a group"),
    ("metrics: {m: {better: lower}}\n", r"metrics.m lacks the key `pattern`"),
    ("metrics: {m: {pattern: (x), better: smaller}}\n", r"metrics.m.better: .*'lower' or 'higher'"),
    ("metrics: {m: {pattern: (x), reduce: mode}}\n", r"metrics.m.reduce"),
    ("metrics: {m: {from: tensorbord}}\n", r"line 1: metrics.m.from: .*did you mean tensorboard\? known ones: log, "),
    ("metrics: {m: {from: 3}}\n", r"metrics.m.from: "),
    ("metrics: {m: {pattern: (x), from: wandb}}\n", r"metrics.m: `pattern` has no place under `from: wandb`.*key, step, file"),
    ("metrics: {m: {from: csv, tag: x}}\n", r"metrics.m: `tag` has no place under `from: csv`, which takes column, step, file"),
    ("metrics: {m: {pattern: (x), step: it}}\n", r"`step` has no place under `from: log`"),
    ("metrics: {m: {pattern: []}}\n", r"lacks `pattern`"),
    ("metrics: {m: {pattern: [(x), 'loss']}}\n", r"metrics.m.pattern\[1\]: the pattern needs a group"),
    ("metrics: {m: {from: csv, file: /var/a.csv}}\n", r"metrics.m.file: .*must be relative to the checkout"),
    ("metrics: {m: {from: csv, file: '{out}/../a.csv'}}\n", r"metrics.m.file: .*leads out of the checkout"),
    ("metrics: {m: {from: csv, file: ['~/a.csv']}}\n", r"metrics.m.file\[0\]: .*must be relative"),
    ("metrics: {'a b': {pattern: (x)}}\n", r"metrics.a b"),
    ("resources: {timeout_s: 0}\n", r"resources.timeout_s"),
    ("resources: {timeout_s: .nan}\n", r"resources.timeout_s"),
    ("resources: {threads: 1.5}\n", r"resources.threads"),
    ("resources: {gpus: -1}\n", r"resources.gpus"),
    ("private: [a b]\n", r"private\[0\].*no name of an environment variable"),
    ("seeds: {exempt: [x]}\n", r"seeds.exempt\[0\]"),
    ("judge: judge.py\n", r"judge: a command is a list"),
    ("1: x\n", r"unknown key 1|the recipe"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_mistake_is_a_recipe_error_that_names_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_of(tmp_path, text)
    assert re.search(words, str(caught.value)), str(caught.value)
    assert "recipe.yaml" in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_status == 2


def test_recipe_that_stands_for_billions_of_keys_is_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{idx}: &a{idx} [{', '.join([f'*a{idx - 1}'] * 10)}]" for idx in range(1, 10)]
    with pytest.raises(RecipeError, match="stands for more than"):
        recipe_of(tmp_path, "\n".join(lines))


def test_other_braces_in_a_command_are_left_alone(tmp_path: Path) -> None:
    command = ["python", "x.py", "{lr}", "{}", '{"steps2": 3}', "{{seed}}"]
    assert recipe_of(tmp_path, f"command: {command}\n").command == tuple(command)


def test_file_that_cannot_be_read_is_a_recipe_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no such recipe") as caught:
        load_recipe(tmp_path / "none.yaml")
    assert "bisect-train init" in caught.value.hint
    with pytest.raises(RecipeError, match="cannot read this recipe"):
        load_recipe(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"command: [\xe9]")
    with pytest.raises(RecipeError, match="UTF-8"):
        load_recipe(tmp_path / "latin.yaml")


def test_restart_is_read_and_needs_steps_that_are_left(tmp_path: Path) -> None:
    text = 'command: [python, train.py]\nrestart: {save_at: 4, ranks: 1, command: ["{command}", --resume, "{out}"]}\n'
    recipe = recipe_of(tmp_path, text)
    expected = RestartSettings(4, ("{command}", "--resume", "{out}"), 1, True)
    assert recipe.restart_settings(6) == recipe.restart_settings(None) == expected
    assert recipe_of(tmp_path, "command: [a]\n").restart_settings(1) is None
    for steps, said in ((5, "at most 3"), (4, "at most 2"), (1, "one step cannot be interrupted")):
        with pytest.raises(RecipeError, match=f"restart.save_at: 4 leaves no step .* {said}") as caught:
            recipe.restart_settings(steps)
        assert "--steps" in caught.value.hint and caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("restart: {save_at: -1, command: [a]}\n", "restart.save_at"),
        ("restart: {save_at: 3}\n", "lacks the key `command`"),
        ("restart: {command: [a]}\n", "lacks the key `save_at`"),
        ("restart: {save_at: 3, command: a b}\n", "a command is a list"),
        ("restart: {save_at: 3, command: [a], ranks: 0}\n", "restart.ranks"),
        ("restart: {save_at: 3, command: [a], rank: 2}\n", "unknown key restart.rank"),
        ('restart: {save_at: 3, command: [a, "{overrides}"]}\n', "overrides.* has no place here"),
        ('restart: {save_at: 3, command: [a, "{comand}"]}\n', "did you mean {command}"),
    ],
)
def test_restart_with_a_mistake_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        recipe_of(tmp_path, text)
