from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.search.belief import credible_changes, posterior_over_changes


@st.composite
def evidence(draw: st.DrawFn) -> tuple[int, dict[int, float]]:
    num = draw(st.integers(1, 60))
    nats = st.floats(-50, 50, allow_nan=False)
    return num, draw(st.dictionaries(st.integers(1, num - 1), nats, max_size=12)) if num > 1 else {}


@given(evidence())
def test_posterior_sums_to_one_and_is_free_of_order(case: tuple[int, dict[int, float]]) -> None:
    num, nats = case
    posterior = posterior_over_changes(num, nats)
    assert posterior.shape == (num,)
    assert posterior.sum() == pytest.approx(1.0)
    assert (posterior >= 0).all()
    assert (posterior == posterior_over_changes(num, dict(reversed(nats.items())))).all()


def naive_posterior(num: int, nats: dict[int, float]) -> list[float]:
    """Sum over every path of states of versions 0..N, one change after the other."""
    eps, delta = 0.02 / max(num, 2), min(0.5, 1.0 / (0.25 * max(num, 4)))
    weights = []
    for culprit in range(1, num + 1):
        total = 0.0
        for code in range(2 ** (culprit - 1)):
            states = [0, *((code >> idx) & 1 for idx in range(culprit - 1))]
            if states[culprit - 1] != 0:
                continue
            weight = math.prod([[1 - eps, eps], [delta, 1 - delta]][a][b] for a, b in pairwise(states))
            total += weight * math.exp(sum(nats.get(k, 0.0) for k in range(1, num) if k >= culprit or states[k]))
        weights.append(total)
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("nats", [{}, {3: 4.0}, {2: -3.0, 5: 6.0}, {1: 2.0, 2: -7.0, 6: 1.0}, {4: 6.9, 5: -6.9}])
def test_posterior_matches_the_sum_over_all_paths(nats: dict[int, float]) -> None:
    assert posterior_over_changes(8, nats).tolist() == pytest.approx(naive_posterior(8, nats), rel=1e-9)


def test_posterior_without_evidence_is_almost_uniform() -> None:
    posterior = posterior_over_changes(100, {})
    assert posterior.max() / posterior.min() < 1.03


def test_posterior_of_a_clean_step_names_the_change_between() -> None:
    posterior = posterior_over_changes(64, {16: -6.9, 20: -6.9, 21: 6.9, 24: 6.9, 32: 6.9, 48: 6.9})
    assert posterior.argmax() == 20
    assert posterior[20] > 0.98


def test_posterior_of_good_bad_good_bad_names_the_last_transition() -> None:
    posterior = posterior_over_changes(64, {10: 6.9, 12: 6.9, 30: -6.9, 40: -6.9, 41: 6.9})
    assert posterior.argmax() == 40


def test_posterior_with_contradictory_evidence_does_not_collapse_on_one_run() -> None:
    """One bad run that lies, ln 1000, is outweighed by two honest ones."""
    assert posterior_over_changes(16, {8: 6.9, 10: -6.9, 12: -6.9}).argmax() >= 12


def test_posterior_takes_in_what_a_failed_proof_said() -> None:
    before = posterior_over_changes(8, {4: 2.0})
    after = posterior_over_changes(8, {4: 2.0}, nats_of_change={int(before.argmax()): -6.9})
    assert after[before.argmax()] < 0.01


def test_posterior_with_extreme_evidence_stays_finite() -> None:
    posterior = posterior_over_changes(50, {k: 700.0 * (-1) ** k for k in range(1, 50)})
    assert np.isfinite(posterior).all()


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_credible_changes_hold_the_mass_and_no_fewer_would(weights: list[float], mass: float) -> None:
    posterior = np.array(weights) / sum(weights)
    chosen = credible_changes(posterior, mass=mass)
    assert chosen == sorted(set(chosen))
    assert posterior[chosen].sum() >= mass - 1e-9
    assert np.sort(posterior)[::-1][: len(chosen) - 1].sum() < mass
