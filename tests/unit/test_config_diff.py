"""Config diffs: what is one change, what a set of changes gives, and what is refused."""

from __future__ import annotations

import datetime
import json
import math
import re
from typing import Any

import pytest
import tomlkit
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.changes.config import (
    ConfigDiff,
    ConfigKind,
    apply_settings,
    config_kind_of,
    diff_configs,
    read_config,
)
from bisect_train.changes.config_formats import parse_config
from bisect_train.changes.config_paths import is_same
from bisect_train.core.changes import ChangeKind, FilePatch
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import ConfigEnd
from tests.support.properties import examples


def end_of(text: str, name: str = "c.yaml") -> ConfigEnd:
    return ConfigEnd(f"/configs/{name}", FilePatch(name, text))


def ids_of(diff: ConfigDiff) -> list[str]:
    return [change.id for change in diff.changes]


def titles(good: str, bad: str, name: str = "c.yaml") -> list[str]:
    return [change.title for change in diff_configs(end_of(good, name), end_of(bad, name)).changes]


def values_of(patch: FilePatch) -> dict[Any, Any]:
    return parse_config(ConfigEnd(patch.name, patch)).values


@pytest.mark.parametrize(
    ("good", "bad", "title"),
    [
        ("lr: 0.1", "lr: 0.2", "lr: 0.1 -> 0.2"),
        ("a: {b: {c: x}}", "a: {b: {c: y}}", "a.b.c: x -> y"),
        ("a: 1", "a: 1.0", "a: 1 (int) -> 1.0 (float)"),
        ("a: 1", "a: true", "a: 1 (int) -> True (bool)"),
        ("a: false", "a: 0", "a: False (bool) -> 0 (int)"),
        ("lr: 1e-4", "lr: 0.0001", "lr: 1e-4 (text) -> 0.0001 (float)"),
        ("lr: 1e-4", "lr: 1.0e-4", "lr: 1e-4 (text) -> 0.0001 (float)"),
        ("a: null", "a: 3", "a: null -> 3 (int)"),
        ("{}", "a: null", "a: (absent) -> null"),
        ("a: null", "", "a: null -> (absent)"),
        ("a: [1, 2]", "a: [1, 3]", "a[1]: 2 -> 3"),
        ("a: [{b: 1}, 2]", "a: [{b: 2}, 2]", "a[0].b: 1 -> 2"),
        ("a: [1, 2]", "a: [1, 2, 3]", "a: [1, 2] -> [1, 2, 3]"),
        ("a: [1, 2]", "a: {b: 1}", 'a: [1, 2] (list) -> {"b": 1} (mapping)'),
        ("a.b: 1", "a.b: 2", '"a.b": 1 -> 2'),
        ("x: {'': 1}", "x: {'': 2}", 'x."": 1 -> 2'),
        ("x: {3: 1}", "x: {3: 2}", "x.<3>: 1 -> 2"),
        ("x: {null: 1}", "x: {null: 2}", "x.<null>: 1 -> 2"),
        ("__private: 1", "__private: 2", "__private: 1 -> 2"),
        ("a: .nan", "a: .inf", "a: nan -> inf"),
        ("d: 2024-01-01", "d: 2024-01-02", "d: 2024-01-01 -> 2024-01-02"),
        ("d: 2024-01-01 00:00:00", "d: 2024-01-01 00:00:00Z", "d: 2024-01-01 00:00:00 -> 2024-01-01 00:00:00+00:00"),
        ("x: !!set {a, b}", "x: !!set {c, a}", "x: {a, b} -> {a, c}"),
        ("x: 1", "x: {2024-01-01: [null]}", 'x: 1 (int) -> {"2024-01-01": [null]} (mapping)'),
        ("a: {}", "a: {b: 1}", "a.b: (absent) -> 1"),
        ("{}", "a: {}", "a: (absent) -> {}"),
        ("a: |\n  two\n  lines\n", "a: x", "a: two lines -> x"),
    ],
)
def test_diff_of_one_key_is_one_change_with_a_title(good: str, bad: str, title: str) -> None:
    assert titles(good, bad) == [title]


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("a: .nan", "a: .nan"),
        ("a: 1\nb: 2", "b: 2\na: 1"),
        ("a: 1 # why", "a: 0x1"),
        ("base: &b {x: 1}\nc: *b", "base: {x: 1}\nc: {x: 1}"),
        ("", "{}"),
    ],
)
def test_diff_of_equal_values_has_no_changes(good: str, bad: str) -> None:
    diff = diff_configs(end_of(good), end_of(bad))
    assert diff.changes == ()
    assert diff.render([]).text == good


def test_list_shifted_by_one_is_compared_item_by_item() -> None:
    assert titles("a: [1, 2, 3]", "a: [2, 3, 4]") == ["a[0]: 1 -> 2", "a[1]: 2 -> 3", "a[2]: 3 -> 4"]


def test_sections_added_and_removed_are_one_change_per_leaf() -> None:
    good, bad = "a: {old: {x: 1, y: [1]}}", "a: {new: {x: 1, z: {}}}"
    diff = diff_configs(end_of(good), end_of(bad))
    assert ids_of(diff) == ["a.old.x", "a.old.y", "a.new.x", "a.new.z"]
    assert values_of(diff.render(["a.old.x"])) == {"a": {"old": {"y": [1]}}}
    assert values_of(diff.render(["a.old.x", "a.old.y"])) == {"a": {}}
    assert values_of(diff.render(["a.new.z"])) == {"a": {"old": {"x": 1, "y": [1]}, "new": {"z": {}}}}


def test_changes_are_in_the_files_order_new_keys_last() -> None:
    diff = diff_configs(end_of("z: 1\nm: {b: 1, a: 1}\n"), end_of("new: 1\nz: 2\nm: {a: 2, b: 2}\n"))
    assert ids_of(diff) == ["z", "m.b", "m.a", "new"]
    assert {change.kind for change in diff.changes} == {ChangeKind.CONFIG}


def test_render_of_none_and_all_is_the_exact_text_of_the_ends() -> None:
    good, bad = "# good\na:   1\nb: 'x'\n", '# bad\r\nb: "y"\r\na: 2\r\n'
    diff = diff_configs(end_of(good, "good.yaml"), end_of(bad, "other.yml"))
    assert diff.render([]) == FilePatch("good.yaml", good)
    assert diff.render(diff.changes) == FilePatch("good.yaml", bad)
    assert values_of(diff.render([diff.changes[0]])) == {"a": 2, "b": "x"}


def test_render_keeps_everything_else_in_yaml_as_written() -> None:
    good = "# head\nlr: 1e-4   # text to PyYAML\nopt: {betas: [0.9, 0.99], 'eps': 1.0e-8}\nname: 'run'\n"
    diff = diff_configs(end_of(good), end_of(good.replace("0.99", "0.95").replace("'run'", "'1'")))
    assert diff.render(["opt.betas[1]"]).text == good.replace("0.99", "0.95")
    assert diff.render(["name"]).text == good.replace("'run'", "'1'")


def test_render_does_not_touch_what_shares_an_alias() -> None:
    good = "base: &b {x: 1, y: &v 2}\nc: *b\nd: *v\ne: {<<: *b, z: 1}\n"
    bad = "base: {x: 1, y: 2}\nc: {x: 5, y: 2}\nd: 2\ne: {x: 1, y: 7, z: 1}\nf: 1"
    diff = diff_configs(end_of(good), end_of(bad))
    assert ids_of(diff) == ["c.x", "e.y", "f"]
    assert values_of(diff.render(["c.x", "e.y"])) == {
        "base": {"x": 1, "y": 2},
        "c": {"x": 5, "y": 2},
        "d": 2,
        "e": {"x": 1, "y": 7, "z": 1},
    }


def test_render_keeps_comments_in_toml() -> None:
    good = '# head\n[opt]\nlr = 0.1 # rate\nname = "adam"\n\n[[layers]]\nn = 1\n\n[[layers]]\nn = 2\n'
    bad = good.replace("0.1", "0.2").replace("n = 2", "n = 3") + "[data]\nrows = 5\n"
    diff = diff_configs(end_of(good, "c.toml"), end_of(bad, "c.toml"))
    assert ids_of(diff) == ["opt.lr", "layers[1].n", "data.rows"]
    assert diff.render(["opt.lr"]).text == good.replace("0.1", "0.2")
    assert diff.render(["layers[1].n"]).text == good.replace("n = 2", "n = 3")
    assert "# rate" in diff.render(["data.rows"]).text


def test_toml_dates_and_dotted_keys() -> None:
    good = "a.b.c = 1\nwhen = 2024-01-01T00:00:00Z\n[x]\ny.z = 1\n"
    bad = "a.b.c = 2\nwhen = 2024-01-02T00:00:00Z\n[x]\ny.w = 1\n"
    diff = diff_configs(end_of(good, "c.toml"), end_of(bad, "c.toml"))
    assert ids_of(diff) == ["a.b.c", "when", "x.y.z", "x.y.w"]
    rendered = values_of(diff.render(["a.b.c", "x.y.z", "x.y.w"]))
    assert rendered["a"] == {"b": {"c": 2}}
    assert rendered["when"] == datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    assert rendered["x"] == {"y": {"w": 1}}


def test_json_reads_numbers_and_nan() -> None:
    diff = diff_configs(
        end_of('{"lr": 1e-4, "x": NaN, "e": "é"}', "c.json"), end_of('{"lr": 1e-3, "x": Infinity, "e": "é"}', "c.json")
    )
    assert [change.title for change in diff.changes] == ["lr: 0.0001 -> 0.001", "x: nan -> inf"]
    rendered = values_of(diff.render(["lr"]))
    assert rendered["lr"] == 1e-3
    assert math.isnan(rendered["x"])


def test_two_formats_compare_by_values_and_render_in_the_good_ones() -> None:
    diff = diff_configs(end_of("a: 1\nb: x\n"), end_of('{"a": 2, "b": "y"}', "c.json"))
    assert ids_of(diff) == ["a", "b"]
    full = diff.render(diff.changes)
    assert (full.name, yaml.safe_load(full.text)) == ("c.yaml", {"a": 2, "b": "y"})
    assert not full.text.startswith("{")


def test_value_that_the_good_format_cannot_hold_is_an_error() -> None:
    with pytest.raises(RecipeError, match="TOML cannot hold the new values of a"):
        diff_configs(end_of("a = 1", "c.toml"), end_of("a: null"))
    with pytest.raises(RecipeError, match="JSON cannot hold"):
        diff_configs(end_of('{"a": 1}', "c.json"), end_of("a: 2024-01-01"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.yaml", "a: 1\nb: [1, 2\nc: 3\n", "c.yaml, line 3, column 2: this is not valid YAML"),
        ("c.yaml", "a: !include x\n", "line 1, column 4.*could not determine a constructor"),
        ("c.yaml", "a: 1\nd: 2024-13-45\n", "not valid YAML: month must be"),
        ("c.yaml", "a: &x [*x]", "an alias refers to itself"),
        ("c.yaml", "- 1\n- 2\n", "this one is a list"),
        ("c.yaml", "just text", "this one is a str"),
        ("c.json", '{\n "a": 1\n "b": 2\n}', "c.json, line 3, column 2: this is not valid JSON"),
        ("c.json", "", "line 1, column 1"),
        ("c.toml", "a = 1\nb = \n", "c.toml, line 2: this is not valid TOML"),
        ("c.json", "[" * 100_000, "c.json"),
        ("c.yaml", "[" * 2_000, "c.yaml"),
    ],
)
def test_malformed_file_names_file_and_line(name: str, text: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        diff_configs(end_of("a: 1"), end_of(text, name))
    assert caught.value.exit_status == 2


def test_yaml_that_stands_for_billions_of_values_is_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{idx}: &a{idx} [{', '.join([f'*a{idx - 1}'] * 10)}]" for idx in range(1, 10)]
    with pytest.raises(RecipeError, match="aliases stand for more than"):
        diff_configs(end_of("\n".join(lines)), end_of("a: 1"))


def test_file_without_a_known_suffix_is_tried() -> None:
    for text in ('{"a": 1}', "a = 1", "a: 1"):
        assert parse_config(end_of(text, "config")).values == {"a": 1}
    assert config_kind_of("x/y.YML") is ConfigKind.YAML
    assert config_kind_of("x.json") is ConfigKind.JSON
    assert config_kind_of("x.toml") is ConfigKind.TOML
    assert config_kind_of("x.txt") is None


def test_read_config_says_what_is_wrong(tmp_path: Any) -> None:
    with pytest.raises(RecipeError, match="no such config file"):
        read_config(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match=r"cannot read.*directory"):
        read_config(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(b"a: \xff")
    with pytest.raises(RecipeError, match="not UTF-8"):
        read_config(tmp_path / "bad.yaml")
    (tmp_path / "ok.yaml").write_bytes(b"a: 1\r\n")
    assert read_config(tmp_path / "ok.yaml") == ConfigEnd(str(tmp_path / "ok.yaml"), FilePatch("ok.yaml", "a: 1\r\n"))


def test_overrides_fill_the_template_in_order() -> None:
    good = "a: 1\nb: {c: x, d: true, e: 0.5}\nl: [1, 2]\nn: 1\n"
    bad = "a: 2\nb: {c: '{key}', d: false, e: 1.0e-5}\nl: [1, 3]\nn: null\nnew: {z: 3}\n"
    diff = diff_configs(end_of(good), end_of(bad), override="--{key}={value}")
    assert diff.overrides(diff.changes) == (
        "--a=2",
        "--b.c={key}",
        "--b.d=False",
        "--b.e=1e-05",
        "--l=[1, 3]",
        "--n=null",
        "--new.z=3",
    )
    assert diff.overrides([]) == ()
    assert diff.overrides(["n", "a"]) == ("--a=2", "--n=null")
    assert diff_configs(end_of(good), end_of(bad)).overrides(["a"]) == ()


def test_overrides_that_cannot_be_given_are_an_error_at_once() -> None:
    with pytest.raises(RecipeError, match="cannot remove a key"):
        diff_configs(end_of("a: 1\nb: 2"), end_of("a: 1"), override="{key}={value}")
    with pytest.raises(RecipeError, match=r'the key "a\.b" cannot be given'):
        diff_configs(end_of("a.b: 1"), end_of("a.b: 2"), override="{key}={value}")
    with pytest.raises(RecipeError, match=r"lacks \{value\}"):
        diff_configs(end_of("a: 1"), end_of("a: 2"), override="--{key}")


def test_choosing_an_unknown_change_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no such config change: b"):
        diff_configs(end_of("a: 1"), end_of("a: 2")).render(["b"])


def test_apply_settings_reads_values_as_the_file_does() -> None:
    good = end_of("lr: 0.1  # rate\nname: adam\nbetas: [0.9, 0.99]\nn: {up: true}\n")
    changed = apply_settings(good, ["lr=1.0e-3", "name=sgd", "betas[1]=0.5", "n.up=null"])
    assert changed.path == "/configs/c.yaml with lr=1.0e-3, name=sgd, betas[1]=0.5, n.up=null"
    assert changed.patch.name == "c.yaml"
    assert changed.patch.text == "lr: 0.001  # rate\nname: sgd\nbetas: [0.9, 0.5]\nn: {up: null}\n"
    assert ids_of(diff_configs(good, changed)) == ["lr", "name", "betas[1]", "n.up"]


def test_apply_settings_in_json_and_toml_take_unreadable_text_as_a_string() -> None:
    changed = apply_settings(end_of('{"lr": 0.1, "name": "a"}', "c.json"), ["lr=1e-3", "name=sgd"])
    assert json.loads(changed.patch.text) == {"lr": 1e-3, "name": "sgd"}
    changed = apply_settings(end_of('lr = 0.1\nname = "a"\n', "c.toml"), ["lr=1e-3", "name=sgd"])
    assert values_of(changed.patch) == {"lr": 1e-3, "name": "sgd"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("optimizer.lrr=1", "no key 'optimizer.lrr'.*\n.*nearest keys: optimizer.lr"),
        ("zzz=1", "nearest keys: "),
        ("optimizer.lr", "not KEY=VALUE"),
        ("=3", "not KEY=VALUE"),
        ("optimizer.lr=0.1", "has this value already"),
        ("optimizer.lr=1e-4", "reads 1e-4 as text.*\n.*write 1.0e-4"),
        ("optimizer.lr=[1", "cannot read"),
    ],
)
def test_apply_settings_refuses(setting: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        apply_settings(end_of("optimizer: {lr: 0.1}\nseed: 1\n"), [setting])
    assert re.search(words, str(caught.value)), str(caught.value)


def test_apply_settings_takes_text_for_text_and_each_key_once() -> None:
    good = end_of("lr: 3e-4\n")
    assert apply_settings(good, ["lr=1e-4"]).patch.text == "lr: 1e-4\n"
    with pytest.raises(RecipeError, match="given before"):
        apply_settings(good, ["lr=1", "lr=2"])
    with pytest.raises(RecipeError, match="no setting"):
        apply_settings(good, [])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    [
        "1e-4",
        "1",
        "true",
        "null",
        "~",
        "2024-01-01",
        "a.b",
        "x: y",
        "# no",
        "- a",
        "'",
        '"',
        "{",
        "[",
        "=",
        "<<",
        "0x1",
        "1_0",
        " a ",
        "\n",
        "é",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
    st.sampled_from([1, 1.0, True, 0, 0.0, False, 1e-4, "1e-4"]),
    TEXT,
)
KEYS = st.sampled_from(["a", "b", "c", "__x", "a.b"]) | TEXT

DATES = st.sampled_from(
    [
        datetime.date(2024, 1, 1),
        datetime.datetime(2024, 1, 1),
        datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
        datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ]
)
YAML_SCALARS = SCALARS | DATES | st.binary(max_size=3) | st.sets(st.sampled_from("ab"), max_size=2)
YAML_KEYS = KEYS | st.sampled_from([1, 2, None, 1.5, datetime.date(2024, 1, 1)])


def configs(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    nested = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
    )
    return st.dictionaries(keys, nested, max_size=4)


def check_any_set(good: ConfigEnd, bad: ConfigEnd, data: st.DataObject) -> None:
    """Any set of changes renders to good's values with those, and only those, changed."""
    diff = diff_configs(good, bad)
    ids = ids_of(diff)
    assert len(set(ids)) == len(ids)
    assert is_same(values_of(diff.render(ids)), values_of(bad.patch))
    assert diff.render([]).text == good.patch.text
    chosen = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    middle = ConfigEnd("middle", diff.render(chosen))
    assert set(ids_of(diff_configs(good, middle))) == chosen
    rest = diff_configs(middle, bad)
    assert set(ids_of(rest)) == set(ids) - chosen


@settings(max_examples=examples(150))
@given(good=configs(YAML_SCALARS, YAML_KEYS), bad=configs(YAML_SCALARS, YAML_KEYS), data=st.data())
def test_any_set_of_yaml_changes_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    flow = data.draw(st.sampled_from([True, False, None]))
    texts = [yaml.safe_dump(item, sort_keys=False, allow_unicode=True, default_flow_style=flow) for item in (good, bad)]
    if any(not is_same(yaml.safe_load(text), item) for text, item in zip(texts, (good, bad), strict=True)):
        return  # PyYAML itself does not read back what it wrote
    check_any_set(end_of(texts[0]), end_of(texts[1]), data)


@settings(max_examples=examples(100))
@given(good=configs(SCALARS, KEYS), bad=configs(SCALARS, KEYS), data=st.data())
def test_any_set_of_json_changes_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    check_any_set(end_of(json.dumps(good), "c.json"), end_of(json.dumps(bad), "c.json"), data)


TOML_SCALARS = SCALARS.filter(lambda value: value is not None) | DATES


@settings(max_examples=examples(100))
@given(good=configs(TOML_SCALARS, KEYS), bad=configs(TOML_SCALARS, KEYS), data=st.data())
def test_any_set_of_toml_changes_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    texts = [tomlkit.dumps(item) for item in (good, bad)]
    for text, item in zip(texts, (good, bad), strict=True):
        try:
            if not is_same(parse_config(end_of(text, "c.toml")).values, item):
                return
        except RecipeError:
            return  # tomlkit itself wrote what cannot be read
    check_any_set(end_of(texts[0], "c.toml"), end_of(texts[1], "c.toml"), data)
