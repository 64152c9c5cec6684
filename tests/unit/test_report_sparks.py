"""Curves in one line of text each."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bisect_train.report.parts import CurvePart
from bisect_train.report.sparks import ASCII_BLOCKS, BLOCKS, NOT_FINITE, Sparks, draw_spark

VALUES = st.lists(st.floats(-1e6, 1e6), max_size=200)


def test_a_falling_curve_falls() -> None:
    assert draw_spark([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], low=0.0, high=7.0) == BLOCKS[::-1]
    assert draw_spark([0.0, 7.0], low=0.0, high=7.0, is_ascii=True) == ASCII_BLOCKS[0] + ASCII_BLOCKS[-1]


def test_curves_share_one_scale() -> None:
    assert draw_spark([1.0, 1.0], low=0.0, high=7.0) == BLOCKS[1] * 2
    assert draw_spark([2.0, 2.0], low=2.0, high=2.0) == BLOCKS[0] * 2, "a level line, where all are alike"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_marked(value: float) -> None:
    assert draw_spark([0.0, value, 1.0], low=0.0, high=1.0) == BLOCKS[0] + NOT_FINITE + BLOCKS[-1]


@given(VALUES, st.integers(1, 60))
def test_any_curve_fits(values: list[float], width: int) -> None:
    drawn = draw_spark(values, low=min(values, default=0.0), high=max(values, default=0.0), width=width)
    assert len(drawn) == min(width, len(values)) and set(drawn) <= set(BLOCKS)


@pytest.mark.parametrize(("encoding", "blocks"), [("utf-8", BLOCKS), ("ascii", ASCII_BLOCKS)])
def test_both_ends_are_printed_with_their_first_and_last_values(encoding: str, blocks: str) -> None:
    curves = [CurvePart("good", "good end", (0, 1), (4.0, 1.0)), CurvePart("bad", "bad end", (0, 1), (4.0, 3.0))]
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    Console(file=file, width=80).print(Sparks(curves))
    good, bad = raw.getvalue().decode(encoding).splitlines()
    assert good.split() == ["good", "end", blocks[-1] + blocks[0], "4", "->", "1"]
    assert bad.split() == ["bad", "end", blocks[-1] + blocks[5], "4", "->", "3"]


@pytest.mark.parametrize("width", [50, 60, 80, 200])
def test_curves_fit_the_terminal(width: int) -> None:
    curves = [CurvePart("parent", "just before the culprit", tuple(range(100)), tuple(1.0 + idx for idx in range(100)))]
    text = io.StringIO()
    Console(file=text, width=width).print(Sparks(curves))
    [line] = text.getvalue().splitlines()
    assert len(line) <= width and line.endswith("1 -> 100") and "…" not in line
