"""Recipes and the config files of ends: YAML, JSON, JSON with comments, TOML, Python, dotenv, interpolations."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache

import yaml

from bisect_train.changes.config import apply_settings, diff_configs
from bisect_train.changes.config_formats import parse_config, read_config
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import RecipeError, UnbuildableError
from bisect_train.core.question import ConfigEnd
from bisect_train.recipe import load_recipe
from bisect_train.recipe.extending import CONFIGS
from tests.fuzz.engine import Target
from tests.fuzz.places import folder, write
from tests.fuzz.text_changes import BOMB, change_bytes, change_text, to_bytes
from tests.fuzz.value_changes import change_value, json_text, toml_text

VALUES = {
    "lr": 1e-4,
    "name": "base",
    "model": {"depth": 2, "width": 64, "dropout": None, "layers": [{"kind": "conv", "n": 3}, {"kind": "mlp", "n": 1}]},
    "betas": [0.9, 0.95],
    "amp": True,
    "since": "2024-01-02",
}
TEXTS = {
    "yaml": (
        "# training\nlr: 1e-4\nmodel:\n  depth: 2\n  width: 64   # wide\n  act: 'gelu'\nbetas: [0.9, 0.95]\namp: on\nnone: ~\n",
        "a: &x {lr: 0.1, n: [1, 2]}\nb: *x\nc:\n  <<: *x\n  lr: 0.2\nwhen: 2024-01-02\ntext: |\n  two\n  lines\n",
        "--- \na: 1\n---\nb: 2\n",
        BOMB,
        "base: 2\nlr: ${base}\nout: ${oc.env:HOME}/x\nmore: {a: '${model.depth}', b: ${more.a}}\nmodel: {depth: 3}\n",
        json.dumps(VALUES),
    ),
    "json": (json.dumps(VALUES), json.dumps(VALUES, indent=2), '{"a": [1, 2.5, NaN, "\\ud83d\\ude00"], "b": {"c": null}}'),
    "json5": ("// top\n{lr: 1e-4, 'a': [1, 2,], /* x */ b: {c: +.5, d: Infinity, e: 0xFF},}\n", json.dumps(VALUES)),
    "toml": (
        'lr = 1e-4\nname = "base"\n[model]\ndepth = 2\n[[model.layers]]\nkind = "conv"\n[[model.layers]]\nkind = "mlp"\n',
        "a = {b = 1, c = [1, 2]}\nd = 1979-05-27T07:32:00Z\ne = '''x\ny'''\nf.g.h = 0xFF\ni = inf\n",
        toml_text(VALUES),
    ),
    "py": (
        '"""Config."""\nimport math\nfrom os import path as p\nlr = 1e-4\nbetas = (0.9, 0.95)\n'
        "batch = 4 * 8\nd = dict(a=1, b=[1, 2])\n",
        "a = 2 ** 10\nb = a * [0]\nc = f'{a}-{b}'\nd: int = -a\nif a > 1:\n    e = 3\n"
        "f = {**d, 'x': float('inf')}\ng = lambda y: y + a\n",
        "x = 1; y = x << 3\n@dec\ndef f(a=1):\n    global z\n    return a\nw = x if y else [i for i in range(x)]\n",
    ),
    "env": ("# x\nA=1\nexport B='two words'\nC=\"a\\nb\" # note\nD\nE=${A}\n", "LR=0.1\nNAME=base\nTOKEN=abc\n"),
}
RECIPES = (
    'command: [python, train.py, "--config={config}", "{overrides}"]\nconfig: {file: a.yaml, override: "{key}={value}"}\n'
    "shrink: {steps: [10, 50, end], ranks: [1, 2], set: {data.rows: 100}}\n",
    "command: [python, train.py]\ndata: {link: [data/, {from: ../c, to: data/c}], env: {A: '1'}}\n"
    "setup: {run: [[python, prepare.py]], inputs: [prepare.py]}\nenvironment: {mode: overlay, files: [requirements.txt]}\n",
    "command: [python, t.py]\nmetrics:\n  val_loss: {from: log, pattern: 'val loss ([0-9.]+)', better: lower}\n"
    "  acc: {from: csv, column: acc, step: step, file: '{out}/**/m.csv', better: higher, reduce: last}\n"
    "resources: {cpus: 1, gpus: 0, timeout_s: 600}\n",
    "extends: nanogpt\ncommand: [python, t.py, '{out}']\nrestart: {save_at: 40, kill: true, command: ['{command}', --resume]}\n"
    "when:\n- {file: t.py, lacks: '--new', command: [python, t.py]}\n- {since: v1, metrics: {loss: {pattern: 'l (\\d+)'}}}\n",
    "command: [torchrun, '--nproc-per-node={ranks}', t.py]\nseeds: {exempt: [1, 2]}\nprivate: [HF_HOME]\n"
    "judge: [python, j.py]\nstubs: [wandb]\nshims: [cuda-as-cpu]\nstep_function: 'a.b:C.step'\n"
    "requires: {modules: [x], gpus: 1}\ncannot: [hang]\n",
)


def end_of(name: str, text: str) -> ConfigEnd:
    """Return a config file as an end of a question."""
    return ConfigEnd(name, FilePatch(name, text))


@cache
def _recipe_values() -> tuple[dict[str, object], ...]:
    return tuple(yaml.safe_load(text) for text in RECIPES)


@cache
def _recipe_seeds() -> tuple[bytes, ...]:
    return tuple(
        text.encode() for text in (*RECIPES, *RECIPES[:4], BOMB, *(path.read_text()[:1500] for path in CONFIGS.glob("*.yaml")))
    )


def _make_recipe(rng: random.Random) -> bytes:
    seeds = _recipe_seeds()
    if rng.random() < 0.6:
        return to_bytes(json_text(rng, change_value(rng, rng.choice(_recipe_values()), _recipe_values())))
    return change_bytes(rng, rng.choice(seeds[:10] if rng.random() < 0.9 else seeds), rng.sample(seeds, 3))


def _read_recipe(data: bytes) -> None:
    load_recipe(write(folder("recipe") / "r.yaml", data))


def _text_of(rng: random.Random, kind: str) -> str:
    seeds = TEXTS[kind]
    if kind in ("yaml", "json", "json5") and rng.random() < 0.3:
        return json_text(rng, change_value(rng, VALUES))
    if kind == "toml" and rng.random() < 0.3:
        return toml_text(change_value(rng, VALUES))
    return change_text(rng, rng.choice(seeds), seeds)


def _make_config(kind: str) -> Callable[[random.Random], bytes]:
    def make(rng: random.Random) -> bytes:
        data = to_bytes(_text_of(rng, kind))
        return data if rng.random() < 0.8 else change_bytes(rng, data, [data])

    return make


def _read_config(kind: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        parse_config(read_config(write(folder("config") / f"c.{kind}", data)))

    return read


def _make_pair(rng: random.Random) -> tuple[str, str, str, str, str, int]:
    kinds = ("json", "json", "toml", "py", "env", "yaml", "json5")
    left = rng.choice(kinds)
    right = left if rng.random() < 0.8 else rng.choice(kinds)
    good = rng.choice(TEXTS[left]) if rng.random() < 0.5 else _text_of(rng, left)
    override = rng.choice(("", "", "--{key}={value}", "{key}={value}", change_text(rng, "--{key}={value}", ["x"])))
    return f"g.{left}", good, f"b.{right}", _text_of(rng, right), override, rng.randrange(2**16)


def _diff_pair(case: tuple[str, str, str, str, str, int]) -> None:
    """Take two config files apart: no change gives the good file, all of them give the bad one, and any others are readable."""
    left, good, right, bad, override, chosen = case
    diff = diff_configs(end_of(left, good), end_of(right, bad), override=override)
    assert diff.render(()).text == good
    whole = diff.render(diff.changes).text
    assert whole == bad or not (diff.same_format and diff.changes)
    some = [change for idx, change in enumerate(diff.changes) if chosen >> (idx % 16) & 1]
    diff.overrides(some)
    try:
        text = diff.render(some).text
    except UnbuildableError:
        return
    parse_config(end_of(left, text))


def _make_settings(rng: random.Random) -> tuple[str, str, list[str]]:
    kind = rng.choice(("json", "toml", "py", "env", "yaml"))
    seeds = (
        "lr=0.1",
        "model.depth=3",
        "betas[0]=0.5",
        'model={"a": [1, 2]}',
        "name=x y",
        "amp=false",
        "A=2",
        "a=[*x, *x]",
        "b=null",
    )
    settings = [
        change_text(rng, rng.choice(seeds), seeds) if rng.random() < 0.8 else rng.choice(seeds)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    return f"g.{kind}", rng.choice(TEXTS[kind]), settings


def _apply_settings(case: tuple[str, str, list[str]]) -> None:
    name, text, settings = case
    parse_config(apply_settings(end_of(name, text), settings))


SHARES = {"yaml": 3.0, "json": 3.0, "json5": 0.6, "toml": 6.0, "py": 3.0, "env": 5.0}

TARGETS = (
    Target("recipe", _make_recipe, _read_recipe, (RecipeError,), 3.0),
    *(
        Target(f"config-{kind}", _make_config(kind), _read_config(kind), (RecipeError,), share)
        for kind, share in SHARES.items()
    ),
    Target("config-diff", _make_pair, _diff_pair, (RecipeError,), 2.5),
    Target("config-settings", _make_settings, _apply_settings, (RecipeError,), 2.0),
)
