"""Config diffs of YAML with several documents, merges and interpolations, of JSON5, Python and dotenv files."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.changes.config import ConfigDiff, ConfigKind, apply_settings, config_kind_of, diff_configs
from bisect_train.changes.config_formats import parse_config
from bisect_train.changes.config_omegaconf import load_omegaconf
from bisect_train.changes.config_paths import Opaque, is_same
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import RecipeError, UnbuildableError
from bisect_train.core.question import ConfigEnd
from tests.support.properties import examples

needs_omegaconf = pytest.mark.skipif(importlib.util.find_spec("omegaconf") is None, reason="omegaconf is not installed")


def end_of(text: str, name: str) -> ConfigEnd:
    return ConfigEnd(f"/configs/{name}", FilePatch(name, text))


def diff_of(good: str, bad: str, name: str) -> ConfigDiff:
    return diff_configs(end_of(good, name), end_of(bad, name))


def titles(diff: ConfigDiff) -> list[str]:
    return [change.title for change in diff.changes]


def values_of(text: str, name: str) -> Any:
    return parse_config(end_of(text, name)).values


def check_any_set(good: ConfigEnd, bad: ConfigEnd, data: st.DataObject) -> None:
    """Any set of changes renders to good's values with those, and only those, changed."""
    diff = diff_configs(good, bad)
    ids = [change.id for change in diff.changes]
    assert len(set(ids)) == len(ids)
    assert is_same(parse_config(ConfigEnd("full", diff.render(ids))).values, parse_config(bad).values)
    assert diff.render([]).text == good.patch.text
    chosen = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    middle = ConfigEnd("middle", diff.render(chosen))
    assert {change.id for change in diff_configs(good, middle).changes} == chosen
    assert {change.id for change in diff_configs(middle, bad).changes} == set(ids) - chosen


# YAML: several documents, anchors and merges


def test_yaml_documents_are_addressed_by_number_and_keep_comments() -> None:
    good = "# first\nlr: 0.1 # rate\n---\n# second\ndata: {rows: 5}\n...\n---\nlast: x\n"
    diff = diff_of(good, good.replace("0.1", "0.2").replace("rows: 5", "rows: 6"), "c.yaml")
    assert titles(diff) == ["[0].lr: 0.1 -> 0.2", "[1].data.rows: 5 -> 6"]
    assert diff.render(["[1].data.rows"]).text == good.replace("rows: 5", "rows: 6")
    assert apply_settings(end_of(good, "c.yaml"), ["[2].last=y"]).patch.text == good.replace("last: x", "last: y")


def test_yaml_documents_take_new_keys() -> None:
    diff = diff_of("a: 1\n---\nb: 1\n", "a: 1\n---\nb: 1\nc: [1]\n---\n".removesuffix("---\n"), "c.yaml")
    assert titles(diff) == ["[1].c: (absent) -> [1]"]
    assert diff.render(diff.changes).text == "a: 1\n---\nb: 1\nc: [1]\n"
    two = diff_of("a: 1\nx: 1\n---\nb: 1\n", "a: {n: 1}\nx: 1\n---\n", "c.yaml")
    text = two.render(["[1].b"]).text
    assert list(yaml.safe_load_all(text)) == [{"a": 1, "x": 1}, {}]


@pytest.mark.parametrize(
    ("good", "bad"),
    [("a: 1\n", "a: 1\n---\nb: 2\n"), ("a: 1\n---\nb: 2\n", "a: 1\n"), ("a: 1\n---\nb: 2\n", "a: 1\n---\nb: 2\n---\nc: 3\n")],
)
def test_yaml_another_number_of_documents_is_one_change(good: str, bad: str) -> None:
    diff = diff_of(good, bad, "c.yaml")
    assert [change.id for change in diff.changes] == ["documents"]
    assert (diff.render([]).text, diff.render(["documents"]).text) == (good, bad)
    as_json = diff_configs(end_of(good, "c.yaml"), end_of(json.dumps({"z": 1}), "c.json"))
    assert values_of(as_json.render(as_json.changes).text, "c.yaml") == {"z": 1}


def test_yaml_documents_that_cannot_be_compared() -> None:
    with pytest.raises(RecipeError, match="document 2 of 2 is a list"):
        values_of("a: 1\n---\n- 1\n", "c.yaml")
    with pytest.raises(RecipeError, match="this one is a list"):
        values_of("- a: 1\n", "c.yaml")
    with pytest.raises(RecipeError, match="JSON cannot hold the new values of all documents"):
        diff_configs(end_of('{"a": 1}', "c.json"), end_of("a: 1\n---\nb: 1\n", "c.yaml"))
    with pytest.raises(RecipeError, match="documents cannot be given on the command line"):
        diff_configs(end_of("a: 1\n---\nb: 1\n", "c.yaml"), end_of("a: 1\n---\nb: 2\n", "c.yaml"), override="{key}={value}")


MERGED = "base: &base {lr: 0.1, wd: 0.0}  # shared\nsmall: {<<: *base, width: 8}\nlarge:\n  <<: *base\n  width: 64\n"


def test_yaml_merge_edit_of_a_merged_key_changes_this_key_only() -> None:
    diff = diff_of(MERGED, MERGED.replace("width: 8}", "width: 8, lr: 0.2}"), "c.yaml")
    assert titles(diff) == ["small.lr: 0.1 -> 0.2"]
    both = diff_of(MERGED, MERGED.replace("lr: 0.1", "lr: 0.3"), "c.yaml")
    assert titles(both) == ["base.lr: 0.1 -> 0.3", "small.lr: 0.1 -> 0.3", "large.lr: 0.1 -> 0.3"]
    values = values_of(MERGED, "c.yaml")
    for change in both.changes:
        section = change.id.partition(".")[0]
        wanted = {**values, section: {**values[section], "lr": 0.3}}
        assert values_of(both.render([change]).text, "c.yaml") == wanted


def test_yaml_merge_edit_of_an_own_key_keeps_the_merge() -> None:
    diff = diff_of(MERGED, MERGED.replace("64", "65"), "c.yaml")
    assert titles(diff) == ["large.width: 64 -> 65"]
    assert apply_settings(end_of(MERGED, "c.yaml"), ["large.width=65"]).patch.text == MERGED.replace("64", "65")


def test_yaml_merge_edit_of_an_overriding_key_changes_this_key_only() -> None:
    text = "base: &b {lr: 1}\nrun: {<<: *b, lr: 2}\nother: {<<: [*b, {wd: 3}]}\n"
    for setting, wanted in (("run.lr=5", ("run", "lr")), ("other.wd=5", ("other", "wd")), ("base.lr=5", ("base", "lr"))):
        values = values_of(text, "c.yaml")
        values[wanted[0]][wanted[1]] = 5
        assert values_of(apply_settings(end_of(text, "c.yaml"), [setting]).patch.text, "c.yaml") == values


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1e-4, "1e-4", "x", "", "a: b", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
CONFIGS = st.dictionaries(st.sampled_from(["a", "b", "c d", "é"]), VALUES, max_size=4)
DOCUMENTS = st.lists(CONFIGS, min_size=1, max_size=3)


@settings(max_examples=examples(60))
@given(good=DOCUMENTS, bad=DOCUMENTS, data=st.data())
def test_any_set_of_changes_to_documents_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    ends = [
        end_of(yaml.safe_dump_all(item, default_flow_style=data.draw(st.booleans()), explicit_start=True), "c.yaml")
        for item in (good, bad)
    ]
    check_any_set(ends[0], ends[1], data)


# YAML with interpolations


@needs_omegaconf
def test_interpolations_are_compared_by_what_they_stand_for() -> None:
    good = "lr: 1e-4 # rate\nsched: {lr: '${lr}', name: 'run-${lr}'}\nhome: ${oc.env:HOME}\n"
    assert diff_of(good, good.replace("'${lr}'", "0.0001"), "c.yaml").changes == ()
    diff = diff_of(good, good.replace("1e-4", "2e-4"), "c.yaml")
    assert titles(diff) == [
        "lr: 0.0001 -> 0.0002",
        "sched.lr: 0.0001 -> 0.0002",
        "sched.name: run-0.0001 -> run-0.0002",
    ]
    assert diff.render(diff.changes).text == good.replace("1e-4", "2e-4")
    for change, wanted in zip(diff.changes, ["lr: 0.0002", "lr: 0.0002", "name: run-0.0002"], strict=True):
        text = diff.render([change]).text
        assert text.count("0.0002") == 1
        assert wanted in text
        assert "${oc.env:HOME}" in text


@needs_omegaconf
def test_interpolations_resolvers_are_not_run() -> None:
    os.environ["BISECT_TRAIN_TEST_SECRET"] = "hush"
    try:
        diff = diff_of("a: ${oc.env:BISECT_TRAIN_TEST_SECRET}\nb: 1\nc: ${b}\n", "a: x\nb: 1\nc: 2\n", "c.yaml")
    finally:
        del os.environ["BISECT_TRAIN_TEST_SECRET"]
    assert titles(diff) == ["a: ${oc.env:BISECT_TRAIN_TEST_SECRET} -> x", "c: 1 -> 2"]


def test_interpolations_of_a_resolver_are_compared_as_text() -> None:
    text = "a: ${oc.env:HOME}\nb: ${a}\n"
    assert titles(diff_of(text, text.replace("${oc.env:HOME}", "5"), "c.yaml")) == ["a: ${oc.env:HOME} (text) -> 5 (int)"]


@pytest.mark.parametrize(
    "text", ["b: ${gone}", "b: ${", "b: ${d}\nd: ${oc.env:X}", "b: ${b}", "b: \\${x}", "x: {y: '${x}'}", "b: ${c}\n---\nc: 1"]
)
def test_interpolations_that_cannot_be_resolved_are_compared_as_text(text: str) -> None:
    good = f"a: 1\n{text}\n"
    diff = diff_of(good, good.replace("a: 1", "a: 2"), "c.yaml")
    assert len(diff.changes) == 1
    assert apply_settings(end_of(good, "c.yaml"), ["[0].a=2" if "---" in text else "a=2"]).patch.text == f"a: 2\n{text}\n"


INTERPOLATED = st.lists(st.sampled_from(["1", "1e-4", "'1e-4'", "${a}", "${s.x}", "'x-${a}'", "[1]"]), min_size=3, max_size=3)


@needs_omegaconf
@settings(max_examples=examples(40))
@given(good=INTERPOLATED, bad=INTERPOLATED, data=st.data())
def test_any_set_of_changes_with_interpolations_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    ends = [
        end_of(f"a: {number}\nb: {b}\nc: {c}\ns: {{x: 3}}\nd: {d}\ne: ${{s}}\n", "c.yaml")
        for number, (b, c, d) in enumerate((good, bad))
    ]
    diff = diff_configs(*ends)
    chosen = data.draw(st.sets(st.sampled_from([change.id for change in diff.changes])))
    left, right, got = (load_omegaconf(text) for text in (ends[0].patch.text, ends[1].patch.text, diff.render(chosen).text))
    assert is_same(got, {key: (right if key in chosen else left)[key] for key in left})


# JSON with comments


COMMENTED = '{\n  // rate\n  "lr": 1e-4, /* why */\n  "betas": [0.9, 0.99,],\n}\n'


def test_json5_reads_comments_whatever_the_suffix() -> None:
    for name in ("c.json", "c.jsonc", "c.json5"):
        parsed = parse_config(end_of(COMMENTED, name))
        assert (parsed.kind, parsed.values) == (ConfigKind.JSON5, {"lr": 1e-4, "betas": [0.9, 0.99]})
    assert values_of("{unquoted: 'x', hex: 0x10, n: NaN}", "c.json5")["hex"] == 16
    assert parse_config(end_of('{"a": 1}', "c.json")).kind is ConfigKind.JSON
    assert parse_config(end_of(COMMENTED, "config")).values == {"lr": 1e-4, "betas": [0.9, 0.99]}


def test_json5_is_written_as_plain_json() -> None:
    diff = diff_of(COMMENTED, COMMENTED.replace("1e-4", "1e-3").replace("0.99", "0.95"), "c.json")
    assert json.loads(diff.render(["lr"]).text) == {"lr": 1e-3, "betas": [0.9, 0.99]}
    assert diff.render(diff.changes).text == COMMENTED.replace("1e-4", "1e-3").replace("0.99", "0.95")
    assert json.loads(apply_settings(end_of(COMMENTED, "c.json5"), ["lr=adam"]).patch.text)["lr"] == "adam"


def test_json_with_comments_on_one_side_only() -> None:
    plain = '{"lr": 2, "betas": []}'
    full = diff_of(COMMENTED, plain, "c.json")
    assert full.render(full.changes).text == plain
    other = diff_of(plain, COMMENTED, "c.json")
    assert json.loads(other.render(other.changes).text) == {"lr": 1e-4, "betas": [0.9, 0.99]}


def test_json5_malformed_names_the_line() -> None:
    with pytest.raises(RecipeError, match=r"c\.json5, line 3: this is not valid JSON with comments"):
        values_of('{\n"a": 1\n"b": 2}', "c.json5")
    with pytest.raises(RecipeError, match=r"c\.json, line 2, column 1: this is not valid JSON: "):
        values_of('{"a": 1\n"b": 2}', "c.json")
    with pytest.raises(RecipeError, match="not valid"):
        values_of("[" * 5000, "c.json5")


@settings(max_examples=examples(40))
@given(good=CONFIGS, bad=CONFIGS, data=st.data())
def test_any_set_of_json5_changes_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    ends = [end_of("// c\n" + json.dumps(item), "c.json5") for item in (good, bad)]
    check_any_set(ends[0], ends[1], data)


# Python


NANOGPT = '''"""Train a small GPT."""
import time

out_dir = 'out-' + 'shakespeare'
eval_interval = 5 # keep frequent
dataset = "shakespeare"
wandb_run_name = 'ft-' + str(time.time())
# 1 batch_size * 32 grad_accum * 1024 tokens
batch_size = 1
block_size: int = 2 * (
    256 + 256  # two halves
)
betas = (0.9, 0.95)
learning_rate = 3e-5; decay_lr = False
min_lr = learning_rate / 10
'''


def test_python_values_are_found_without_running() -> None:
    assert values_of(NANOGPT, "c.py") == {
        "out_dir": "out-shakespeare",
        "eval_interval": 5,
        "dataset": "shakespeare",
        "wandb_run_name": Opaque("'ft-' + str(time.time())", ("import time",)),
        "batch_size": 1,
        "block_size": 1024,
        "betas": Opaque("(0.9, 0.95)"),
        "learning_rate": 3e-5,
        "decay_lr": False,
        "min_lr": 3e-5 / 10,
    }


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("5*1024", 5120),
        ("-1e-3", -1e-3),
        ("1 << 20", 1 << 20),
        ("not 3", False),
        ("'a' * 3", "aaa"),
        ("7 // 2 + 7 % 4", 6),
        ("[1, 'a', None]", [1, "a", None]),
        ("dict(type='adam', lr=1e-3)", {"type": "adam", "lr": 1e-3}),
        ("{'a': {1: 2}}", {"a": {1: 2}}),
        ("f'run-{6 * 7}'", "run-42"),
        ("float('inf')", float("inf")),
        ("1 / 0", Opaque("1 / 0")),
        ("9 ** 9 ** 9", Opaque("9 ** 9 ** 9")),
        ("1 << 10 ** 9", Opaque("1 << 10 ** 9")),
        ("'a' * 10 ** 9", Opaque("'a' * 10 ** 9")),
        ("[0] * 10 ** 9", Opaque("[0] * 10 ** 9")),
        ("'%9999999d' % 1", Opaque("'%9999999d' % 1")),
        ("1, 2", Opaque("(1, 2)")),
        ("{'b', 'a'}", Opaque("{'a', 'b'}")),
        ("lambda x: x", Opaque("lambda x: x")),
        ("__import__('os').remove('x')", Opaque("__import__('os').remove('x')")),
        ("[y for y in y]", Opaque("[y for y in y]")),
        ("(lambda z: z + y)", Opaque("lambda z: z + 3")),
        ("unknown", Opaque("unknown")),
    ],
)
def test_python_expression_has_a_value_or_is_source(source: str, value: Any) -> None:
    assert is_same(values_of(f"y = 3\nz = 4\nx = {source}\n", "c.py")["x"], value)


def test_python_edit_replaces_the_right_side_only() -> None:
    bad = NANOGPT.replace("batch_size = 1", "batch_size = 12").replace("256 + 256", "512 + 256").replace("0.95", "0.99")
    diff = diff_of(NANOGPT, bad.replace("decay_lr = False", "decay_lr = True"), "c.py")
    assert titles(diff) == [
        "batch_size: 1 -> 12",
        "block_size: 1024 -> 1536",
        "betas: (0.9, 0.95) -> (0.9, 0.99)",
        "decay_lr: False -> True",
    ]
    assert diff.render(["batch_size", "betas"]).text == NANOGPT.replace("batch_size = 1", "batch_size = 12").replace(
        "0.95", "0.99"
    )
    assert diff.render(["decay_lr"]).text == NANOGPT.replace("decay_lr = False", "decay_lr = True")


def test_python_edit_of_a_key_does_not_drag_along_what_is_computed_from_it() -> None:
    good = "lr = 1.0\nmin_lr = lr / 10  # floor\nf = print(lr)\n"
    diff = diff_of(good, good.replace("1.0", "2.0"), "c.py")
    assert titles(diff) == ["lr: 1.0 -> 2.0", "min_lr: 0.1 -> 0.2", "f: print(1.0) -> print(2.0)"]
    assert diff.render(["lr"]).text == "lr = 2.0\nmin_lr = 0.1  # floor\nf = print(1.0)\n"
    assert diff.render(["min_lr", "f"]).text == "lr = 1.0\nmin_lr = 0.2  # floor\nf = print(2.0)\n"
    assert diff.render(diff.changes).text == good.replace("1.0", "2.0")


def test_python_keys_are_added_and_removed() -> None:
    good, bad = "a = 1\nb = 2; c = 3\n\n# end\nd = 4\nd = 5", "a = 1\nb = 2; e = {'x': [None]}\n"
    diff = diff_of(good, bad, "c.py")
    assert [change.id for change in diff.changes] == ["c", "d", "e.x"]
    assert diff.render(["c"]).text == good.replace("c = 3", "pass")
    assert diff.render(["d"]).text == "a = 1\nb = 2; c = 3\n\n# end\n"
    assert diff.render(["e.x"]).text == good + "\ne = {'x': [None]}\n"


def test_python_last_assignment_counts() -> None:
    diff = diff_of("a = 1\nb = a\na = 2\n", "a = 1\nb = a\na = 3\n", "c.py")
    assert titles(diff) == ["a: 2 -> 3"]
    assert values_of(diff.render(["a"]).text, "c.py") == {"a": 3, "b": 1}


def test_python_opaque_value_brings_its_import() -> None:
    good = '"""Doc."""\nfrom __future__ import annotations\nname = "x"\nlr = 1\n'
    bad = '"""Doc."""\nfrom __future__ import annotations\nimport time, os\nname = time.time()\nlr = 2\n'
    diff = diff_of(good, bad, "c.py")
    assert titles(diff) == ["name: x (text) -> time.time() (source)", "lr: 1 -> 2"]
    assert diff.render(["name"]).text == good.replace('name = "x"', "import time\nname = time.time()")
    assert diff.render(["lr"]).text == good.replace("lr = 1", "lr = 2")
    back = diff_of(bad, good, "c.py")
    assert values_of(back.render(["name"]).text, "c.py") == {"name": "x", "lr": 2}


def test_python_other_statements_are_one_change() -> None:
    good = "lr = 1\nif lr > 0:\n    seed = 1\nprint('a')\nwd = 3\n"
    bad = "lr = 2\nif lr > 0:\n    seed = 2\nfor k in range(3):\n    print(k)\nwd = 3  # same\n"
    diff = diff_of(good, bad, "c.py")
    assert [change.id for change in diff.changes] == ["lr", "(statements)"]
    assert diff.render(["lr"]).text == good.replace("lr = 1", "lr = 2")
    assert diff.render(["(statements)"]).text == bad.replace("lr = 2", "lr = 1")
    assert diff.render(diff.changes).text == bad
    gone = diff_of(good, "lr = 1\nwd = 3\n", "c.py")
    assert [change.id for change in gone.changes] == ["(statements)"]
    mixed = diff_configs(end_of(good, "c.py"), end_of("lr: 1\nwd: 3\n", "c.yaml"))
    assert mixed.render(mixed.changes).text == "lr = 1\nwd = 3\n"


def test_python_name_that_other_statements_bind_is_no_key() -> None:
    text = (
        "a = 1\nif a:\n    b = 2\nb = 3\ndef c(): pass\nc = 4\nd = e = 5\nfor f in []: f = 2\nf = 1\n"
        "g: int\ndef dict(**_): pass\nh = dict(x=1)\n"
    )
    assert values_of(text, "c.py").keys() == {"a", "(statements)", "h"}
    assert isinstance(values_of(text, "c.py")["h"], Opaque)


def test_python_comments_docstrings_and_unused_imports_are_no_difference() -> None:
    assert diff_of('"""A."""\nimport os\na = 0x10\n', "# b\npass\na = 16\n", "c.py").changes == ()


def test_python_text_with_other_line_ends_and_wide_characters() -> None:
    good = "\ufeffä = 'ü'; b = 'x'  # é\r\nc = '''é\r\n'''; d = 1\r\ne = 2"
    diff = diff_of(good, good.replace("'x'", "'y'").replace("d = 1", "d = 3"), "c.py")
    assert diff.render(["b"]).text == good.replace("'x'", "'y'")
    assert diff.render(["d"]).text == good.replace("d = 1", "d = 3")


def test_python_settings_are_read_as_constants() -> None:
    changed = apply_settings(
        end_of(NANOGPT, "c.py"), ["learning_rate=1e-4", "dataset=owt", "betas=(0.9, 0.99)", "batch_size=2*6"]
    )
    values = values_of(changed.patch.text, "c.py")
    assert (values["learning_rate"], values["dataset"], values["betas"], values["batch_size"]) == (
        1e-4,
        "owt",
        Opaque("(0.9, 0.99)"),
        12,
    )
    assert values["min_lr"] == 3e-5 / 10  # only what was set is set
    with pytest.raises(RecipeError, match="Python cannot hold"):
        apply_settings(end_of("print(1)\n", "c.py"), ["(statements)=2"])


def test_python_what_cannot_be_used() -> None:
    with pytest.raises(RecipeError, match=r"c\.py, line 2: this is not valid Python"):
        values_of("a = 1\nb = = 2\n", "c.py")
    with pytest.raises(RecipeError, match="Python cannot hold the new values of a b"):
        diff_configs(end_of("a = 1\n", "c.py"), end_of('{"a": 1, "a b": 1}', "c.json"))
    with pytest.raises(RecipeError, match="Python cannot hold"):
        diff_configs(end_of("a = 1\n", "c.py"), end_of('{"a": 1, "b = 1\\nimport os\\nc": 1}', "c.json"))
    with pytest.raises(RecipeError, match="YAML cannot hold"):
        diff_configs(end_of("a: 1\n", "c.yaml"), end_of("a = print()\n", "c.py"))
    with pytest.raises(RecipeError, match="cannot be given on the command line"):
        diff_configs(end_of("a = 1\n", "c.py"), end_of("a = print()\n", "c.py"), override="--{key}={value}")
    with pytest.raises(RecipeError, match="stands for an expression of"):
        values_of("a = [0] * 20_000\n" + "".join(f"{y} = [{x}, {x}]\n" for x, y in zip("abcde", "bcdef", strict=True)), "c.py")


def test_set_that_cannot_be_written_is_unbuildable() -> None:
    good, bad = "x = 1\ny = 2\n", "if print():\n    x = 3\ny = 4\n"
    diff = diff_of(good, bad, "c.py")
    assert [change.id for change in diff.changes] == ["x", "y", "(statements)"]
    assert diff.render(["x", "(statements)"]).text == bad.replace("y = 4", "y = 2")
    with pytest.raises(UnbuildableError, match="Python cannot hold"):
        diff.render(["(statements)"])


SOURCES = st.sampled_from(
    [
        "1",
        "2 * 3",
        "-0.0",
        "'é\\n'",
        "(1, 2)",
        "[a, 1]",
        "{'k': b}",
        "a",
        "b * 2",
        "f(a)",
        "f'{a}'",
        "1e999",
        "lambda a: a + b",
    ]
)
FILES = st.lists(
    st.tuples(st.sampled_from("abcd"), SOURCES).map(lambda pair: f"{pair[0]} = {pair[1]}")
    | st.sampled_from(
        [
            "# note",
            "import time",
            "import time\nd = time.time()",
            "print(1)",
            "pass",
            "a = 1; b = 2",
            "c: float = (\n  3\n)  # x",
        ]
    ),
    max_size=6,
)


@settings(max_examples=examples(80))
@given(good=FILES, bad=FILES, data=st.data())
def test_any_set_of_python_changes_reads_back_right(good: list[str], bad: list[str], data: st.DataObject) -> None:
    known = ["a = 0", "b = 'x'"]  # a file that uses a name that it does not bind cannot run
    ends = [end_of("\n".join(known + lines), "c.py") for lines in (good, bad)]
    check_any_set(ends[0], ends[1], data)


# dotenv


DOTENV = "# top\nexport LR=0.1   # rate\nNAME='a b'\n\nEMPTY=\nBARE\nURL=\"http://x/${LR}\"\r\nLR2 = 5\nLR2=6"


def test_dotenv_values_are_text_without_interpolation() -> None:
    assert values_of(DOTENV, ".env") == {
        "LR": "0.1",
        "NAME": "a b",
        "EMPTY": "",
        "BARE": None,
        "URL": "http://x/${LR}",
        "LR2": "6",
    }
    for name in (".env", ".env.local", "prod.env", "PROD.ENV"):
        assert config_kind_of(name) is ConfigKind.DOTENV
    assert config_kind_of(".env.yaml") is ConfigKind.YAML


def test_dotenv_edit_keeps_everything_else() -> None:
    bad = (
        DOTENV.replace("0.1", "0.2")
        .replace("'a b'", '"it\'s \\"\\\\n\\" x"')
        .replace("BARE\n", "")
        .replace("LR2=6", "LR2=7\nNEW='1 2'")
    )
    diff = diff_of(DOTENV, bad, ".env")
    assert [change.id for change in diff.changes] == ["LR", "NAME", "BARE", "LR2", "NEW"]
    assert diff.render(["LR"]).text == DOTENV.replace("0.1", "0.2")
    assert diff.render(["BARE"]).text == DOTENV.replace("BARE\n", "")
    assert diff.render(["LR2"]).text == DOTENV.replace("LR2=6", "LR2=7")
    assert diff.render(["NEW"]).text == DOTENV + "\nNEW='1 2'\n"
    assert values_of(diff.render(["NAME"]).text, ".env")["NAME"] == 'it\'s "\\n" x'
    assert apply_settings(end_of(DOTENV, ".env"), ["LR=1e-4"]).patch.text == DOTENV.replace("0.1", "1e-4")


def test_dotenv_what_cannot_be_used() -> None:
    with pytest.raises(RecipeError, match=r"\.env, line 3: this is not valid dotenv"):
        values_of("A=1\n\n'x\n", ".env")
    with pytest.raises(RecipeError, match="dotenv cannot hold the new values of A"):
        diff_configs(end_of("A=1\n", ".env"), end_of("A: 2\n", "c.yaml"))


DOTENV_TEXT = st.text(st.sampled_from("ab1 '\"\\#=$\n\té{}`"), max_size=6)
DOTENVS = st.dictionaries(st.sampled_from(["A", "B", "export", "a.b", "x y"]), st.none() | DOTENV_TEXT, max_size=4)


@settings(max_examples=examples(100))
@given(good=DOTENVS, bad=DOTENVS, data=st.data())
def test_any_set_of_dotenv_changes_reads_back_right(good: Any, bad: Any, data: st.DataObject) -> None:
    from bisect_train.changes.config_dotenv import dump_dotenv

    ends = [end_of("# c\n" + dump_dotenv(item), ".env") for item in (good, bad)]
    for end, item in zip(ends, (good, bad), strict=True):
        assert parse_config(end).values == item
    check_any_set(ends[0], ends[1], data)


def test_error_of_an_unreadable_setting_names_the_format() -> None:
    with pytest.raises(RecipeError) as caught:
        apply_settings(end_of("a: 1\n---\nb: 1\n", "c.yaml"), ["[3].a=1"])
    assert re.search(r"nearest keys: \[0\]\.a", str(caught.value))
