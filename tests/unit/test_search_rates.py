"""The search where a run fails by chance, against the plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special

from bisect_train.core.question import Metric
from bisect_train.search.belief import FloatArray
from bisect_train.search.rates import posterior_with_rates, propose_with_rates
from bisect_train.search.terms import Rules
from bisect_train.verdict.end_terms import EndRules
from bisect_train.verdict.evidence import BAD_RATE_PRIOR, GOOD_RATE_PRIOR
from tests.support.simulated_regression import World, solve

COUNTS = {0: (0, 5), 3: (1, 2), 5: (2, 1), 9: (4, 1)}
NUM = 9


def likelihood(fails: int, passes: int, prior: tuple[float, float]) -> float:
    """Return the integral over the rate of one side."""
    value, _ = integrate.quad(
        lambda rate: rate ** (prior[0] + fails - 1) * (1 - rate) ** (prior[1] + passes - 1), 0.0, 1.0, limit=200
    )
    return float(value)


def sides(culprit: int, counts: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Return failures and passes of the good and the bad side if `culprit` (from 1) did it."""
    good = [pair for version, pair in counts.items() if version < culprit]
    bad = [pair for version, pair in counts.items() if version >= culprit]
    return [(sum(f for f, _ in group), sum(s for _, s in group)) for group in (good, bad)]


def test_rates_posterior_is_the_integral_over_both_rates() -> None:
    weights = []
    for culprit in range(1, NUM + 1):
        good, bad = sides(culprit, COUNTS)
        weights.append(likelihood(*good, GOOD_RATE_PRIOR) * likelihood(*bad, BAD_RATE_PRIOR))
    expected = np.array(weights) / sum(weights)
    assert np.allclose(posterior_with_rates(NUM, COUNTS), expected, rtol=1e-5)


def test_rates_posterior_takes_what_is_known_of_a_change() -> None:
    plain = posterior_with_rates(NUM, COUNTS)
    told = posterior_with_rates(NUM, COUNTS, nats_of_change={4: -math.log(3.0)})
    assert told[4] / told[5] == pytest.approx(plain[4] / plain[5] / 3.0)


def gain_of(version: int, counts: dict[int, tuple[int, int]], posterior: FloatArray) -> float:
    """Return the mutual information of one run's outcome and the culprit."""
    failing = []
    for culprit in range(1, NUM + 1):
        is_bad = version >= culprit
        fails, passes = sides(culprit, counts)[is_bad]
        a, b = BAD_RATE_PRIOR if is_bad else GOOD_RATE_PRIOR
        failing.append((a + fails) / (a + b + fails + passes))
    rates = np.array(failing)
    mean = float(posterior @ rates)
    return float(special.entr(mean) + special.entr(1 - mean) - posterior @ (special.entr(rates) + special.entr(1 - rates)))


@pytest.mark.parametrize("counts", [COUNTS, {0: (0, 9), 9: (8, 1)}, {}])
def test_rates_propose_the_version_that_tells_most(counts: dict[int, tuple[int, int]]) -> None:
    posterior = posterior_with_rates(NUM, counts)
    gains = [gain_of(version, counts, posterior) for version in range(NUM + 1)]
    (chosen,) = propose_with_rates(NUM, counts, posterior, np.ones(NUM + 1), num=1)
    assert gains[chosen] == pytest.approx(max(gains), rel=1e-9)


def test_rates_propose_nothing_that_is_worth_nothing() -> None:
    posterior = posterior_with_rates(NUM, COUNTS)
    worth = np.zeros(NUM + 1)
    assert propose_with_rates(NUM, COUNTS, posterior, worth, num=3) == []
    worth[6] = 1.0
    assert set(propose_with_rates(NUM, COUNTS, posterior, worth, num=3)) == {6}


def test_rates_batches_spread_and_count_what_is_running() -> None:
    counts = {0: (0, 20), 128: (20, 0)}
    posterior = posterior_with_rates(128, counts)
    batch = propose_with_rates(128, counts, posterior, np.ones(129), num=3)
    assert len(set(batch)) == 3 and min(batch) < 50 and max(batch) > 78
    (other,) = propose_with_rates(128, counts, posterior, np.ones(129), num=1, in_flight=[64])
    assert abs(other - 64) > 15


def test_rates_choose_among_the_quantiles_of_a_long_line() -> None:
    num = 100_000
    counts = {0: (0, 9), 40_000: (0, 3), 60_000: (3, 0), num: (9, 0)}
    posterior = posterior_with_rates(num, counts)
    (chosen,) = propose_with_rates(num, counts, posterior, np.ones(num + 1), num=1)
    assert 45_000 < chosen < 55_000


@pytest.mark.parametrize(("good_rate", "bad_rate"), [(0.0, 0.9), (0.05, 0.95), (0.0, 0.5)])
def test_plan_isolates_a_change_that_breaks_some_runs_only(good_rate: float, bad_rate: float) -> None:
    world = World(
        mean_of=lambda point: 0.0,
        signature_of=lambda point: "boom",
        failure_rate_of=lambda point: bad_rate if point.holds(11) else good_rate,
        seed=3,
    )
    solved = solve(world, Rules(24, EndRules(Metric(), has_judge=True)), slots=4, max_probes=2000)
    assert solved.answer.status == "isolated", solved.answer.reason
    assert [culprit.changes for culprit in solved.answer.culprits] == [(11,)]
    assert {claim.how for claim in solved.plan.claims} == {"rates"}


def test_plan_never_names_a_change_where_both_ends_fail_alike() -> None:
    for seed in range(20):
        world = World(
            mean_of=lambda point: 0.0, signature_of=lambda point: "boom", failure_rate_of=lambda point: 0.3, seed=seed
        )
        solved = solve(world, Rules(24, EndRules(Metric(), has_judge=True)), slots=4, max_probes=2000)
        assert solved.answer.status in ("not_reproduced", "no_regression", "failed"), seed
