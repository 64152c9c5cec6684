from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.verdict.evidence import MAX_NATS, METRIC_NATS, judge_variant
from bisect_train.verdict.stats import Summary
from tests.support.observations import LOSS, failed, measured, separated_ends, untestable

AT = Point(4)
ENDS = separated_ends(8.0)


@pytest.mark.parametrize(("value", "kind"), [(0.3, "good"), (7.8, "bad"), (4.0, "inconclusive"), (200.0, "other")])
def test_evidence_of_one_value_follows_the_seed_spread(value: float, kind: str) -> None:
    assert judge_variant([measured(AT, 0, value)], ENDS, LOSS).verdict.value == kind


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8), st.floats(0.0, 10.0))
def test_evidence_of_no_run_weighs_more_than_ln_1000(values: list[float], spread: float) -> None:
    ends = replace(separated_ends(8.0, spread=spread), min_effect=0.0)
    evidence = judge_variant([measured(AT, idx, value) for idx, value in enumerate(values)], ends, LOSS)
    assert math.isfinite(evidence.nats)
    assert abs(evidence.nats) <= MAX_NATS * len(values) + 1e-9


@given(st.permutations([0.1, 3.0, 7.0, -40.0, 8.5]))
def test_evidence_does_not_depend_on_the_order_of_runs(values: list[float]) -> None:
    runs = [measured(AT, idx, value) for idx, value in enumerate([0.1, 3.0, 7.0, -40.0, 8.5])]
    shuffled = [next(run for run in runs if run.outcome.value == value) for value in values]
    assert judge_variant(shuffled, ENDS, LOSS) == judge_variant(runs, ENDS, LOSS)


def test_evidence_of_a_bitwise_equal_run_is_ln_1000() -> None:
    evidence = judge_variant([measured(AT, 1, 0.0, digest="b:1")], ENDS, LOSS)
    assert (evidence.verdict, evidence.nats) == (VerdictKind.BAD, MAX_NATS)


def test_evidence_of_bits_of_another_seed_counts_by_its_value() -> None:
    evidence = judge_variant([measured(AT, 2, 0.0, digest="b:1")], ENDS, LOSS)
    assert evidence.verdict is VerdictKind.GOOD


def test_evidence_of_a_stale_cache_is_outweighed_by_later_runs() -> None:
    """The first run repeats the good end's bits, three more on other seeds show what the bad end shows."""
    runs = [measured(AT, 0, 0.0, digest="g:0"), *(measured(AT, idx, 8.0, digest=f"v:{idx}") for idx in (1, 2, 3))]
    evidence = judge_variant(runs, separated_ends(12.0), LOSS)
    assert evidence.nats > -MAX_NATS + 1.0


def test_evidence_equal_to_neither_end_by_criterion_exact_is_other() -> None:
    evidence = judge_variant([measured(AT, 0, 0.0, digest="v")], separated_ends(criterion=Criterion.EXACT), LOSS)
    assert (evidence.verdict, evidence.nats) == (VerdictKind.OTHER, 0.0)


def test_evidence_ignores_bits_where_runs_do_not_repeat() -> None:
    ends = replace(ENDS, repeats_bitwise=False)
    assert judge_variant([measured(AT, 1, 0.0, digest="b:1")], ends, LOSS).verdict is VerdictKind.GOOD


def test_evidence_with_inert_seeds_compares_the_bits_of_any_seed() -> None:
    ends = replace(ENDS, are_seeds_inert=True)
    assert judge_variant([measured(AT, 7, 0.0, digest="b:0")], ends, LOSS).nats == MAX_NATS


def test_evidence_of_three_runs_leaves_out_one_that_is_far_from_its_siblings() -> None:
    runs = [measured(AT, 0, 0.1), measured(AT, 1, 60.0), measured(AT, 2, -0.2)]
    assert judge_variant(runs[:2], ENDS, LOSS).verdict is VerdictKind.OTHER
    assert judge_variant(runs, ENDS, LOSS).verdict is VerdictKind.GOOD


def test_evidence_of_a_noisier_bad_side_does_not_call_its_spread_good() -> None:
    ends = replace(ENDS, bad=Summary(8.0, 3.0, 8), spread=2.2)
    assert judge_variant([measured(AT, 0, 4.5)], ends, LOSS).nats > 0


@pytest.mark.parametrize("runs", [[failed(AT, 0)], [untestable(AT, 0), failed(AT, 1)]])
def test_evidence_without_a_measured_run_is_untestable(runs: list) -> None:  # type: ignore[type-arg]
    evidence = judge_variant(runs, ENDS, LOSS)
    assert (evidence.verdict, evidence.nats) == (VerdictKind.UNTESTABLE, 0.0)


def test_evidence_of_a_flaky_crash_rests_on_the_run_that_worked() -> None:
    assert judge_variant([failed(AT, 0), measured(AT, 1, 8.0)], ENDS, LOSS).verdict is VerdictKind.BAD


def test_evidence_of_a_symptom_needs_the_same_signature() -> None:
    ends = separated_ends(criterion=Criterion.SYMPTOM)
    assert judge_variant([failed(AT, 0)], ends, LOSS).verdict is VerdictKind.BAD
    assert judge_variant([measured(AT, 0, 1.0)], ends, LOSS).verdict is VerdictKind.GOOD
    assert judge_variant([failed(AT, 0, "another")], ends, LOSS).verdict is VerdictKind.UNTESTABLE
    assert judge_variant([failed(AT, 0), measured(AT, 1, 1.0)], ends, LOSS).verdict is VerdictKind.INCONCLUSIVE


def test_evidence_of_many_repeats_is_limited_by_the_variants_own_offset() -> None:
    """Repeating one variant cannot average its own oddity away."""
    rng = random.Random(1)
    ends = separated_ends(2.0)
    few = judge_variant([measured(AT, idx, 1.3 + rng.gauss(0, 0.1)) for idx in range(6)], ends, LOSS)
    many = judge_variant([measured(AT, idx, 1.3 + rng.gauss(0, 0.1)) for idx in range(60)], ends, LOSS)
    assert abs(many.nats) < abs(few.nats) + 1.5


def test_evidence_by_criterion_exact_takes_the_metric_where_other_signals_differ() -> None:
    ends = replace(
        separated_ends(criterion=Criterion.EXACT),
        good_values={0: 1.25, 1: 1.5, 2: 1.75},
        bad_values={0: 1.375, 1: 1.625, 2: 1.875},
    )
    as_good = judge_variant([measured(Point(2), 0, 1.25, digest="x:0")], ends, LOSS)
    as_bad = judge_variant([measured(Point(2), 1, 1.625, digest="x:1")], ends, LOSS)
    assert (as_good.verdict, as_bad.verdict) == (VerdictKind.GOOD, VerdictKind.BAD)
    assert as_bad.nats == -as_good.nats == pytest.approx(METRIC_NATS)
    assert judge_variant([measured(Point(2), 1, 1.25, digest="x:1")], ends, LOSS).verdict is VerdictKind.OTHER


def test_evidence_of_a_coarse_metric_is_no_equality() -> None:
    ends = replace(
        separated_ends(criterion=Criterion.EXACT),
        good_values={0: 0.8, 1: 0.8, 2: 0.8},
        bad_values={0: 0.7, 1: 0.7, 2: 0.7},
    )
    assert judge_variant([measured(Point(2), 0, 0.8, digest="x:0")], ends, LOSS).verdict is VerdictKind.OTHER


@pytest.mark.parametrize(("value", "kind"), [(14.0, "bad"), (-6.0, "good")])
def test_evidence_of_a_value_beyond_an_end_speaks_for_that_end(value: float, kind: str) -> None:
    """A later change may make up for part of it: worse than the bad end is bad, but no certainty."""
    item = judge_variant([measured(AT, 0, value)], ENDS, LOSS)
    assert item.verdict.value == kind and abs(item.nats) == pytest.approx(math.log(20.0))
    assert "than at the" in item.reason
