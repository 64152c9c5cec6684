"""Settings that are small as text and would be large once read: refused before anything is built of them."""

from __future__ import annotations

import pytest

from bisect_train.changes.config import apply_settings
from bisect_train.changes.config_bounds import MAX_DEPTH, MAX_REFERENCES, MAX_VALUE_CHARS
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import ConfigEnd

TEXTS = {
    "c.yaml": "lr: 1\nseed: 2\n",
    "c.json": '{"lr": 1, "seed": 2}\n',
    "c.json5": "{lr: 1, seed: 2} // x\n",
    "c.toml": "lr = 1\nseed = 2\n",
    "c.py": "lr = 1\nseed = 2\n",
    ".env": "lr=1\nseed=2\n",
}


def end_of(name: str) -> ConfigEnd:
    return ConfigEnd(name, FilePatch(name, TEXTS[name]))


def bomb(num_levels: int) -> str:
    parts = ["&a [x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefghij", "bcdefghijk"[: num_levels - 1], strict=False):
        parts.append(f"&{name} [" + ",".join([f"*{before}"] * 9) + "]")
    return "[" + ",".join(parts) + "]"


@pytest.mark.parametrize("value", [bomb(2), bomb(9), "&a 1", "{x: &x [1], y: *x}", "{<<: &m {a: 1}}", "&a !!str b"])
def test_anchors_and_aliases_of_yaml_are_refused(value: str) -> None:
    with pytest.raises(RecipeError, match="an anchor or an alias"):
        apply_settings(end_of("c.yaml"), [f"lr={value}"])


@pytest.mark.parametrize("value", ['"&a *a"', "'*'", "['*a', '&b', a*b, R&D]", "2*3", "a & b"])
def test_their_signs_in_text_are_text(value: str) -> None:
    assert apply_settings(end_of("c.yaml"), [f"lr={value}"]).patch.text != TEXTS["c.yaml"]


@pytest.mark.parametrize("name", TEXTS)
def test_value_is_bounded_in_every_format(name: str) -> None:
    with pytest.raises(RecipeError, match="10,001 characters") as caught:
        apply_settings(end_of(name), ["lr=" + "x" * (MAX_VALUE_CHARS + 1)])
    assert len(str(caught.value)) < 400
    assert "x" * 500 in apply_settings(end_of(name), [f'lr="{"x" * 500}"']).patch.text


@pytest.mark.parametrize("name", [name for name in TEXTS if name != ".env"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 3000, MAX_VALUE_CHARS // 2])
def test_value_that_is_nested_deeply_is_refused(name: str, depth: int) -> None:
    with pytest.raises(RecipeError, match="nested more than 20 deep"):
        apply_settings(end_of(name), ["lr=" + "[" * depth + "]" * depth])


@pytest.mark.parametrize("value", ["- " * 30 + "1", "? " * 30 + "1", "[" * 10_000])
def test_other_ways_to_nest_in_yaml_are_bounded(value: str) -> None:
    with pytest.raises(RecipeError, match="nested more than 20 deep"):
        apply_settings(end_of("c.yaml"), [f"lr={value}"])


@pytest.mark.parametrize("name", ["c.yaml", "c.json", "c.json5", "c.toml", "c.py"])
def test_usual_depth_and_brackets_in_quotes_are_taken(name: str) -> None:
    end = end_of(name)
    for value in ("[[[[1]]]]", '"' + "[" * 50 + '"'):
        assert apply_settings(end, [f"lr={value}"]).patch.text != end.patch.text


def test_references_in_settings_are_bounded_all_together() -> None:
    pytest.importorskip("omegaconf")
    few = ["lr=${seed}", "seed=3"]
    assert "${seed}" in apply_settings(end_of("c.yaml"), few).patch.text
    half = "${x}" * (MAX_REFERENCES // 2)
    assert apply_settings(end_of("c.yaml"), [f"lr={half}", f"seed={half}"])
    with pytest.raises(RecipeError, match="17 references"):
        apply_settings(end_of("c.yaml"), [f"lr={half}", f"seed={half}${{x}}"])
