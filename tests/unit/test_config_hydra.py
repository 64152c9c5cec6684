"""Hydra compositions: changes as overrides, and what composing with them gives."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bisect_train.changes import config_hydra
from bisect_train.changes.config_edits import apply_edits
from bisect_train.changes.config_hydra import HydraDiff, HydraEnd, compose_hydra, diff_hydra, override_of, override_value
from bisect_train.changes.config_paths import ABSENT, is_same
from bisect_train.core.errors import RecipeError, UnbuildableError
from tests.support.properties import examples

needs_hydra = pytest.mark.skipif(importlib.util.find_spec("hydra") is None, reason="hydra-core is not installed")

GOOD = {
    "train.yaml": "defaults: [optimizer: adam, _self_]\nlr: 0.1\nsched: {lr: '${lr}', warm: 10}\ncopy: ${sched}\n"
    "name: run\nold: {x: 1, y: 2}\n",
    "optimizer/adam.yaml": "name: adam\nlr: ${lr}\nbetas: [0.9, 0.99]\n",
    "optimizer/sgd.yaml": "name: sgd\nlr: ${lr}\nmomentum: 0.9\n",
}
BAD = {
    "train.yaml": "defaults: [optimizer: sgd, _self_]\nlr: 0.2\nsched: {lr: '${lr}', warm: 20}\ncopy: ${sched}\n"
    "name: \"it's, a=${lr} {x}\"\nnew: {z: [1, {a: 'b c', d: null}], t: true}\nn: null\n",
    "optimizer/sgd.yaml": GOOD["optimizer/sgd.yaml"],
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def composed(diff: HydraDiff, chosen: Iterable[str]) -> dict[Any, Any]:
    """Compose the good end with the overrides of some changes."""
    end = diff.good
    return compose_hydra(end.config_dir, end.config_name, (*end.overrides, *diff.overrides(chosen)))


def check_any_set(diff: HydraDiff, wanted: dict[Any, Any], chosen: set[str]) -> None:
    """All changes give the bad end's values, the chosen ones those and no others."""
    assert is_same(composed(diff, [change.id for change in diff.changes]), wanted)
    assert diff.overrides([]) == ()
    edits = [edit for change, edit in zip(diff.changes, diff.edits, strict=True) if change.id in chosen]
    assert is_same(composed(diff, chosen), apply_edits(diff.values, edits))


@needs_hydra
def test_compose_resolves_and_leaves_hydra_as_new(tmp_path: Path) -> None:
    from hydra.core.global_hydra import GlobalHydra

    folder = write(tmp_path, GOOD)
    values = compose_hydra(folder, "train", ("optimizer=sgd", "+extra=[1,a]"))
    assert values["optimizer"] == {"name": "sgd", "lr": 0.1, "momentum": 0.9}
    assert (values["copy"], values["extra"]) == ({"lr": 0.1, "warm": 10}, [1, "a"])
    assert not GlobalHydra.instance().is_initialized()
    assert compose_hydra(folder, "train.yaml")["optimizer"]["name"] == "adam"


@needs_hydra
def test_diff_gives_an_override_per_leaf_key(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", GOOD), write(tmp_path / "bad", BAD)
    diff = diff_hydra(HydraEnd(good, "train"), HydraEnd(bad, "train"))
    titles = [change.title for change in diff.changes]
    assert {"optimizer.name: adam -> sgd", "optimizer.lr: 0.1 -> 0.2", "optimizer.betas: [0.9, 0.99] -> (absent)"} <= {*titles}
    turns = [0 if "(absent) ->" in title else 2 if "-> (absent)" in title else 1 for title in titles]
    assert turns == sorted(turns), "new keys first, keys that go last"
    assert diff.overrides(["optimizer.name"]) == ("optimizer.name=sgd",)
    assert diff.overrides(["optimizer.betas"]) == ("~optimizer.betas",)
    assert diff.overrides(["new.z", "n"]) == ("+new.z=[1,{a:'b c',d:null}]", "+n=null")
    assert diff.overrides(["old.x", "old.y"]) == ("~old.x", "~old.y", "~old")
    assert is_same(composed(diff, [change.id for change in diff.changes]), compose_hydra(bad, "train"))


@needs_hydra
def test_diff_pins_what_an_override_would_drag_along(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", GOOD), write(tmp_path / "bad", BAD)
    diff = diff_hydra(HydraEnd(good, "train"), HydraEnd(bad, "train"))
    assert diff.overrides(["lr"])[:3] == ("lr=0.2", "optimizer.lr=0.1", "sched.lr=0.1")
    wanted = compose_hydra(bad, "train")
    for chosen in ({"sched.warm"}, {"lr", "copy.warm", "old.y"}):
        check_any_set(diff, wanted, chosen)


@needs_hydra
def test_diff_removes_keys_without_a_value(tmp_path: Path) -> None:
    good = write(tmp_path / "good", {"c.yaml": "a: null\nb: {c: '???', d: 1}\ne: 1\n"})
    bad = write(tmp_path / "bad", {"c.yaml": "b: {d: 1}\ne: 1\n"})
    check_any_set(diff_hydra(HydraEnd(good, "c"), HydraEnd(bad, "c")), {"b": {"d": 1}, "e": 1}, {"b.c"})


@needs_hydra
def test_diff_of_one_directory_with_other_overrides(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD)
    good, bad = HydraEnd(folder, "train", ("lr=5",)), HydraEnd(folder, "train", ("optimizer=sgd", "+seed=1"))
    diff = diff_hydra(good, bad)
    assert "seed" in [change.id for change in diff.changes]
    check_any_set(diff, compose_hydra(folder, "train", bad.overrides), {"optimizer.name", "seed"})
    assert diff_hydra(good, good).changes == ()


@needs_hydra
@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("nope", (), "Cannot find primary config 'nope'"),
        ("train", ("x.y=1",), "cannot compose 'train' with x.y=1: Could not override 'x.y'"),
        ("train", ("lr=[",), "no viable alternative"),
        ("train", ("optimizer=q",), "Could not find 'optimizer/q'"),
        ("broken", (), "Hydra cannot compose 'broken'"),
        ("loose", (), "Interpolation key 'gone' not found"),
        ("list", (), "list"),
    ],
)
def test_compose_says_what_hydra_refuses(tmp_path: Path, name: str, overrides: tuple[str, ...], words: str) -> None:
    folder = write(tmp_path, {**GOOD, "broken.yaml": "a: [1\n", "loose.yaml": "a: ${gone}\n", "list.yaml": "- 1\n"})
    with pytest.raises(RecipeError) as caught:
        compose_hydra(folder, name, overrides)
    assert re.search(words, str(caught.value)), str(caught.value)


def test_compose_without_a_directory_or_hydra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if config_hydra.has_hydra():
        with pytest.raises(RecipeError, match="no such Hydra config directory"):
            compose_hydra(tmp_path / "none", "train")
    monkeypatch.setattr(config_hydra, "has_hydra", lambda: False)
    with pytest.raises(RecipeError, match=r"need the hydra-core package.*\n.*bisect-train\[hydra\]"):
        compose_hydra(tmp_path, "train")


@needs_hydra
def test_diff_that_overrides_cannot_give_is_an_error_at_once(tmp_path: Path) -> None:
    good = write(tmp_path / "good", {"c.yaml": "a: 1\n"})
    bad = write(tmp_path / "bad", {"c.yaml": "a: 1\n'my key': 2\n"})
    with pytest.raises(RecipeError, match="no Hydra overrides of 'c' give the new values of \"my key\""):
        diff_hydra(HydraEnd(good, "c"), HydraEnd(bad, "c"))


@needs_hydra
def test_set_that_overrides_cannot_give_is_unbuildable(tmp_path: Path) -> None:
    folder = write(tmp_path / "good", {"c.yaml": "a: 1\nb: 1\n"})
    diff = diff_hydra(HydraEnd(folder, "c"), HydraEnd(folder, "c", ("a=2", "b=2")))
    (folder / "c.yaml").write_text("a: [1\n")
    with pytest.raises(UnbuildableError, match="no Hydra overrides"):
        diff.overrides(["b"])
    with pytest.raises(ValueError, match="no such config change: q"):
        diff.overrides(["q"])


@needs_hydra
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1e-5, "1e-05"),
        (float("inf"), "inf"),
        ("adam", "adam"),
        ("a/b-c.d", "a/b-c.d"),
        ("null", "'null'"),
        ("NaN", "'NaN'"),
        ("1", "'1'"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", "'it\\'s'"),
        ("${x}", "'\\${x}'"),
        ([1, "a,b", [None]], "[1,'a,b',[null]]"),
        ({"a": {"b c": 1}}, "{a:{b\\ c:1}}"),
    ],
)
def test_override_value_is_quoted_as_the_grammar_needs(value: Any, text: str) -> None:
    assert override_value(value) == text


def test_override_of_says_how_the_key_changes() -> None:
    values = {"a": {"b": 1}}
    assert override_of(("a", "b"), 2, values) == "a.b=2"
    assert override_of(("a", "c"), 2, values) == "+a.c=2"
    assert override_of(("a", "b"), ABSENT, values) == "~a.b"
    with pytest.raises(RecipeError, match=r'the key a\."x\.y" cannot be given'):
        override_of(("a", "x.y"), 2, values)
    with pytest.raises(RecipeError, match="cannot hold the bytes"):
        override_value(b"x")


TEXT = st.text(st.sampled_from("ab1 ,=:'\"\\(){}[]$#é%~+@*\n\t."), max_size=6) | st.sampled_from(
    ["true", "null", "1e-4", "???x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "x-1"]), inner, max_size=2),
    max_leaves=5,
)
CONFIGS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES, max_size=3)


@needs_hydra
@settings(
    max_examples=examples(5),
    phases=[Phase.explicit, Phase.generate],  # composing is slow, so no shrinking
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(good=CONFIGS, bad=CONFIGS, data=st.data())
def test_any_set_of_overrides_composes_right(tmp_path: Path, good: Any, bad: Any, data: st.DataObject) -> None:
    from omegaconf import OmegaConf

    escaped = [{key: _escaped(value) for key, value in item.items()} for item in (good, bad)]
    folders = [
        write(tmp_path / name, {"c.yaml": OmegaConf.to_yaml(OmegaConf.create(item)) if item else "{}\n"})
        for name, item in zip(("good", "bad"), escaped, strict=True)
    ]
    diff = diff_hydra(HydraEnd(folders[0], "c"), HydraEnd(folders[1], "c"))
    ids = [change.id for change in diff.changes]
    chosen = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    check_any_set(diff, escaped[1], chosen)


def _escaped(value: Any) -> Any:
    """Return a value whose text OmegaConf reads as it is."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value.replace("${", "$ {") if isinstance(value, str) else value


@needs_hydra
def test_keys_of_another_group_come_before_what_uses_them_and_those_that_go_last(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "train.yaml": "defaults: [optimizer: sgd, _self_]\nlr: 1\n",
            "optimizer/sgd.yaml": "momentum: 0.9\nname: sgd\nlr: ${lr}\n",
            "optimizer/adam.yaml": "name: adam\nlr: ${lr}\nbetas: [0.9, 0.99]\n",
        },
    )
    diff = diff_hydra(HydraEnd(folder, "train"), HydraEnd(folder, "train", ("optimizer=adam", "lr=3")))
    ids = [change.id for change in diff.changes]
    assert (
        ids[0] == "optimizer.betas"
        and ids[-1] == "optimizer.momentum"
        and set(ids[1:-1]) == {"optimizer.name", "optimizer.lr", "lr"}
    )
    for num in range(1, len(ids) + 1):  # every state on the way has what the optimizer that it names reads
        values = HydraEnd(folder, "train").compose(diff.overrides(ids[:num]))["optimizer"]
        assert ("betas" if values["name"] == "adam" else "momentum") in values
