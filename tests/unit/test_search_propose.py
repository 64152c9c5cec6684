from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.search.propose import propose_versions


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
