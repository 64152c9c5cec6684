"""The share of the gap: exact where runs are the ends', else an interval that covers as often as it claims."""

from __future__ import annotations

import numpy as np
import pytest

from bisect_train.report.effect import share_of_gap


def test_share_without_spread_is_the_ratio() -> None:
    share = share_of_gap([1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [3.0, 3.0])
    assert share.value == pytest.approx(0.5) and share.low == share.high == pytest.approx(0.5)


def test_share_of_single_runs_has_no_interval() -> None:
    share = share_of_gap([1.0], [2.0], [1.0], [2.0])
    assert (share.value, share.low, share.high) == (1.0, None, None)


def test_share_without_gap_or_values_is_unknown() -> None:
    assert share_of_gap([1.0], [2.0], [1.0], [1.0]).value is None
    assert share_of_gap([], [2.0], [1.0], [1.0]).value is None


@pytest.mark.parametrize("true_share", [0.6, 1.0])
def test_share_interval_covers_95_percent(true_share: float) -> None:
    rng = np.random.default_rng(7)
    num_covered = 0
    for _ in range(400):
        healthy, sick = rng.normal(size=3), rng.normal(10.0 * true_share, size=3)
        good, bad = rng.normal(size=6), rng.normal(10.0, size=6)
        share = share_of_gap(list(healthy), list(sick), list(good), list(bad))
        assert share.low is not None and share.high is not None
        num_covered += share.low <= true_share <= share.high
    # binomial: 380 +- 3 x 4.4
    assert 367 <= num_covered <= 393
