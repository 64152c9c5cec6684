from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.search.testable import testable_probability as probability_of


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


def test_probability_of_a_long_list_is_finite() -> None:
    assert np.isfinite(probability_of(20_000, {10_000: False})).all()
