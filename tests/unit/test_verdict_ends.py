from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind
from tests.support.observations import LOSS, end_runs, failed, measured, untestable

GOOD, BAD = Point(0), Point(9)
RULES = EndRules(LOSS)
TIGHT = [0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.08]


def shifted(values: Sequence[float], by: float) -> list[float]:
    return [value + by for value in values]


def grow(good: Callable[[int], float], bad: Callable[[int], float], rules: EndRules = RULES) -> tuple[Ends, int]:
    """Answer every request with the given values until the ends are settled; return them and the number of runs."""
    runs: dict[bool, list[Observation]] = {False: [], True: []}
    for _ in range(60):
        ends = prove_ends(runs[False], runs[True], rules)
        if ends.status is not EndsStatus.OPEN:
            return ends, len(runs[False]) + len(runs[True])
        assert ends.wanted, "open ends must want something"
        run = ends.wanted[0]
        value = bad(run.seed_idx) if run.is_bad else good(run.seed_idx)
        point, name = (BAD, "b") if run.is_bad else (GOOD, "g")
        runs[run.is_bad].append(measured(point, run.seed_idx, value, digest=f"{name}{run.seed_idx}", repeat=run.repeat))
    raise AssertionError("the ends never settle")


def test_ends_far_apart_separate_at_three_seeds() -> None:
    ends = prove_ends(end_runs(GOOD, TIGHT[:3]), end_runs(BAD, shifted(TIGHT[:3], 5.0)), RULES)
    assert (ends.status, ends.criterion) == (EndsStatus.SEPARATED, Criterion.STATISTICAL)
    assert ends.gap == pytest.approx(5.0)


def test_ends_near_each_other_want_five_seeds_and_then_separate() -> None:
    ends, num_runs = grow(lambda idx: TIGHT[idx], lambda idx: TIGHT[idx] + 0.5)
    assert (ends.status, num_runs) == (EndsStatus.SEPARATED, 12)
    assert ends.p_value == pytest.approx(1 / 252)


def test_ends_of_a_part_do_not_repeat_what_is_known_to_repeat() -> None:
    ends, num_runs = grow(lambda idx: TIGHT[idx], lambda idx: TIGHT[idx] + 5.0, replace(RULES, repeats_known=True))
    assert (ends.status, num_runs, ends.repeats_bitwise) == (EndsStatus.SEPARATED, 6, True)
    _, num_runs = grow(lambda idx: TIGHT[idx], lambda idx: TIGHT[idx] + 5.0)
    assert num_runs == 8


def test_while_one_end_is_missing_a_free_worker_repeats_the_other() -> None:
    runs = [measured(GOOD, 0, 1.0, digest="g0")]
    wanted = prove_ends(runs, [], RULES).wanted
    assert [(run.is_bad, run.seed_idx, run.repeat) for run in wanted] == [(True, 0, 0), (False, 0, 1)]
    for asked in ({"repeats_known": True}, {"has_judge": True}, {"criterion": Criterion.SYMPTOM}):
        assert [run.is_bad for run in prove_ends(runs, [], replace(RULES, **asked)).wanted] == [True]
    [only] = prove_ends([failed(GOOD, 0, "boom")], [], RULES).wanted
    assert only.is_bad, "nothing is known yet of a failure that would be worth a second run"


def test_ends_better_is_no_regression_but_counts_for_any_change() -> None:
    good, bad = end_runs(GOOD, TIGHT, name="g"), end_runs(BAD, shifted(TIGHT, -5.0), name="b")
    assert prove_ends(good, bad, RULES).status is EndsStatus.BETTER
    ends = prove_ends(good, bad, EndRules(LOSS, any_change=True))
    assert ends.status is EndsStatus.SEPARATED
    assert ends.gap < 0


def test_ends_of_a_metric_where_higher_is_better_have_a_positive_gap_when_worse() -> None:
    ends = prove_ends(end_runs(GOOD, shifted(TIGHT[:3], 9.0)), end_runs(BAD, TIGHT[:3]), EndRules(Metric(better="higher")))
    assert ends.status is EndsStatus.SEPARATED
    assert ends.gap == pytest.approx(9.0)
    assert ends.good is not None and ends.good.mean == pytest.approx(9.0)


def test_ends_equal_bit_by_bit_are_the_same() -> None:
    ends = prove_ends(end_runs(GOOD, TIGHT[:3], name="x"), end_runs(BAD, TIGHT[:3], name="x"), RULES)
    assert (ends.status, ends.bound) == (EndsStatus.SAME, 0.0)


def test_ends_with_a_smallest_effect_far_above_the_noise_are_the_same() -> None:
    ends, _ = grow(lambda idx: TIGHT[idx], lambda idx: TIGHT[-1 - idx], EndRules(LOSS, min_effect=10.0))
    assert ends.status is EndsStatus.SAME
    assert ends.bound is not None and ends.bound < 10.0


def test_ends_with_an_outlier_at_the_good_end_do_not_pass_a_worsening_as_harmless() -> None:
    outlying = [*TIGHT[:7], 30.0]
    ends, _ = grow(lambda idx: outlying[idx], lambda idx: TIGHT[idx] + 2.0)
    assert ends.status is not EndsStatus.SAME
    assert ends.min_effect < 1.0


@pytest.mark.parametrize("max_seeds", [0, 1, 2, 3])
def test_ends_with_too_few_seeds_are_taken_to_three(max_seeds: int) -> None:
    ends, num_runs = grow(lambda idx: TIGHT[idx], lambda idx: TIGHT[idx] + 0.2, EndRules(LOSS, max_seeds=max_seeds))
    assert (ends.status, num_runs) == (EndsStatus.UNCLEAR, 8)


@pytest.mark.parametrize("max_seeds", [4, 6, 8, 12, 20])
def test_ends_with_any_number_of_seeds_settle(max_seeds: int) -> None:
    rng = np.random.default_rng(max_seeds)
    good, bad = rng.normal(size=40), rng.normal(0.9, size=40)
    ends, num_runs = grow(lambda idx: float(good[idx]), lambda idx: float(bad[idx]), EndRules(LOSS, max_seeds=max_seeds))
    assert ends.status is not EndsStatus.OPEN
    assert num_runs <= 2 * max_seeds + 2


def test_ends_do_not_depend_on_the_order_or_on_what_comes_in_later() -> None:
    good, bad = end_runs(GOOD, TIGHT, name="g"), end_runs(BAD, shifted(TIGHT, 0.5), name="b")
    whole = prove_ends(good, bad, RULES)
    for seed in range(10):
        random.Random(seed).shuffle(good)
        random.Random(seed + 1).shuffle(bad)
        assert prove_ends(good, bad, RULES) == whole
    early = [run for run in good if run.seed_idx < 5], [run for run in bad if run.seed_idx < 5]
    assert prove_ends(*early, RULES).p_value == whole.p_value


def test_ends_without_any_spread_at_three_seeds_are_not_proved_yet() -> None:
    """An accuracy of 0.8, 0.8, 0.8 against 0.9, 0.9, 0.9 comes by chance in one null range of thirty."""
    good = [measured(GOOD, idx, 0.8, digest=f"g{idx}", repeat=rep) for idx, rep in ((0, 0), (0, 1), (1, 0), (2, 0))]
    bad = [measured(BAD, idx, 0.9, digest=f"b{idx}", repeat=rep) for idx, rep in ((0, 0), (0, 1), (1, 0), (2, 0))]
    assert prove_ends(good, bad, RULES).status is EndsStatus.OPEN


@pytest.mark.parametrize(
    ("gap", "declared", "status"),
    [
        (0.5, None, "unclear"),
        (0.005, None, "same"),
        (0.0, None, "same"),
        (-0.5, None, "better"),
        (0.5, 0.1, "separated"),
        (0.05, 0.1, "same"),
        (-0.5, 0.1, "better"),
    ],
)
def test_ends_with_inert_seeds_need_a_declared_smallest_effect(gap: float, declared: float | None, status: str) -> None:
    good = [measured(GOOD, idx, 1.0, digest="g", repeat=rep) for idx, rep in ((0, 0), (0, 1), (1, 0), (2, 0))]
    bad = [measured(BAD, idx, 1.0 + gap, digest="b", repeat=rep) for idx, rep in ((0, 0), (0, 1), (1, 0), (2, 0))]
    ends = prove_ends(good, bad, EndRules(LOSS, min_effect=declared))
    assert (ends.status.value, ends.are_seeds_inert) == (status, True)
    assert "--min-effect" in ends.reason


def test_ends_with_inert_seeds_and_no_smallest_effect_need_some_worsening() -> None:
    good = [measured(GOOD, idx, 1.0, digest="g", repeat=rep) for idx, rep in ((0, 0), (0, 1), (1, 0), (2, 0))]
    bad = [measured(BAD, idx, 1.0, digest="b", repeat=rep) for idx, rep in ((0, 0), (0, 1), (1, 0), (2, 0))]
    assert prove_ends(good, bad, EndRules(LOSS, min_effect=0.0)).status is EndsStatus.SAME
    assert prove_ends(good, bad, EndRules(LOSS, any_change=True)).criterion is Criterion.EXACT


def test_ends_of_which_one_has_inert_seeds_settle_without_asking_for_its_copies() -> None:
    runs: dict[bool, list[Observation]] = {False: [], True: []}
    for _ in range(40):
        ends = prove_ends(runs[False], runs[True], RULES)
        if ends.status is not EndsStatus.OPEN:
            break
        run = ends.wanted[0]
        digest = f"b{run.seed_idx}" if run.is_bad else "g"
        value = TIGHT[run.seed_idx] + 5.0 if run.is_bad else 0.0
        runs[run.is_bad].append(measured(BAD if run.is_bad else GOOD, run.seed_idx, value, digest=digest, repeat=run.repeat))
    assert ends.status is EndsStatus.SEPARATED
    assert len(runs[False]) == 4


def test_ends_by_criterion_exact_need_bits_that_repeat() -> None:
    rules = EndRules(LOSS, criterion=Criterion.EXACT)
    good, bad = end_runs(GOOD, TIGHT[:3], name="g"), end_runs(BAD, TIGHT[:3], name="b")
    assert prove_ends(good, bad, rules).criterion is Criterion.EXACT
    shaky = end_runs(BAD, TIGHT[:3], name="b", repeats=False)
    assert prove_ends(good, shaky, rules).status is EndsStatus.UNCLEAR


def test_ends_with_a_failure_that_comes_back_are_a_symptom() -> None:
    bad = [failed(BAD, idx) for idx in range(3)]
    assert prove_ends(end_runs(GOOD, TIGHT[:1]), bad, RULES).status is EndsStatus.OPEN
    ends = prove_ends(end_runs(GOOD, TIGHT[:3]), bad, RULES)
    assert (ends.status, ends.criterion, ends.signature) == (EndsStatus.SEPARATED, Criterion.SYMPTOM, "boom")


def coming_and_going(point: Point, num_failed: int, num_passed: int) -> list[Observation]:
    """Return runs on distinct seeds, the failing ones spread among them."""
    num = num_failed + num_passed
    failing = {idx * num // num_failed for idx in range(num_failed)}
    return [failed(point, idx) if idx in failing else measured(point, idx, 0.0) for idx in range(num)]


def test_ends_with_a_failure_of_another_kind_are_flaky() -> None:
    bad = [failed(BAD, 0), failed(BAD, 1, "another")]
    ends = prove_ends(end_runs(GOOD, TIGHT[:3]), bad, RULES)
    assert ends.status is EndsStatus.FLAKY and "another way on seed 1" in ends.reason


def test_ends_with_a_failure_that_comes_and_goes_are_compared_by_their_rates() -> None:
    good = [measured(GOOD, idx, 0.0) for idx in range(24)]
    few = prove_ends(good[:8], coming_and_going(BAD, 4, 4), RULES)
    assert few.status is EndsStatus.OPEN and few.wanted[0].seed_idx == 8
    ends = prove_ends(good, coming_and_going(BAD, 8, 8), RULES)
    assert (ends.status, ends.is_flaky, ends.bad_counts, ends.gap) == (EndsStatus.SEPARATED, True, (8, 8), 0.5)
    weak = prove_ends(good, coming_and_going(BAD, 4, 20), EndRules(LOSS, criterion=Criterion.SYMPTOM))
    assert weak.status is EndsStatus.FLAKY and "4 of 24" in weak.reason


def test_ends_where_the_good_end_fails_more_often_are_better() -> None:
    good = [measured(GOOD, 23, 0.0), *(failed(GOOD, idx) for idx in range(1, 23)), measured(GOOD, 0, 0.0)]
    assert prove_ends(good, coming_and_going(BAD, 2, 22), RULES).status is EndsStatus.BETTER


def test_ends_with_untestable_good_seeds_do_not_pass_as_never_failing() -> None:
    good = [measured(GOOD, 0, 0.0), untestable(GOOD, 1), untestable(GOOD, 2)]
    assert prove_ends(good, [failed(BAD, idx) for idx in range(3)], RULES).status is EndsStatus.GOOD_UNTESTABLE


def test_ends_by_criterion_symptom_without_a_failure_are_not_reproduced() -> None:
    rules = EndRules(LOSS, criterion=Criterion.SYMPTOM)
    values = shifted([0.0] * 8, 9.0)
    assert prove_ends(end_runs(GOOD, TIGHT[:3]), end_runs(BAD, values[:3]), rules).status is EndsStatus.OPEN
    ends = prove_ends(end_runs(GOOD, TIGHT[:3]), end_runs(BAD, values), rules)
    assert ends.status is EndsStatus.UNCLEAR and "31%" in ends.reason


def judged(point: Point, seed_idx: int, status: int) -> Observation:
    kind = OutcomeKind.FAILED if status else OutcomeKind.MEASURED
    return Observation(point, seed_idx, 0, 0, -1, Outcome(kind, signature="judged bad" if status else "", judge=status))


def test_ends_that_a_judge_calls_good_are_the_same_after_all_seeds_only() -> None:
    rules = EndRules(LOSS, has_judge=True)
    good = [judged(GOOD, 0, 0)]
    assert prove_ends(good, [judged(BAD, 0, 0)], rules).status is EndsStatus.OPEN
    assert prove_ends(good, [judged(BAD, idx, 0) for idx in range(3)], rules).status is EndsStatus.OPEN
    same = prove_ends(good, [judged(BAD, idx, 0) for idx in range(8)], rules)
    assert same.status is EndsStatus.SAME and "fewer than 31% of the runs" in same.reason


def test_ends_with_a_good_end_judged_bad_once_are_compared_by_their_rates() -> None:
    rules = EndRules(LOSS, has_judge=True)
    good = [judged(GOOD, idx, idx == 0) for idx in range(8)]
    assert prove_ends(good[:1], [judged(BAD, 0, 1)], rules).status is EndsStatus.OPEN
    ends = prove_ends(good, [judged(BAD, idx, 1) for idx in range(8)], rules)
    assert (ends.status, ends.good_counts, ends.bad_counts) == (EndsStatus.SEPARATED, (1, 7), (8, 0))
    always = [judged(GOOD, idx, 1) for idx in range(3)]
    assert prove_ends(always, [judged(BAD, 0, 1)], rules).status is EndsStatus.GOOD_UNTESTABLE


def test_ends_with_a_good_end_that_crashes_cannot_be_tested() -> None:
    assert prove_ends([failed(GOOD, 0)], [], RULES).status is EndsStatus.OPEN
    other = [measured(BAD, 0, 1.0)]
    assert prove_ends([failed(GOOD, 0)], other, RULES).status is EndsStatus.OPEN, "it may be an accident"
    assert prove_ends([failed(GOOD, 0), failed(GOOD, 1)], other, RULES).status is EndsStatus.GOOD_UNTESTABLE
    luckier = prove_ends([failed(GOOD, 0), measured(GOOD, 1, 0.0)], other, RULES)
    assert luckier.status is EndsStatus.OPEN and luckier.criterion is Criterion.STATISTICAL
    once = prove_ends([failed(GOOD, 0)], [failed(BAD, 0)], RULES)
    assert once.status is EndsStatus.OPEN and [run.seed_idx for run in once.wanted] == [1, 2]
    assert prove_ends([failed(GOOD, idx) for idx in range(3)], [failed(BAD, 0)], RULES).status is EndsStatus.GOOD_UNTESTABLE


def test_ends_with_a_bad_end_that_crashes_in_a_later_seed_ask_how_often() -> None:
    bad = [measured(BAD, 0, 5.0), failed(BAD, 1)]
    bad += [failed(BAD, 2)]
    ends = prove_ends(end_runs(GOOD, TIGHT[:3]), bad, RULES)
    assert (ends.status, ends.criterion) == (EndsStatus.OPEN, Criterion.SYMPTOM)
    by_value = EndRules(LOSS, criterion=Criterion.STATISTICAL)
    assert prove_ends(end_runs(GOOD, TIGHT[:3]), bad, by_value).status is EndsStatus.FLAKY


@pytest.mark.parametrize("broken", [0, 1])
def test_ends_leave_out_a_run_that_fails_by_accident(broken: int) -> None:
    """A hang or two do not hide that the values differ: other seeds take their place."""
    good: list[Observation] = []
    bad: list[Observation] = []
    while (ends := prove_ends(good, bad, RULES)).status is EndsStatus.OPEN:
        run = ends.wanted[0]
        value = 0.01 * run.seed_idx + (30.0 if run.is_bad else 0.0)
        if run.is_bad:
            is_broken = run.seed_idx == broken
            seen = failed(BAD, run.seed_idx, repeat=run.repeat) if is_broken else measured(BAD, run.seed_idx, value)
            bad.append(replace(seen, repeat=run.repeat))
        else:
            good.append(measured(GOOD, run.seed_idx, value, repeat=run.repeat))
    assert (ends.status, ends.criterion) == (EndsStatus.SEPARATED, Criterion.STATISTICAL), ends.reason
    assert ends.bad is not None and ends.bad.num >= 3


@pytest.mark.parametrize("any_change", [False, True])
def test_ends_of_null_ranges_separate_in_at_most_about_one_in_a_hundred(any_change: bool) -> None:
    rng, num = np.random.default_rng(5), 400
    num_separated = 0
    for good, bad in rng.standard_t(4, size=(num, 2, 20)):
        ends, _ = grow(good.__getitem__, bad.__getitem__, EndRules(LOSS, any_change=any_change))
        num_separated += ends.status is EndsStatus.SEPARATED and ends.criterion is Criterion.STATISTICAL
    assert num_separated <= 0.01 * num + 3 * (0.01 * num) ** 0.5


def test_ends_without_a_recorder_at_either_end_have_no_metric() -> None:
    unseen = Outcome(OutcomeKind.UNSEEN, reason="the recorder was not loaded")
    good, bad = (Observation(Point(k), 0, 0, 0, -1, unseen) for k in (0, 4))
    assert prove_ends([good], [], RULES).status is EndsStatus.OPEN
    both = prove_ends([good], [bad], RULES)
    assert both.status is EndsStatus.NO_METRIC and "recorder was not loaded" in both.reason
    seen = prove_ends([good], [measured(Point(4), 0, 1.0)], RULES)
    assert seen.status is EndsStatus.GOOD_UNTESTABLE
