from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from bisect_train.verdict.stats import (
    is_near_normal,
    permutation_p,
    pooled_sd,
    smallest_group_for,
    summarise,
    t_density,
    t_upper_tail,
    upper_bound_paired,
)
from tests.support.properties import examples

finite = st.floats(-1e6, 1e6)


def test_permutation_p_of_complete_separation_is_one_over_the_relabelings() -> None:
    assert permutation_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(1 / 252)


def test_permutation_p_of_equal_values_is_one() -> None:
    assert permutation_p([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]) == 1.0


def test_permutation_p_matches_scipy_exactly() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.normal(size=5), rng.normal(0.7, size=5)

    def gap(a: np.ndarray, b: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(b.mean() - a.mean())

    expected = scipy_stats.permutation_test((low, high), gap, alternative="greater", n_resamples=np.inf).pvalue
    assert permutation_p(low.tolist(), high.tolist()) == pytest.approx(expected)


def test_permutation_p_of_many_values_samples_and_stays_deterministic() -> None:
    low, high = list(range(20)), [value + 40.0 for value in range(20)]
    assert permutation_p(low, high) == permutation_p(low, high) == pytest.approx(1 / 20_001)


@settings(max_examples=examples(40))
@given(st.lists(finite, min_size=1, max_size=5), st.lists(finite, min_size=1, max_size=5))
def test_permutation_p_lies_between_one_relabeling_and_one(low: list[float], high: list[float]) -> None:
    assert 1 / math.comb(len(low) + len(high), len(high)) <= permutation_p(low, high) <= 1.0


def test_permutation_p_under_the_null_is_at_most_its_level() -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_cauchy(size=(2000, 10))  # as far from normal as can be
    share = np.mean([permutation_p(row[:5].tolist(), row[5:].tolist()) <= 0.05 for row in values])
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_smallest_group_for_reaches_its_level_and_no_smaller_one_does() -> None:
    for level in (0.05, 0.004, 0.000625):
        num = smallest_group_for(level)
        assert 1 / math.comb(2 * num, num) <= level < 1 / math.comb(2 * num - 2, num - 1)


@given(st.floats(-40, 40), st.integers(1, 60))
def test_t_density_and_tail_match_scipy(statistic: float, dof: int) -> None:
    assert t_density(statistic, dof) == pytest.approx(scipy_stats.t.pdf(statistic, dof), rel=1e-9)
    assert t_upper_tail(statistic, dof) == pytest.approx(scipy_stats.t.sf(statistic, dof), rel=1e-7, abs=1e-300)


def test_pooled_sd_ignores_the_means_of_the_groups() -> None:
    sd, dof = pooled_sd([[0.0, 2.0], [100.0, 102.0], [7.0]])
    assert (sd, dof) == (pytest.approx(math.sqrt(2.0)), 2)


def test_upper_bound_paired_covers_the_mean_difference_as_often_as_it_claims() -> None:
    rng = np.random.default_rng(3)
    shared = rng.normal(size=(2000, 8))
    bad = shared + 0.5 + 0.3 * rng.normal(size=(2000, 8))
    covered = [upper_bound_paired(g.tolist(), b.tolist()) >= 0.5 for g, b in zip(shared, bad, strict=True)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_is_near_normal_with_few_residuals_says_no() -> None:
    assert not is_near_normal([[0.1, -0.2, 0.3]] * 3)


def test_is_near_normal_with_an_outlier_says_no_and_without_says_yes() -> None:
    rng = np.random.default_rng(4)
    groups = [rng.normal(size=5).tolist() for _ in range(6)]
    assert is_near_normal(groups)
    groups[0][0] = 30.0
    assert not is_near_normal(groups)


def test_summarise_of_one_value_has_no_spread() -> None:
    assert summarise([3.0]).sd == 0.0


@given(st.floats(-1e9, 1e9), st.integers(1, 12))
def test_summarise_of_equal_values_has_no_spread_at_all(value: float, num: int) -> None:
    summary = summarise([value] * num)
    assert (summary.mean, summary.sd) == (value, 0.0)
