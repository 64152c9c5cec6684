from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.search.propose import MIN_GAIN_NATS, REPEAT_WORTH, propose_versions


@st.composite
def states(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, list[int]]:  # type: ignore[type-arg]
    num = draw(st.integers(1, 80))
    weights = np.array(draw(st.lists(st.floats(0.0, 1.0), min_size=num, max_size=num))) + 1e-6
    testable = np.array(draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=num + 1, max_size=num + 1)))
    running = draw(st.lists(st.integers(1, num - 1), max_size=3, unique=True)) if num > 1 else []
    return weights / weights.sum(), testable, draw(st.integers(0, 9)), running


@given(states())
def test_proposals_lie_inside_and_are_neither_ends_nor_untestable_nor_running(case) -> None:  # type: ignore[no-untyped-def]
    posterior, testable, num, running = case
    chosen = propose_versions(posterior, testable, num=num, in_flight=running)
    assert len(chosen) <= num
    assert len(set(chosen)) == len(chosen)
    assert all(0 < version < len(posterior) and testable[version] > 0 for version in chosen)
    assert not set(chosen) & set(running)


@given(states())
def test_proposals_are_deterministic(case) -> None:  # type: ignore[no-untyped-def]
    posterior, testable, num, running = case
    first = propose_versions(posterior, testable, num=num, in_flight=running)
    assert first == propose_versions(posterior.copy(), testable.copy(), num=num, in_flight=running[::-1])


def test_proposal_for_one_worker_is_the_middle() -> None:
    assert propose_versions(np.full(64, 1 / 64), np.ones(65), num=1) == [32]


@pytest.mark.parametrize("num", [2, 3, 4, 7])
def test_proposals_for_several_workers_lie_at_the_quantiles(num: int) -> None:
    chosen = sorted(propose_versions(np.full(240, 1 / 240), np.ones(241), num=num))
    sizes = np.diff([0, *chosen, 240])
    assert sizes.max() <= math.ceil(240 / (num + 1) * 1.25)


def test_proposals_split_what_running_probes_leave() -> None:
    assert propose_versions(np.full(64, 1 / 64), np.ones(65), num=2, in_flight=[32]) in ([16, 48], [48, 16])


def test_proposals_avoid_versions_with_all_their_runs() -> None:
    posterior = np.full(4, 0.25)
    assert propose_versions(posterior, np.ones(5), num=1, num_runs={2: 6}, max_runs=6) in ([1], [3])
    assert propose_versions(posterior, np.ones(5), num=3, num_runs={1: 6, 2: 6, 3: 6}, max_runs=6) == []


def test_proposals_for_a_single_change_are_empty() -> None:
    assert propose_versions(np.ones(1), np.ones(2), num=4) == []


def test_proposals_for_a_settled_belief_are_empty() -> None:
    posterior = np.zeros(32)
    posterior[7] = 1.0
    assert propose_versions(posterior, np.ones(33), num=4) == []


def entropy_of_split(posterior: np.ndarray, cuts: set[int]) -> float:  # type: ignore[type-arg]
    """Entropy of which interval between the cuts holds the culprit."""
    masses = [part.sum() for part in np.split(posterior, sorted(cuts))]
    return -sum(mass * math.log(mass) for mass in masses if mass > 0)


@given(states(), st.dictionaries(st.integers(1, 79), st.integers(1, 7), max_size=6))
def test_proposal_for_one_worker_is_the_best_of_all_versions_tried_one_by_one(case, num_runs: dict[int, int]) -> None:  # type: ignore[no-untyped-def]
    posterior, testable, _, running = case
    before = entropy_of_split(posterior, set(running))
    scores = {}
    for version in range(1, len(posterior)):
        gain = testable[version] * (entropy_of_split(posterior, {*running, version}) - before)
        if version not in running and gain >= MIN_GAIN_NATS and num_runs.get(version, 0) < 6:
            scores[version] = gain * REPEAT_WORTH ** num_runs.get(version, 0)
    chosen = propose_versions(posterior, testable, num=1, in_flight=running, num_runs=num_runs)
    if not chosen:
        assert all(score < MIN_GAIN_NATS + 1e-9 for score in scores.values())
    else:
        assert scores[chosen[0]] == pytest.approx(max(scores.values()), abs=1e-8)


def test_proposals_repeat_a_version_while_the_belief_is_open() -> None:
    """Each run of the only version between two changes is worth less than the one before, and still all there is to do."""
    posterior = np.array([0.9, 0.1])
    assert propose_versions(posterior, np.ones(3), num=1, num_runs={1: 5}) == [1]
    assert propose_versions(posterior, np.ones(3), num=1, num_runs={1: 6}) == []


def test_proposals_prefer_a_new_version_to_a_repeat_of_one_a_little_better() -> None:
    posterior = np.full(64, 1 / 64)
    assert propose_versions(posterior, np.ones(65), num=1, num_runs={32: 1}) in ([31], [33])


def test_proposals_take_known_results_first_then_what_is_cheap() -> None:
    posterior, cost = np.full(64, 1 / 64), np.ones(65)
    cost[10] = 0.0
    assert propose_versions(posterior, np.ones(65), num=1, cost=cost) == [10]
    cost[10], cost[20] = 1.0, 0.5
    assert propose_versions(posterior, np.ones(65), num=1, cost=cost) == [20]


def test_proposals_at_equal_cost_are_those_without_any() -> None:
    posterior = np.full(100, 0.01)
    with_cost = propose_versions(posterior, np.ones(101), num=5, cost=np.full(101, 3.0))
    assert with_cost == propose_versions(posterior, np.ones(101), num=5)


def test_proposals_do_not_take_a_known_result_that_tells_nothing() -> None:
    posterior, cost = np.full(64, 1 / 64), np.ones(65)
    posterior[:32], posterior[32:] = 1e-6, (1 - 32e-6) / 32
    cost[3] = 0.0
    assert propose_versions(posterior, np.ones(65), num=1, cost=cost) == [48]
