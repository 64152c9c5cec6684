from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus, ProofRuns, examine_claim
from tests.support.observations import LOSS, failed, measured, separated_ends, untestable

GOOD, BAD, HEALTHY, SICK = Point(0), Point(9), Point(4), Point(5)
CLAIM = Claim(ClaimKind.PARENT, HEALTHY, SICK)
NO_BITS = replace(separated_ends(8.0), repeats_bitwise=False)


def examine(of_point: Mapping[Point, Sequence[Observation]], ends: Ends = NO_BITS, *, attempt: int = 1) -> ClaimResult:
    return examine_claim(CLAIM, ProofRuns(of_point, (GOOD, BAD), {}), ends, LOSS, attempt=attempt)


def runs_of(values: Mapping[Point, Sequence[float]]) -> dict[Point, list[Observation]]:
    return {
        point: [measured(point, 100 + idx, float(value), attempt=1) for idx, value in enumerate(of)]
        for point, of in values.items()
    }


def drawn(num: int, gap: float, seed: int = 0, *, sick_gap: float | None = None) -> dict[Point, list[Observation]]:
    rng = np.random.default_rng(seed)
    means = {GOOD: 0.0, BAD: gap, HEALTHY: 0.0, SICK: gap if sick_gap is None else sick_gap}
    return runs_of({point: rng.normal(mean, 1.0, size=num).tolist() for point, mean in means.items()})


def test_claim_without_runs_is_open_and_wants_one_seed() -> None:
    result = examine({})
    assert (result.status, result.num_seeds) == (ClaimStatus.OPEN, 1)


def test_claim_with_bits_of_both_ends_holds_after_one_seed() -> None:
    runs = {
        GOOD: [measured(GOOD, 100, 0.0, digest="x")],
        HEALTHY: [measured(HEALTHY, 100, 0.0, digest="x")],
        BAD: [measured(BAD, 100, 8.0, digest="y")],
        SICK: [measured(SICK, 100, 8.0, digest="y")],
    }
    result = examine(runs, separated_ends(8.0))
    assert (result.status, result.how, result.jump) == (ClaimStatus.HELD, "bitwise", 8.0)
    assert examine(runs, NO_BITS).status is ClaimStatus.OPEN


def test_claim_with_bits_but_a_jump_of_less_than_half_the_gap_is_open() -> None:
    runs = {
        point: [measured(point, 100, value, digest=digest)]
        for point, value, digest in ((GOOD, 0.0, "x"), (HEALTHY, 0.0, "x"), (BAD, 3.9, "y"), (SICK, 3.9, "y"))
    }
    assert examine(runs, separated_ends(8.0)).status is ClaimStatus.OPEN


def test_claim_with_other_bits_by_criterion_exact_fails() -> None:
    runs = {point: [measured(point, 100, 0.0, digest=point.to_text())] for point in (GOOD, HEALTHY, BAD, SICK)}
    assert examine(runs, separated_ends(criterion=Criterion.EXACT)).status is ClaimStatus.FAILED


def test_claim_looks_at_three_then_seven_then_ten_seeds() -> None:
    wants = [examine(drawn(num, 8.0, sick_gap=5.3)).num_seeds for num in (1, 3, 7)]
    assert wants == [3, 7, 10]


def test_claim_of_a_large_jump_holds_by_permutation_where_normality_is_not_shown() -> None:
    result = examine(drawn(7, 20.0), replace(NO_BITS, gap=20.0))
    assert (result.status, result.how) == (ClaimStatus.HELD, "permutation")
    assert result.p_value is not None and result.p_value <= 0.0025 / 4


def test_claim_of_a_large_jump_between_normal_groups_holds_by_t_after_three_seeds() -> None:
    runs = drawn(3, 20.0) | runs_of({Point(9, (), (4,)): [0.4, -0.3, 0.2], Point(0, (4,)): [20.5, 19.4, 20.2]})
    result = examine(runs, replace(NO_BITS, gap=20.0))
    assert (result.status, result.how) == (ClaimStatus.HELD, "t")


def test_claim_that_held_at_an_early_look_is_not_undone_by_later_runs() -> None:
    runs = drawn(7, 20.0)
    later = {point: [*of, *(measured(point, 107 + idx, 10.0) for idx in range(3))] for point, of in runs.items()}
    assert examine(later, replace(NO_BITS, gap=20.0)).status is ClaimStatus.HELD


def test_claim_whose_sick_side_is_not_worse_is_given_up_after_three_seeds() -> None:
    values = {GOOD: [0.0], BAD: [8.0], HEALTHY: [0.3, 0.1, 0.2], SICK: [0.2, 0.0, 0.1]}
    assert examine(runs_of(values)).status is ClaimStatus.FAILED


def test_claim_with_inert_seeds_needs_one_run_each() -> None:
    ends = replace(NO_BITS, are_seeds_inert=True)
    assert examine(runs_of({GOOD: [0.0], BAD: [8.0], HEALTHY: [0.1], SICK: [7.0]}), ends).status is ClaimStatus.HELD
    assert examine(runs_of({GOOD: [0.0], BAD: [8.0], HEALTHY: [0.1], SICK: [4.0]}), ends).status is ClaimStatus.FAILED


def test_claim_for_a_change_for_the_better_turns_the_sign() -> None:
    ends = replace(NO_BITS, gap=-20.0)
    runs = {point: [replace_value(run, -(run.outcome.value or 0.0)) for run in of] for point, of in drawn(7, 20.0).items()}
    result = examine(runs, ends)
    assert result.status is ClaimStatus.HELD
    assert result.jump is not None and result.jump < 0


def replace_value(run: Observation, value: float) -> Observation:
    return replace(run, outcome=replace(run.outcome, value=value))


@pytest.mark.parametrize("broken", [failed(SICK, 100), untestable(SICK, 100)])
def test_claim_with_a_broken_run_cannot_be_tested(broken: Observation) -> None:
    runs = drawn(3, 8.0)
    runs[SICK][0] = broken
    once = examine(runs)
    assert (once.status, once.num_seeds) == (ClaimStatus.OPEN, 4), "another seed takes the place of an accident"
    runs[SICK][1] = replace(broken, seed_idx=101)
    assert examine(runs).status is ClaimStatus.UNBUILDABLE


def test_claim_at_an_unbuildable_point_says_why() -> None:
    result = examine_claim(CLAIM, ProofRuns({}, (GOOD, BAD), {SICK: "conflict"}), NO_BITS, LOSS, attempt=1)
    assert (result.status, result.reason) == (ClaimStatus.UNBUILDABLE, "conflict")


def symptom_runs(num: int, *, sick_fails: bool = True) -> dict[Point, list[Observation]]:
    sick = [failed(SICK, 100 + idx) if sick_fails else measured(SICK, 100 + idx, 0.0) for idx in range(num)]
    healthy = [measured(HEALTHY, 100 + idx, 0.0) for idx in range(num)]
    return {GOOD: [measured(GOOD, 100, 0.0)], BAD: [failed(BAD, 100)], HEALTHY: healthy, SICK: sick}


def test_claim_of_a_symptom_holds_after_two_seeds_whatever_the_ends_have() -> None:
    ends = separated_ends(criterion=Criterion.SYMPTOM)
    assert examine(symptom_runs(1), ends).num_seeds == 2
    assert examine(symptom_runs(2), ends).status is ClaimStatus.HELD
    assert examine(symptom_runs(1, sick_fails=False), ends).status is ClaimStatus.FAILED


@pytest.mark.parametrize("num_seeds", [3, 10])
def test_claim_without_a_jump_over_half_the_gap_holds_as_rarely_as_promised(num_seeds: int) -> None:
    """The jump is exactly half the gap, the least that does not count; exponential noise, as far from normal as losses go."""
    rng, num = np.random.default_rng(7), 300
    means = {GOOD: 0.0, BAD: 4.0, HEALTHY: 0.0, SICK: 2.0, Point(9, (), (4,)): 0.0, Point(0, (4,)): 4.0}
    num_held = 0
    for _ in range(num):
        noise = rng.exponential(size=(6, num_seeds))
        runs = runs_of({point: (mean + row).tolist() for (point, mean), row in zip(means.items(), noise, strict=True)})
        num_held += examine(runs, replace(NO_BITS, gap=4.0)).status is ClaimStatus.HELD
    expected = num * 0.005 / 2
    assert num_held <= expected + 3 * expected**0.5
