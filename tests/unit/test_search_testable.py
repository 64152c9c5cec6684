from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.search import testable
from bisect_train.search.testable import testable_probability as probability_of
from tests.support.properties import examples


@st.composite
def known_versions(draw: st.DrawFn) -> tuple[int, dict[int, bool]]:
    num = draw(st.integers(1, 200))
    return num, draw(st.dictionaries(st.integers(1, num - 1), st.booleans(), max_size=10)) if num > 1 else {}


@given(known_versions())
def test_probability_is_one_or_zero_where_known_and_between_elsewhere(case: tuple[int, dict[int, bool]]) -> None:
    num, known = case
    result = probability_of(num, known)
    assert result.shape == (num + 1,)
    assert result[0] == result[num] == 1.0
    assert all(result[version] == float(state) for version, state in known.items())
    assert ((result >= 0) & (result <= 1)).all()


def test_probability_is_lower_beside_an_untestable_version() -> None:
    result = probability_of(100, {50: False, 52: False})
    assert result[51] < result[55] < result[75]


def test_probability_of_everything_known_testable_is_high() -> None:
    assert probability_of(100, dict.fromkeys(range(10, 100, 10), True)).min() > 0.9


def test_probability_matches_the_formula_for_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """T(x, y, d) of the docstring, written out for p = 0.3 and runs of 10."""
    monkeypatch.setattr("bisect_train.search.testable.RATES", (0.3,))
    monkeypatch.setattr("bisect_train.search.testable.RUN_LENGTHS", (10.0,))
    rho = 1 - 1 / 10 - (0.3 / 0.7) / 10

    def move(x: int, y: int, d: int) -> float:
        share = (0.3, 0.7)[y]
        return float(share + ((x == y) - share) * rho**d)

    result = probability_of(20, {8: False})
    for version in range(9, 20):
        ways = [move(0, y, version - 8) * move(y, 1, 20 - version) for y in (0, 1)]
        assert result[version] == pytest.approx(ways[1] / sum(ways))


def by_the_formula(num: int, known: dict[int, bool]) -> list[float]:
    """The docstring's formula for every cell of the grid and every version, with both sums written out."""
    known = {0: True, num: True, **known}
    versions = sorted(known)
    cells = []
    for rate in testable.RATES:
        for run_length in testable.RUN_LENGTHS:
            rho = max(0.0, 1 - 1 / run_length - rate / (1 - rate) / run_length) if run_length > 1 else 0.0
            cells.append((rate, rho))

    def move(cell: tuple[float, float], x: int, y: int, d: int) -> float:
        share = cell[0] if y == 0 else 1 - cell[0]
        return share + ((x == y) - share) * cell[1] ** d

    weights = np.array([np.prod([move(cell, known[a], known[b], b - a) for a, b in pairwise(versions)]) for cell in cells])
    weights = np.where(weights >= testable.NEGLIGIBLE_WEIGHT * weights.max(), weights, 0.0)
    result = []
    for version in range(num + 1):
        if version in known:
            result.append(float(known[version]))
            continue
        left, right = max(v for v in versions if v < version), min(v for v in versions if v > version)
        ways = [
            [move(cell, known[left], y, version - left) * move(cell, y, known[right], right - version) for y in (0, 1)]
            for cell in cells
        ]
        result.append(sum(w * one / (zero + one) for w, (zero, one) in zip(weights, ways, strict=True)) / weights.sum())
    return result


@settings(max_examples=examples(40))
@given(known_versions())
def test_probability_equals_the_formula_summed_over_the_grid(case: tuple[int, dict[int, bool]]) -> None:
    num, known = case
    assert probability_of(num, known).tolist() == pytest.approx(by_the_formula(num, known), rel=1e-9, abs=1e-12)


def test_probability_beyond_the_table_of_powers_equals_the_formula() -> None:
    """Powers below 1e-17 are left out: nothing of them is left in the middle of a very long stretch, and all near its ends."""
    num, known = 9000, {4500: False}
    result = probability_of(num, known)
    for version in (1, 40, 700, 2200, 3900, 4400, 4499, 4501, 4700, 5100, 8960):
        short, shift = (4500, 0) if version < 4500 else (4500, 4500)
        near = by_the_formula_between(version - shift, short, starts_testable=version < 4500)
        assert result[version] == pytest.approx(near, rel=1e-9)


def by_the_formula_between(version: int, length: int, *, starts_testable: bool) -> float:
    """The same for one version of a stretch of which one end is testable and the other is not; two such stretches were seen."""
    total, seen = 0.0, 0.0
    for rate in testable.RATES:
        for run_length in testable.RUN_LENGTHS:
            rho = max(0.0, 1 - 1 / run_length - rate / (1 - rate) / run_length) if run_length > 1 else 0.0
            share = (rate, 1 - rate)
            left, right = int(starts_testable), int(not starts_testable)

            def move(x: int, y: int, d: int, share: tuple[float, float] = share, rho: float = rho) -> float:
                return share[y] + ((x == y) - share[y]) * rho**d

            weight = move(1, 0, length) * move(0, 1, length)
            ways = [move(left, y, version) * move(y, right, length - version) for y in (0, 1)]
            total, seen = total + weight * ways[1] / sum(ways), seen + weight
    return total / seen


def test_probability_of_a_long_list_is_finite() -> None:
    assert np.isfinite(probability_of(20_000, {10_000: False})).all()
