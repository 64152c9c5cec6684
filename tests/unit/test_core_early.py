"""The watch that stops runs early: bits, decisive step, ranks, curves; and the worker's look at the records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.early import (
    BOUND_NATS,
    BitRule,
    CurveRule,
    CurveWatch,
    EarlyRules,
    EarlyWatch,
    Shown,
    digest_step,
    steps_of,
    value_of_step,
    watch_ranks,
)
from bisect_train.core.fingerprint import EarlyStop, RankRecord, StepRecord
from bisect_train_workers.early_look import EarlyLook
from bisect_train_workers.records import ProcessRecord

NUM_STEPS = 10


def rank_of(losses: Sequence[float], rank: int = 0) -> RankRecord:
    return RankRecord(rank, tuple(StepRecord(idx, loss=loss) for idx, loss in enumerate(losses)))


def run_of(losses: Sequence[float], *, num_ranks: int = 1) -> tuple[RankRecord, ...]:
    return tuple(rank_of([loss + rank for loss in losses], rank) for rank in range(num_ranks))


def curve_of(parts_at: int, level: float) -> list[float]:
    """Return losses that are those of every other curve until a step, then lie at a level of their own."""
    return [1.0 + 0.1 * idx if idx < parts_at else level + 0.1 * idx for idx in range(NUM_STEPS)]


GOOD, BAD = curve_of(3, 1.5), curve_of(3, 2.5)


def bit_rules(good: Sequence[float] = GOOD, bad: Sequence[float] = BAD, *, through: int = 6, num_ranks: int = 1) -> EarlyRules:
    digests = [
        tuple(digest_step(records) for records in steps_of(run_of(losses, num_ranks=num_ranks)).values())[: through + 1]
        for losses in (good, bad)
    ]
    bits = BitRule(digests[0], digests[1], Shown("g", 1.25), Shown("b", 2.25))
    return EarlyRules("loss", num_ranks, tuple(range(NUM_STEPS)), bits)


@pytest.mark.parametrize(
    ("losses", "like"),
    [(GOOD, "good"), (BAD, "bad"), (GOOD[:7] + [9.0] * 3, "good"), (curve_of(3, 7.0), ""), (GOOD[:6] + [9.0] * 4, "")],
)
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_watch_stops_a_run_at_the_decisive_step_where_its_bits_are_those_of_one_end(
    losses: list[float], like: str, num_ranks: int
) -> None:
    stop = watch_ranks(bit_rules(num_ranks=num_ranks), run_of(losses, num_ranks=num_ranks))
    shown = {"good": Shown("g", 1.25), "bad": Shown("b", 2.25)}.get(like)
    assert stop == (EarlyStop(like, 6, "bits", digest=shown.digest, value=shown.value) if shown else None)


def test_watch_does_not_decide_where_the_bits_part_but_at_the_decisive_step() -> None:
    assert watch_ranks(bit_rules(through=3), run_of(GOOD)) is not None
    only_so_far = [*GOOD[:5], *BAD[5:]]
    assert watch_ranks(bit_rules(through=3), run_of(only_so_far)) is not None
    assert watch_ranks(bit_rules(through=8), run_of(only_so_far)) is None


def test_watch_compares_every_rank() -> None:
    rules = bit_rules(num_ranks=2)
    good, other = run_of(GOOD, num_ranks=2)
    changed = replace(other, steps=(*other.steps[:4], replace(other.steps[4], grad_norm=3.0), *other.steps[5:]))
    assert watch_ranks(rules, (good, other)) is not None
    assert watch_ranks(rules, (good, changed)) is None


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_watch_never_stops_a_run_of_other_ranks(num_ranks: int) -> None:
    assert watch_ranks(bit_rules(num_ranks=2), run_of(GOOD, num_ranks=num_ranks)) is None


def test_watch_never_stops_a_run_that_lacks_a_step() -> None:
    (rank,) = run_of(GOOD)
    assert watch_ranks(bit_rules(), (replace(rank, steps=(*rank.steps[:2], *rank.steps[3:])),)) is None


def test_watch_takes_nan_as_bits_like_any_other() -> None:
    good = [*GOOD[:2], math.nan, *GOOD[3:]]
    assert watch_ranks(bit_rules(good), run_of(good)) is not None
    assert watch_ranks(bit_rules(good), run_of(GOOD)) is None


def test_watch_never_stops_at_the_last_step() -> None:
    assert watch_ranks(bit_rules(through=NUM_STEPS - 1), run_of(GOOD)) is None


def test_steps_without_anything_recorded_are_no_bits() -> None:
    assert digest_step([StepRecord(0)]) == ""
    empty = RankRecord(0, tuple(StepRecord(idx) for idx in range(NUM_STEPS)))
    bits = BitRule(("",) * 7, ("",) * 6 + ("x",), Shown("g", 1.0), Shown("b", 2.0))
    assert watch_ranks(replace(bit_rules(), bits=bits), (empty,)) is None


def test_value_is_the_mean_over_ranks_and_nan_where_one_is_not_finite() -> None:
    records = [StepRecord(0, loss=1.0, grad_norm=2.0, clip_norm=5.0), StepRecord(0, loss=3.0, grad_norm=4.0)]
    assert value_of_step(records, "loss") == 2.0
    assert value_of_step(records, "grad_norm") == 4.5, "clipping saw the norm before it"
    assert value_of_step(records, "param_norm") is None
    assert math.isnan(value_of_step([*records, StepRecord(0, loss=math.inf)], "loss") or 0.0)


# ---- curves ---------------------------------------------------------------------------------------------------------

LONG = 80


def curve_rule(*, shift: float = 1.0, offset: float = 0.0, rho: float = 0.0) -> CurveRule:
    """Return the rule of a good level 0 and a bad level `shift`, noise of sd 1."""
    return CurveRule((shift / 2.0,) * LONG, (0.0, *(shift * (1.0 - rho),) * (LONG - 1)), (1.0,) * LONG, rho, offset)


def feed(rule: CurveRule, values: Sequence[float | None]) -> tuple[int, float]:
    """Return the step at which the test stops and its nats; (-1, 0.0) where it does not."""
    watch = CurveWatch(rule)
    for idx, value in enumerate(values):
        if nats := watch.take(value):
            return idx, nats
    return -1, 0.0


def test_curve_on_the_level_of_an_end_is_stopped_for_that_end() -> None:
    bad_at, bad = feed(curve_rule(), [1.0] * LONG)
    good_at, good = feed(curve_rule(), [0.0] * LONG)
    assert bad_at == good_at > 5 and bad == -good >= BOUND_NATS


def test_curve_between_the_ends_is_never_stopped() -> None:
    assert feed(curve_rule(), [0.5] * LONG) == (-1, 0.0)


def test_curve_far_from_both_ends_is_never_stopped() -> None:
    assert feed(curve_rule(), [9.0] * LONG) == (-1, 0.0)
    assert feed(curve_rule(), [-9.0] * LONG) == (-1, 0.0)
    restless = [1.0 + (4.0 if idx % 2 else -4.0) for idx in range(LONG)]
    assert feed(curve_rule(), restless) == (-1, 0.0)


def test_one_spike_does_not_decide() -> None:
    values = [0.0] * LONG
    values[3] = 1000.0
    assert feed(curve_rule(), values)[1] <= 0.0


@pytest.mark.parametrize("odd", [math.nan, math.inf, None])
def test_curve_with_a_value_that_is_none_is_never_stopped(odd: float | None) -> None:
    assert feed(curve_rule(), [1.0, 1.0, odd, *[1.0] * (LONG - 3)]) == (-1, 0.0)


def test_a_variants_own_offset_limits_what_a_run_may_tell() -> None:
    assert feed(curve_rule(offset=0.1), [1.0] * LONG)[0] > feed(curve_rule(), [1.0] * LONG)[0]
    # no run tells more than TEMPER / (2 offset^2) nats
    assert feed(curve_rule(offset=0.3), [1.0] * LONG) == (-1, 0.0)


def test_curve_decides_only_once_the_bits_are_those_of_no_end() -> None:
    losses = [1.0] * LONG
    digests = tuple(digest_step(records) for records in steps_of((rank_of(losses),)).values())
    bits = BitRule(digests[:60], (*digests[:59], "x"), Shown("g", 1.0), Shown("b", 2.0))
    rules = EarlyRules("loss", 1, tuple(range(LONG)), bits, curve_rule())
    by_bits = watch_ranks(rules, (rank_of(losses),))
    assert by_bits is not None and (by_bits.how, by_bits.like, by_bits.step) == ("bits", "good", 59)
    parted = [1.0, 1.0, 1.001, *losses[3:]]
    by_curve = watch_ranks(rules, (rank_of(parted),))
    assert by_curve is not None and (by_curve.how, by_curve.like) == ("curve", "bad") and by_curve.step < 59


# ---- the worker's look ------------------------------------------------------------------------------------------------


def line(step: int, loss: float) -> dict[str, object]:
    return {"type": "step", "step": step, "loss": loss, "lr": []}


def test_look_waits_until_a_step_is_settled_on_all_ranks() -> None:
    look = EarlyLook(bit_rules(num_ranks=2))
    ranks = {0: ProcessRecord(), 1: ProcessRecord()}
    for idx in range(NUM_STEPS):
        ranks[0].take(line(idx, GOOD[idx]))
    assert look.look({0: ranks[0]}) is None and look.look(ranks) is None
    for idx in range(7):
        ranks[1].take(line(idx, GOOD[idx] + 1))
    assert look.look(ranks) is None, "step 6 of rank 1 may still be written again"
    ranks[1].take(line(7, GOOD[7] + 1))
    stop = look.look(ranks)
    assert stop is not None and stop.step == 6 and not look.is_open


@given(st.lists(st.integers(1, 4), min_size=1, max_size=10))
def test_look_says_the_same_however_often_it_is_taken(chunks: list[int]) -> None:
    look, process, num = EarlyLook(bit_rules()), ProcessRecord(), 0
    for chunk in [*chunks, NUM_STEPS]:
        for idx in range(num, min(NUM_STEPS, num + chunk)):
            process.take(line(idx, BAD[idx]))
        num = min(NUM_STEPS, num + chunk)
        look.look({0: process})
    assert look.stop == watch_ranks(bit_rules(), run_of(BAD))


def test_look_without_rules_never_stops() -> None:
    process = ProcessRecord()
    for idx in range(NUM_STEPS):
        process.take(line(idx, GOOD[idx]))
    look = EarlyLook(None)
    assert look.look({0: process}) is None and not look.is_open


def test_watch_wants_one_step_after_the_other() -> None:
    watch = EarlyWatch(bit_rules())
    assert watch.wanted == 0
    watch.take({0: StepRecord(0, loss=GOOD[0])})
    assert watch.wanted == 1
    watch.give_up()
    assert watch.wanted is None and watch.take({0: StepRecord(1, loss=GOOD[1])}) is None


def test_random_walk_increments_are_what_counts() -> None:
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.normal(size=LONG))
    rule = CurveRule(tuple(0.5 * idx for idx in range(LONG)), (0.0, *(1.0,) * (LONG - 1)), (1.0,) * LONG, 1.0, 0.0)
    assert feed(rule, list(walk))[1] < 0 < feed(rule, [value + idx for idx, value in enumerate(walk)])[1]
    assert feed(rule, list(walk + 100.0)) == pytest.approx(feed(rule, list(walk))), "where it starts says nothing"
