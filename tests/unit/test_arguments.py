"""Argument diffs: what is one change, and what any set of changes gives."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.changes.arguments import ArgumentDiff, diff_arguments, diff_commands
from bisect_train.core.changes import ChangeKind
from tests.support.properties import examples


def diff_of(good: str, bad: str) -> ArgumentDiff:
    return diff_arguments(shlex.split(good), shlex.split(bad))


@pytest.mark.parametrize(
    ("good", "bad", "titles"),
    [
        ("train.py --lr 0.1", "train.py --lr 0.3", {"--lr": "--lr: 0.1 -> 0.3"}),
        ("train.py --lr=0.1", "train.py --lr=0.3", {"--lr": "--lr: 0.1 -> 0.3"}),
        ("train.py --lr=0.1", "train.py --lr 0.1", {"--lr": "--lr: --lr=0.1 -> --lr 0.1"}),
        ("--shift -1e-3", "--shift -2", {"--shift": "--shift: -1e-3 -> -2"}),
        ("-b 8 -j4", "-b 9 -j8", {"-b": "-b: 8 -> 9", "-j": "-j: 4 -> 8"}),
        ("train.py", "train.py --amp", {"--amp": "--amp: (absent) -> (present)"}),
        ("--amp train.py", "train.py", {"--amp": "--amp: (present) -> (absent)"}),
        ("--amp --lr 1 --wd 2", "--lr 1 --wd 2 --amp", {"--amp": "--amp: moved"}),
        ("--lr 1 --amp data", "--amp --lr 2 data", {"--amp": "--amp: moved", "--lr": "--lr: 1 -> 2"}),
        ("lr=0.1 model=a", "lr=0.3 +model=a", {"lr=": "lr: 0.1 -> 0.3", "model=": "model: model=a -> +model=a"}),
        ("a.py x", "a.py y", {"argument 2": "argument 2: x -> y"}),
        ("a.py x y", "a.py x", {"arguments": "arguments: a.py, x, y -> a.py, x"}),
        (
            "a.py --amp x --x 1",
            "--amp --x 1 a.py y",
            {"--amp": "--amp: moved", "--x": "--x: moved", "argument 2": "argument 2: x -> y"},
        ),
        ("--set a=1 --set b=2", "--set a=1 --set b=3", {"--set": "--set: a=1, b=2 -> a=1, b=3"}),
        ("--set a", "--set a --set b", {"--set": "--set: a -> a, b"}),
        ("--tag ''", "--tag x", {"--tag": "--tag: '' -> x"}),
        ("a -- x --lr 1", "a -- x --lr 2", {"--": "arguments after --: x --lr 1 -> x --lr 2"}),
        ("s3://b?x=1", "s3://b?x=2", {"argument 1": "argument 1: s3://b?x=1 -> s3://b?x=2"}),
        ("a -", "a b", {"argument 2": "argument 2: - -> b"}),
        ("a --v {overrides}", "a --w {overrides}", {"--v": "--v: (present) -> (absent)", "--w": "--w: (absent) -> (present)"}),
        ("a b", "a b", {}),
    ],
)
def test_diff_gives_one_change_per_flag_or_argument(good: str, bad: str, titles: dict[str, str]) -> None:
    diff = diff_of(good, bad)
    assert {change.id: change.title for change in diff.changes} == titles
    assert {change.kind for change in diff.changes} <= {ChangeKind.LAUNCH}
    assert diff.render([]) == tuple(shlex.split(good))
    assert diff.render(diff.changes) == tuple(shlex.split(bad))


def test_render_of_some_changes_swaps_these_only() -> None:
    diff = diff_of(
        "torchrun --nproc 2 train.py --lr 0.1 --amp --set a=1 --set b=2 seed=1",
        "torchrun --nproc 4 train.py --set a=1 --lr 0.3 seed=2 --wd=0",
    )
    assert {change.id for change in diff.changes} == {"--nproc", "--lr", "--amp", "--set", "seed=", "--wd"}
    assert shlex.join(diff.render(["--lr"])) == "torchrun --nproc 2 train.py --lr 0.3 --amp --set a=1 --set b=2 seed=1"
    assert shlex.join(diff.render(["--amp", "--wd", "--set"])) == "torchrun --nproc 2 train.py --set a=1 --lr 0.1 seed=1 --wd=0"


def test_flag_that_stands_alone_on_one_side_takes_no_value_on_the_other() -> None:
    diff = diff_of("--amp data --lr 1", "--amp --lr 1 data2")
    assert diff.render(["argument 1"]) == ("--amp", "data2", "--lr", "1")
    assert [change.title for change in diff.changes] == ["--lr: moved", "argument 1: data -> data2"]


def test_new_flag_stays_in_front_of_the_double_dash() -> None:
    diff = diff_of("a -- x", "a --lr 1")
    assert diff.render(["--lr"]) == ("a", "--lr", "1", "--", "x")
    assert diff.render(["--"]) == ("a",)


def test_long_value_is_shortened_in_the_title() -> None:
    (change,) = diff_arguments(["--x", "a" * 100], ["--x", "b\nc"]).changes
    assert change.title == f"--x: {'a' * 57}... -> b c"


def test_choosing_an_unknown_change_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no such argument change: --y"):
        diff_of("--x 1", "--x 2").render(["--y"])


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("python train.py --lr 1", "bash x.sh --lr 2"),
        ("python train.py --lr 1", "python other.py --lr 1"),
        ("python -m pkg.train --lr 1", "python -m pkg.other --lr 1"),
        ("python train.py", "torchrun --nproc_per_node {ranks} train.py"),
        ("torchrun --nproc_per_node {ranks} a.py --lr 1", "torchrun --nproc_per_node {ranks} b.py --lr 2"),
        ("python -m torch.distributed.run --standalone a.py", "python -m torch.distributed.run --standalone b.py"),
        ("bash -x a.sh 1", "bash -x b.sh 1"),
        ("./train.sh 1", "./other.sh 2"),
        ("python train.py", "/usr/bin/python train.py"),
    ],
)
def test_another_program_or_script_is_one_change(good: str, bad: str) -> None:
    diff = diff_commands(shlex.split(good), shlex.split(bad))
    (change,) = diff.changes
    assert (change.kind, change.id) == (ChangeKind.LAUNCH, "command")
    assert change.title.startswith(f"command: {shlex.join(shlex.split(good))[:50]}")
    assert shlex.join(diff.render([])) == shlex.join(shlex.split(good))
    assert shlex.join(diff.render([change])) == shlex.join(shlex.split(bad))


@pytest.mark.parametrize(
    ("good", "bad", "ids"),
    [
        ("python train.py --lr 1", "python -u train.py --lr 2", ["-u", "--lr"]),
        ("python train.py configs/a.py", "python train.py configs/b.py", ["argument 3"]),
        ("python -m pkg.train --a 1", "python -m pkg.train --a 2", ["--a"]),
        ("torchrun --nproc 2 train.py --a 1", "torchrun --nproc 4 train.py --a 1", ["--nproc"]),
        ("python train.py", "python3 train.py", ["argument 1"]),
        ("bash run.sh 1", "bash run.sh 2", ["argument 3"]),
        ("python train.py", "python train.py", []),
    ],
)
def test_arguments_of_the_same_program_are_changes_of_their_own(good: str, bad: str, ids: list[str]) -> None:
    assert [change.id for change in diff_commands(shlex.split(good), shlex.split(bad)).changes] == ids


WORDS = st.sampled_from(
    ["--lr", "--lr=1", "--amp", "-x", "-j4", "-j", "-1", "-.5e3", "0.1", "a", "b", "a=1", "+a=2", "--", "-", "", "{overrides}"]
)
LISTS = st.lists(WORDS | st.text(max_size=3), max_size=8)


@settings(max_examples=examples(100))
@given(good=LISTS, bad=LISTS, data=st.data())
def test_ends_are_exact_and_sets_hold_nothing_else(good: list[str], bad: list[str], data: st.DataObject) -> None:
    diff = diff_arguments(good, bad)
    ids = [change.id for change in diff.changes]
    assert len(set(ids)) == len(ids)
    assert diff.render([]) == tuple(good)
    assert diff.render(ids) == tuple(bad)
    assert (not ids) == (good == bad)
    chosen = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    assert set(diff.render(chosen)) <= {*good, *bad}


FLAGS = {"--lr": 1, "--steps": 1, "--amp": 0, "--compile": 0, "-b": 1, "--tag": 1}


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """Draw a command line of a program with known flags, and what the program would understand."""
    meant: dict[str, Any] = {}
    words = ["train.py"]
    for flag in draw(st.permutations(sorted(FLAGS))):
        if not draw(st.booleans()):
            continue
        meant[flag] = []
        for _ in range(draw(st.integers(1, 2))):
            value = draw(st.sampled_from(["1", "2", "-3", "x"]))
            meant[flag].append(value if FLAGS[flag] else True)
            glued = draw(st.booleans())
            words += ([f"{flag}={value}"] if glued else [flag, value]) if FLAGS[flag] else [flag]
    return words, meant


def understood(words: Sequence[str]) -> dict[str, Any]:
    """Read a command line as the program with the known flags does."""
    meant: dict[str, Any] = {}
    rest = list(words[1:])
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        meant.setdefault(flag, []).append((value if equals else rest.pop(0)) if FLAGS[flag] else True)
    return meant


@settings(max_examples=examples(100))
@given(good=command_lines(), bad=command_lines(), data=st.data())
def test_any_set_of_changes_is_understood_as_meant(good: Any, bad: Any, data: st.DataObject) -> None:
    (good_words, good_meant), (bad_words, bad_meant) = good, bad
    diff = diff_arguments(good_words, bad_words)
    ids = [change.id for change in diff.changes]
    chosen = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    wanted = {flag: (bad_meant if flag in chosen else good_meant).get(flag) for flag in FLAGS}
    assert understood(diff.render(chosen)) == {flag: value for flag, value in wanted.items() if value is not None}
