"""The test of a history: exact for exchangeable nights, blind to copies, sees steps and trends, says how large and where."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.nightly.drift import ALPHA, MIN_NIGHTS, distinct_levels, find_drift, order_p
from bisect_train.nightly.terms import Level
from tests.support.simulated_nights import name_of


def level_of(idx: int, mean: float, *, seeds: int = 5, sign: int = 1, bits: bool = True, noise: float = 0.1) -> Level:
    rng = np.random.default_rng([3, idx])
    values = {seed: mean + noise * float(rng.normal()) for seed in range(seeds)}
    digests = {seed: f"{idx}:{seed}" for seed in range(seeds)} if bits else {}
    return Level(name_of(idx), "one", "loss", "nats", sign, values, digests, 0.2)


def test_step_is_seen_with_its_size_and_the_night_before_it() -> None:
    drift = find_drift([level_of(idx, 1.0 + 0.5 * (idx >= 8)) for idx in range(14)])
    assert drift is not None and drift.is_alarm and drift.p_value <= ALPHA
    assert (drift.first, drift.after, drift.num_nights, drift.num_seeds) == (name_of(0), name_of(7), 14, 5)
    assert drift.size == pytest.approx(0.5, abs=0.1)


def test_trend_is_seen_without_a_night_that_made_it() -> None:
    drift = find_drift([level_of(idx, 1.0 + 0.05 * idx) for idx in range(16)])
    assert drift is not None and drift.is_alarm and drift.after == ""
    assert drift.size == pytest.approx(0.75, abs=0.1)


def test_metric_that_should_be_high_drifts_downwards() -> None:
    down = [level_of(idx, 1.0 - 0.05 * idx, sign=-1) for idx in range(16)]
    up = [level_of(idx, 1.0 + 0.05 * idx, sign=-1) for idx in range(16)]
    worse, better = find_drift(down), find_drift(up)
    assert worse is not None and worse.is_alarm and worse.size > 0.0
    assert better is not None and not better.is_alarm


def test_change_below_the_smallest_effect_is_no_alarm() -> None:
    drift = find_drift([level_of(idx, 1.0 + 0.01 * idx, noise=0.01) for idx in range(16)])
    assert drift is not None and drift.p_value <= ALPHA and not drift.is_alarm


def test_few_nights_few_seeds_and_nights_without_news_say_nothing() -> None:
    assert find_drift([level_of(idx, float(idx)) for idx in range(MIN_NIGHTS - 1)]) is None
    assert find_drift([level_of(idx, float(idx), seeds=2) for idx in range(20)]) is None
    assert find_drift([level_of(0, 1.0)] * 30) is None


@pytest.mark.parametrize("bits", [True, False])
def test_copy_of_a_commit_counts_once(bits: bool) -> None:
    levels = [level_of(idx // 2, 1.0, bits=bits) for idx in range(10)]
    assert [level.commit for level in distinct_levels(levels)] == [name_of(idx) for idx in range(5)]


def test_equal_means_have_no_order() -> None:
    assert order_p(np.ones(10)) == (0, 1.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=MIN_NIGHTS, max_size=12))
def test_p_value_is_a_share_and_the_same_each_time(means: list[float]) -> None:
    _, p_value = order_p(np.array(means))
    assert 0.0 < p_value <= 1.0 and order_p(np.array(means))[1] == p_value


def test_shuffled_nights_alarm_as_rarely_as_is_claimed() -> None:
    rng = np.random.default_rng(11)
    heavy = [rng.standard_t(2, size=12) for _ in range(1000)]
    p_values = np.array([order_p(means)[1] for means in heavy])
    for level in (0.05, 0.01):
        num, expected = int(np.sum(p_values <= level)), level * len(p_values)
        assert num <= expected + 3.0 * math.sqrt(expected), (level, num)
