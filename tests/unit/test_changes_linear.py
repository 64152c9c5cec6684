"""The line that a history with merges is brought into."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bisect_train.changes.linear import linearise


def test_linearise_chain_has_one_head_each() -> None:
    assert list(linearise({"a": ("base",), "b": ("a",), "c": ("b",)}, "c")) == [("a", ("a",)), ("b", ("b",)), ("c", ("c",))]


def test_linearise_merge_keeps_the_branch_together_before_it() -> None:
    parents = {"a": ("base",), "x": ("base",), "y": ("x",), "b": ("a",), "m": ("b", "y"), "c": ("m",)}
    assert list(linearise(parents, "c")) == [
        ("a", ("a",)),
        ("b", ("b",)),
        ("x", ("b", "x")),
        ("y", ("b", "y")),
        ("m", ("m",)),
        ("c", ("c",)),
    ]


def test_linearise_octopus_adds_the_earlier_parents() -> None:
    parents = {"x": ("base",), "y": ("base",), "m": ("base", "x", "y")}
    assert list(linearise(parents, "m")) == [("x", ("base", "x")), ("y", ("base", "x", "y")), ("m", ("m",))]


def test_linearise_branch_of_a_branch_nests_heads() -> None:
    parents = {"a": ("base",), "x": ("base",), "z": ("base",), "n": ("x", "z"), "m": ("a", "n")}
    assert list(linearise(parents, "m")) == [
        ("a", ("a",)),
        ("x", ("a", "x")),
        ("z", ("a", "x", "z")),
        ("n", ("a", "n")),
        ("m", ("m",)),
    ]


def test_linearise_root_of_a_branch_ends_it() -> None:
    assert [commit for commit, _ in linearise({"r": (), "m": ("base", "r")}, "m")] == ["r", "m"]


def test_linearise_very_deep_history_needs_no_recursion() -> None:
    parents = {str(idx): (f"main{idx}", str(idx - 1)) for idx in range(5000)}
    assert len(list(linearise(parents, "4999"))) == 5000


@st.composite
def _histories(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    size = draw(st.integers(1, 14))
    parents: dict[str, tuple[str, ...]] = {}
    for idx in range(size):
        older = ["base", *(str(i) for i in range(idx))]
        chosen = draw(st.lists(st.sampled_from(older), min_size=1, max_size=3, unique=True))
        parents[str(idx)] = tuple(chosen)
    return parents


def _ancestors(parents: dict[str, tuple[str, ...]], heads: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = list(heads)
    while waiting:
        commit = waiting.pop()
        if commit in parents and commit not in found:
            found.add(commit)
            waiting += parents[commit]
    return found


@given(_histories())
def test_linearise_any_history_gives_prefixes_that_the_heads_describe(parents: dict[str, tuple[str, ...]]) -> None:
    tip = str(len(parents) - 1)
    prefix: set[str] = set()
    for commit, heads in linearise(parents, tip):
        assert commit not in prefix
        prefix.add(commit)
        assert _ancestors(parents, heads) == prefix
    assert prefix == _ancestors(parents, (tip,))
