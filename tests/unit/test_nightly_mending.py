"""A fixed regression behind an intended change: closed by what the branch is meant to be, and by nothing less."""

from __future__ import annotations

from typing import Any

import pytest

from bisect_train.nightly.finding import FindingKind
from bisect_train.nightly.terms import Comparison, Role
from tests.support.simulated_nights import Nights, Runs, World, name_of


def nights_of(level_of: Any, *, expected: tuple[int, ...] = (5,), **more: Any) -> Nights:
    runs = Runs(World(), min_effect=1.0, can_put_on_top=True)
    nights = Nights(World(level_of, noise=0.2, **more), runs=runs)
    for idx in expected:
        nights.expect(idx, "a smaller model")
    return nights


def found_at_3(until: int) -> Any:
    """Worse by 20 from 3 until it is fixed; an intended change at 5 is worse by 10."""
    return lambda idx: 20.0 * (3 <= idx < until) + 10.0 * (idx >= 5)


@pytest.mark.parametrize("first_after", [6, 8])
def test_regression_that_was_fixed_is_closed_though_an_intended_change_came_before_its_fix(first_after: int) -> None:
    nights = nights_of(found_at_3(7))
    for newest in sorted({2, 4, first_after}):  # on 8 the intended change and the fix are new in one night
        nights.night(newest)
    found = nights.night(8)
    assert found.exit_status == 0
    closed = next(item for item in nights.place.got if item.state.value == "closed")
    assert (closed.culprits[0].id, closed.fixed_by) == (name_of(3), name_of(8))
    assert "00000002 with the intended change 00000005 on top is no better" in closed.summary
    assert nights.state.goods[-1] == name_of(8) and not nights.state.open(FindingKind.REGRESSION)
    assert nights.night(9).exit_status == 0


def test_intended_change_that_is_worse_than_the_regression_was_is_no_reason_to_keep_it_open() -> None:
    nights = nights_of(lambda idx: 6.0 * (3 <= idx < 5) + 10.0 * (idx >= 6), expected=(6,))
    for newest in (2, 4):
        nights.night(newest)
    assert nights.night(7).exit_status == 0 and not nights.state.open(FindingKind.REGRESSION)


def test_regression_that_is_still_there_beside_an_intended_change_stays_open() -> None:
    nights = nights_of(found_at_3(100))
    for newest in (2, 4, 6, 7):
        assert nights.night(newest).exit_status == (0 if newest == 2 else 5)
    assert [kept.finding.culprits[0].id for kept in nights.state.open(FindingKind.REGRESSION)] == [name_of(3)]
    assert nights.state.goods[-1] == name_of(2)
    measures = [item for item in nights.runs.asked if item.role is Role.MEASURE]
    finding = nights.place.got[0].id
    meant = (name_of(5),)
    assert measures == [Comparison(Role.MEASURE, name_of(2), name_of(3), finding, is_ends_only=True, meant=meant)], "asked once"


def test_half_of_a_fix_closes_nothing() -> None:
    nights = nights_of(lambda idx: 20.0 * (3 <= idx < 7) + 10.0 * (idx >= 5) + 5.0 * (idx >= 7))
    for newest in (2, 4, 6):
        nights.night(newest)
    assert nights.night(8).exit_status == 5 and nights.state.open(FindingKind.REGRESSION)


def test_state_that_shows_nothing_of_the_finding_closes_nothing() -> None:
    """Where the intended change does not work on top of the commit before the finding, all is worse than it should be."""
    nights = nights_of(found_at_3(100), on_top=lambda idx, changes: 80.0)
    for newest in (2, 4, 6, 8):
        nights.night(newest)
    assert [kept.finding.culprits[0].id for kept in nights.state.open(FindingKind.REGRESSION)] == [name_of(3)]
    assert not any(item.meant for item in nights.runs.asked if item.role is Role.FIXED)


def test_state_that_cannot_be_built_is_asked_for_once_a_night_and_leaves_the_search() -> None:
    nights = nights_of(lambda idx: 20.0 * (3 <= idx < 7) + 10.0 * (idx >= 8), expected=(8,))
    nights.runs.can_put_on_top = False
    for newest in (2, 4, 6):
        nights.night(newest)
    assert nights.night(8).exit_status == 0
    assert nights.runs.asked[-1] == Comparison(Role.FIXED, name_of(2), name_of(8), nights.place.got[0].id)


def test_several_intended_changes_are_put_on_top_in_their_order() -> None:
    nights = nights_of(lambda idx: 20.0 * (3 <= idx < 8) + 4.0 * (idx >= 5) + 4.0 * (idx >= 6), expected=(6, 1, 5, 50))
    for newest in (2, 4):
        nights.night(newest)
    assert nights.night(9).exit_status == 0
    measure = next(item for item in nights.runs.asked if item.role is Role.MEASURE)
    assert measure.meant == (name_of(5), name_of(6)), "not what lies before the finding, or is not on the branch"


def test_two_open_findings_are_closed_when_both_are_gone_and_not_before() -> None:
    nights = nights_of(lambda idx: 20.0 * (3 <= idx < 8) + 40.0 * (4 <= idx < 10) + 10.0 * (idx >= 6), expected=(6,))
    for newest in (2, 3, 5, 7):
        nights.night(newest)
    assert len(nights.state.open(FindingKind.REGRESSION)) == 2
    assert nights.night(9).exit_status == 5
    assert len(nights.state.open(FindingKind.REGRESSION)) == 2, "which of the two is gone cannot be seen"
    assert nights.night(11).exit_status == 0 and not nights.state.open(FindingKind.REGRESSION)
    assert nights.state.goods[-1] == name_of(11)


def test_nights_before_the_intended_change_are_no_drift_afterwards() -> None:
    nights = nights_of(lambda idx: 20.0 * (3 <= idx < 8) + 10.0 * (idx >= 5))
    for newest in (0, 1, 2, 4, 9):
        nights.night(newest)
    for newest in range(10, 22):
        assert nights.night(newest).exit_status == 0
    assert not nights.state.open(FindingKind.DRIFT) and nights.place.said()[-1] == ("closed", "regression")
