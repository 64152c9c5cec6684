"""The shrink ladder: rungs in order, shares of the error, and when another rung is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.probe import Rung
from bisect_train.core.verdict import Criterion
from bisect_train.shrink.ladder import level_share, make_ladder
from bisect_train.shrink.moves import (
    HOPELESS_SD,
    WEAK_SD,
    after_answer,
    distance_of,
    has_first_look,
    is_hopeless,
    is_weak,
    weigh_trial,
)
from bisect_train.verdict.end_terms import Ends, EndsStatus

LADDER = make_ladder((10, 50, None), (1, 2))


def looked(status: EndsStatus = EndsStatus.OPEN, *, sd: float, num: int = 3, repeats: bool | None = False) -> Ends:
    values = dict.fromkeys(range(num), 1.0)
    return Ends(
        status,
        criterion=Criterion.STATISTICAL,
        repeats_bitwise=repeats,
        spread=1.0,
        gap=sd,
        good_values=values,
        bad_values=values,
    )


def test_ladder_goes_from_the_cheapest_rung_up_and_runs_to_the_end_come_last() -> None:
    assert (Rung(10, 1), Rung(10, 2), Rung(50, 1), Rung(50, 2), Rung(None, 1), Rung(None, 2)) == LADDER


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.lists(st.integers(1, 64), min_size=1, max_size=4))
def test_no_rung_comes_before_one_that_is_smaller_in_both(steps: list[int], ranks: list[int]) -> None:
    ladder = make_ladder(steps, ranks)
    assert len(set(ladder)) == len(ladder) == len(set(steps)) * len(set(ranks))
    for place, rung in enumerate(ladder):
        later = ladder[place + 1 :]
        assert not any((item.steps or 0) <= (rung.steps or 0) and item.ranks <= rung.ranks for item in later)


@pytest.mark.parametrize("num", range(1, 9))
def test_rungs_together_spend_the_whole_error_and_no_more(num: int) -> None:
    shares = [level_share(num, idx) for idx in range(num)]
    assert sum(shares) == 1.0
    assert shares == sorted(shares, reverse=True)


def test_a_first_look_takes_three_seeds_of_each_end_and_a_repeat() -> None:
    assert has_first_look(looked(sd=1.0))
    assert not has_first_look(looked(sd=1.0, num=2))
    assert not has_first_look(looked(sd=1.0, repeats=None))


def test_ends_are_hopeless_on_a_rung_only_after_a_first_look_and_only_while_nothing_is_decided() -> None:
    near, far = HOPELESS_SD - 0.1, HOPELESS_SD + 0.1
    assert is_hopeless(looked(sd=near))
    assert not is_hopeless(looked(sd=far))
    assert not is_hopeless(looked(sd=near, num=2))
    assert not is_hopeless(looked(EndsStatus.SEPARATED, sd=near))


def test_ends_are_weak_only_where_neither_distance_nor_bits_help() -> None:
    assert is_weak(looked(EndsStatus.SEPARATED, sd=WEAK_SD - 0.1))
    assert not is_weak(looked(EndsStatus.SEPARATED, sd=WEAK_SD + 0.1))
    assert not is_weak(looked(EndsStatus.SEPARATED, sd=WEAK_SD - 0.1, repeats=True))
    assert not is_weak(looked(sd=WEAK_SD - 0.1))


def test_distance_is_that_of_pairs_where_seeds_move_both_ends_alike_and_infinite_without_any_spread() -> None:
    plain = looked(sd=3.0)
    assert distance_of(plain) == 3.0
    assert distance_of(
        Ends(EndsStatus.SEPARATED, spread=1.0, gap=3.0, seed_effects={0: 0.5}, paired_spread=0.1)
    ) == pytest.approx(30)
    assert distance_of(Ends(EndsStatus.SEPARATED, gap=0.1)) == float("inf")
    assert distance_of(Ends(EndsStatus.SAME)) == 0.0


@pytest.mark.parametrize("status", ["no_regression", "not_reproduced"])
def test_where_nothing_shows_the_next_rung_is_taken_and_the_last_one_answers(status: str) -> None:
    ends = looked(EndsStatus.UNCLEAR, sd=0.1)
    move = after_answer(LADDER, 0, status=status, ends=ends, num_proofs=0)
    assert move is not None and (move.idx, move.is_settled) == (1, False)
    assert after_answer(LADDER, len(LADDER) - 1, status=status, ends=ends, num_proofs=0) is None


def test_an_end_that_cannot_be_run_is_tried_on_more_ranks_only() -> None:
    ends = Ends(EndsStatus.GOOD_UNTESTABLE, reason="needs two ranks")
    move = after_answer(LADDER, 0, status="failed", ends=ends, num_proofs=0)
    assert move is not None and LADDER[move.idx].ranks == 2
    assert after_answer(LADDER, 1, status="failed", ends=ends, num_proofs=0) is None


def test_a_metric_that_is_not_printed_yet_is_waited_for_on_the_next_rung() -> None:
    move = after_answer(LADDER, 0, status="failed", ends=Ends(EndsStatus.NO_METRIC), num_proofs=0)
    assert move is not None and move.idx == 1


def test_candidates_climb_only_after_a_proof_has_failed_and_come_back_where_the_larger_rung_shows_nothing() -> None:
    ends = looked(EndsStatus.SEPARATED, sd=5.0)
    assert after_answer(LADDER, 2, status="candidates", ends=ends, num_proofs=0) is None
    up = after_answer(LADDER, 2, status="candidates", ends=ends, num_proofs=1)
    assert up is not None and (up.idx, up.fall_back) == (3, 2)
    higher = after_answer(LADDER, 3, status="no_regression", ends=looked(EndsStatus.SAME, sd=0), num_proofs=0, fall_back=2)
    assert higher is not None and (higher.idx, higher.fall_back) == (4, 2)
    back = after_answer(LADDER, 5, status="no_regression", ends=looked(EndsStatus.SAME, sd=0), num_proofs=0, fall_back=2)
    assert back is not None and (back.idx, back.is_settled) == (2, True)


def test_a_proved_answer_stays_on_its_rung() -> None:
    ends = looked(EndsStatus.SEPARATED, sd=5.0)
    for status in ("isolated", "several", "fixed_before"):
        assert after_answer(LADDER, 0, status=status, ends=ends, num_proofs=1) is None


@pytest.mark.parametrize(
    ("low_sd", "high_sd", "factor", "idx"),
    [(2.0, 10.0, 2.0, 1), (2.0, 10.0, 4.0, 0), (3.9, 10.0, 2.0, 0), (2.0, 2.0, 1.1, 0), (1.0, float("inf"), 7.0, 1)],
)
def test_a_larger_rung_is_taken_where_fewer_runs_make_up_for_what_each_costs(
    low_sd: float, high_sd: float, factor: float, idx: int
) -> None:
    move = weigh_trial(LADDER, 0, low_cost=1.0, high_cost=factor, low_sd=low_sd, high_sd=high_sd)
    assert (move.idx, move.is_settled) == (idx, True)
