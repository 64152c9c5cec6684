"""Norms of a model whose pieces lie on several ranks: each piece counts once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bisect_train_workers.process_record import ProcessRecord
from bisect_train_workers.records import to_rank_records
from bisect_train_workers.whole_norms import WholeNorms, combine, find_holders


def rank_of(rank: int, step: dict[str, Any], *, began: str, trained: int = 10, world_size: int = 2) -> ProcessRecord:
    """Return a rank with one step."""
    process = ProcessRecord()
    process.take({"type": "start", "rank": rank, "world_size": world_size, "pid": rank + 1})
    group = {"rank": rank, "world_size": world_size}
    process.take({"type": "event", "name": "process_group", "step": 0, "t": 0.0, "data": group})
    process.take({"type": "event", "name": "initial_params", "data": {"param_hash": began, "num_trained": trained}})
    process.take({"type": "step", "step": 0, **step})
    return process


def step_line(hash_: str, *, square: float = 9.0, norm: float = 2.0, num: int = 10, **more: Any) -> dict[str, Any]:
    """Return a step's line as the recorder writes it where it hashes parameters."""
    return {
        "grad_sq": square,
        "grad_norm": math.sqrt(square),
        "param_norm": norm,
        "param_hash": hash_,
        "num_params": num,
        **more,
    }


def whole(*ranks: ProcessRecord) -> dict[str, float]:
    """Return what the ranks' first step gives."""
    return WholeNorms(dict(enumerate(ranks))).at(0)


def test_replicas_need_nothing_even_after_they_have_parted() -> None:
    assert whole(rank_of(0, step_line("a"), began="x"), rank_of(1, step_line("a"), began="x")) == {}
    assert whole(rank_of(0, step_line("a"), began="x"), rank_of(1, step_line("b", square=4.0), began="x")) == {}


def test_stages_and_shards_that_began_differently_add_up() -> None:
    found = whole(rank_of(0, step_line("a"), began="x"), rank_of(1, step_line("b", square=16.0, norm=1.0), began="y"))
    assert found == {"whole_grad_norm": 5.0, "whole_param_norm": pytest.approx(math.sqrt(5.0))}


def test_parts_of_equal_copies_that_each_rank_steps_add_up() -> None:
    ranks = [rank_of(0, step_line("a", num=4), began="x"), rank_of(1, step_line("b", num=6, square=16.0), began="x")]
    assert whole(*ranks)["whole_grad_norm"] == 5.0


def test_copies_of_a_stage_count_once() -> None:
    lines = [("x", "a", 9.0), ("x", "a", 9.0), ("y", "b", 16.0), ("y", "b", 16.0)]
    ranks = [
        rank_of(idx, step_line(hash_, square=square), began=began, world_size=4)
        for idx, (began, hash_, square) in enumerate(lines)
    ]
    assert whole(*ranks)["whole_grad_norm"] == 5.0


def test_shares_of_sharded_tensors_add_up_and_plain_ones_beside_them_count_once() -> None:
    shares = [{"grad_shares": [9.0, share], "param_shares": [4.0, share], "plain_hash": "p"} for share in (10.0, 6.0)]
    ranks = [rank_of(idx, step_line(f"h{idx}", **more), began=f"b{idx}") for idx, more in enumerate(shares)]
    assert whole(*ranks) == {"whole_grad_norm": 5.0, "whole_param_norm": pytest.approx(math.sqrt(20.0))}
    only = [{"grad_shares": [None, share], "clip_share": share / 4} for share in (10.0, 6.0)]
    assert combine(dict(enumerate(only)), {}) == {"whole_grad_norm": 4.0, "clip_norm": 2.0}


def test_norm_before_clipping_is_that_of_all_ranks_in_the_record() -> None:
    lines = [
        step_line(f"h{idx}", clip_norm=1.0, clip_share=share, grad_shares=[None, 1.0]) for idx, share in enumerate((9.0, 16.0))
    ]
    ranks = {idx: rank_of(idx, line, began=f"b{idx}") for idx, line in enumerate(lines)}
    assert [rank.steps[0].clip_norm for rank in to_rank_records(ranks, num_steps=None)] == [5.0, 5.0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_piece_that_is_not_finite_makes_the_whole_nan(value: float) -> None:
    found = whole(rank_of(0, step_line("a", square=value), began="x"), rank_of(1, step_line("b"), began="y"))
    assert math.isnan(found["whole_grad_norm"])


def test_nothing_is_said_where_ranks_or_their_hashes_are_missing() -> None:
    first = rank_of(0, step_line("a"), began="x")
    assert find_holders({0: first}) == {}
    assert whole(first) == {}
    without = rank_of(1, {"grad_sq": 4.0}, began="y")
    assert find_holders({0: first, 1: without}) == {}
    assert whole(first, without) == {}
    alone = ProcessRecord()
    alone.take({"type": "step", "step": 0, **step_line("b")})
    assert find_holders({0: first, 1: alone}) == {}, "no process group was made"
    assert WholeNorms({0: first, 1: rank_of(1, step_line("b"), began="y")}).at(7) == {}
