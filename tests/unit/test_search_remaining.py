"""What is said to a person who waits: how many runs are still to come."""

from __future__ import annotations

import math

import pytest

from bisect_train.core.changes import Point
from bisect_train.search.remaining import NUM_STATES, RUNS_PER_STATE, runs_left
from bisect_train.search.terms import Answer, Phase, Plan, Request
from bisect_train.verdict.end_terms import Ends, EndsStatus

OPEN, SURE, NOISY = Ends(EndsStatus.OPEN), Ends(EndsStatus.SEPARATED, are_seeds_inert=True), Ends(EndsStatus.SEPARATED)
WANTED = (Request(Point(3), 0), Request(Point(5), 0))
PROOF = NUM_STATES * RUNS_PER_STATE[True]


def test_the_narrower_the_belief_the_fewer_runs_are_left() -> None:
    nums = [runs_left(Plan(Phase.SEARCH, WANTED, SURE, tuple([1 / num] * num)), 64) for num in (64, 16, 4)]
    assert nums == [6 + PROOF, 4 + PROOF, 2 + PROOF]


def test_noise_takes_more_runs() -> None:
    flat = tuple([1 / 64] * 64)
    assert runs_left(Plan(Phase.SEARCH, WANTED, NOISY, flat), 64) > runs_left(Plan(Phase.SEARCH, WANTED, SURE, flat), 64)


@pytest.mark.parametrize("num_changes", [1, 2, 100, 100_000])
def test_before_the_search_the_whole_range_is_to_be_halved(num_changes: int) -> None:
    left = runs_left(Plan(Phase.ENDS, WANTED, OPEN), num_changes)
    assert left >= len(WANTED) + math.log2(num_changes) + NUM_STATES


def test_in_a_proof_only_what_it_wants_is_left_and_after_an_answer_nothing() -> None:
    assert runs_left(Plan(Phase.PROOF, WANTED, SURE), 64) == len(WANTED)
    assert runs_left(Plan(Phase.DONE, (), SURE, answer=Answer("isolated", "")), 64) == 0
