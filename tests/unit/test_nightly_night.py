"""Nights in a simulated world: what is found, told once, closed, labelled; cut short anywhere, the next one goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bisect_train.core.errors import BisectTrainError, InputError, InterruptedByUser, MachineError, NotDelivered, PlaceDown
from bisect_train.nightly.finding import Finding, FindingKind, FindingState
from bisect_train.nightly.outbox import MAX_DOWN
from bisect_train.nightly.terms import Compared, Comparison, Role
from bisect_train.store.nightly_memory import MemoryNightlyLog
from tests.support.simulated_nights import WATCH, Commits, Killed, Nights, Place, Runs, World, idx_of, name_of

STEPS = {3: 6.0, 5: 0.0, 6: 3.0}


def story(idx: int) -> float:
    """Clean to 2, worse by 6 at 3, fixed at 5, worse by 3 on purpose at 6, then it creeps by 0.6 a commit from 8 on."""
    level = 0.0
    for at, new in STEPS.items():
        level = new if idx >= at else level
    return level + 0.6 * max(0, idx - 7)


def quiet(level_of: Any = story, **more: Any) -> Nights:
    return Nights(World(level_of, noise=0.2, **more), runs=Runs(World(), min_effect=1.0))


def test_story_of_a_branch_is_told_once_each() -> None:
    nights = quiet()
    nights.pinned = 0
    first = nights.night(0)
    assert first.exit_status == 0 and "first good" in first.summary
    assert nights.night(2).exit_status == 0 and nights.state.goods[-1] == name_of(2)
    assert nights.night(3).exit_status == 5 and nights.state.goods[-1] == name_of(2)
    assert nights.night(4).exit_status == 5
    assert nights.place.said() == [("open", "regression")]
    assert nights.night(5).exit_status == 0 and nights.state.goods[-1] == name_of(5)
    nights.expect(6, "a smaller model")
    assert nights.night(7).exit_status == 0 and nights.state.goods[-1] == name_of(7)
    assert nights.night(8).exit_status == 0
    assert nights.night(9).exit_status == 5
    assert nights.night(9).is_repeat and nights.night(9).exit_status == 5
    assert nights.place.said() == [
        ("open", "regression"),
        ("closed", "regression"),
        ("intended", "regression"),
        ("open", "drift"),
    ]
    regression, closed, intended, drift = nights.place.got
    assert regression.culprits[0].id == name_of(3) and regression.is_confirmed
    assert (closed.id, closed.revision, closed.fixed_by) == (regression.id, 2, name_of(5))
    assert "a smaller model" in intended.summary and intended.culprits[0].id == name_of(6)
    assert drift.good == name_of(6), "what is behind an intended change is compared with that, not with the pinned commit"
    assert nights.place.earlier[1] == {"how": "sent", "place": "1"}


def test_regression_that_is_still_there_is_not_searched_again() -> None:
    nights = quiet()
    for newest in (0, 2, 3):
        nights.night(newest)
    num = len(nights.runs.asked)
    assert nights.night(4).exit_status == 5
    still = nights.runs.asked[num:]
    assert still[0] == Comparison(Role.FIXED, name_of(2), name_of(4), nights.place.got[0].id, is_ends_only=True)
    assert [item.role for item in still] == [Role.FIXED, Role.SECOND]


def test_second_regression_behind_an_open_one_is_found() -> None:
    nights = quiet(lambda idx: 6.0 * (idx >= 3) + 6.0 * (idx >= 5) - 12.0 * (idx >= 8))
    for newest in (0, 2, 4):
        nights.night(newest)
    assert nights.night(6).exit_status == 5
    assert [finding.culprits[0].id for finding in nights.place.got] == [name_of(3), name_of(5)]
    assert nights.night(7).exit_status == 5 and len(nights.place.got) == 2
    assert nights.night(8).exit_status == 0
    assert [finding.state.value for finding in nights.place.got[2:]] == ["closed", "closed"]
    assert nights.state.goods[-1] == name_of(8)


@pytest.mark.parametrize("can_prove", [True, False])
def test_second_regression_is_not_closed_since_the_first_one_is_fixed(can_prove: bool) -> None:
    nights = quiet(lambda idx: 20.0 * (3 <= idx < 8) + 10.0 * (6 <= idx < 10))
    nights.runs.can_prove = can_prove
    for newest in (2, 4, 6, 8, 9):
        nights.night(newest)
    assert nights.place.said() == [("open", "regression")] * 2, "which of the two is gone cannot be seen"
    assert nights.state.night is not None and nights.state.night.exit_status == 5
    assert nights.night(10).exit_status == 0
    assert nights.place.said()[2:] == [("closed", "regression")] * 2
    assert nights.state.goods[-1] == name_of(10)


def test_older_regression_is_closed_though_one_behind_it_is_open() -> None:
    nights = quiet(lambda idx: 20.0 * (3 <= idx < 8) + 6.0 * (idx >= 6) - 6.0 * (idx >= 8))
    for newest in (2, 4, 6):
        nights.night(newest)
    assert nights.night(8).exit_status == 0
    assert [(item.state.value, item.culprits[0].id) for item in nights.place.got[2:]] == [
        ("closed", name_of(3)),
        ("closed", name_of(6)),
    ]


def test_same_commit_again_runs_nothing_and_gives_the_stored_status() -> None:
    nights = quiet()
    nights.night(0)
    nights.night(3)
    num = len(nights.runs.answered)
    again = nights.night(3)
    assert again.is_repeat and again.exit_status == 5 and again.summary and len(nights.runs.answered) == num
    assert not nights.night(3, asked="other steps").is_repeat
    assert not nights.night(3, asked="other steps", is_forced=True).is_repeat
    assert len(nights.place.got) == 1


def test_what_cannot_be_tested_is_said_once_and_tried_again() -> None:
    nights = quiet(lambda idx: 0.0, is_broken=lambda idx: 2 <= idx <= 3)
    nights.night(0)
    assert nights.night(2).exit_status == 1
    assert nights.night(2).exit_status == 1 and not nights.night(2).is_repeat
    assert nights.night(3).exit_status == 1
    assert nights.place.said() == [("open", "untestable")] and nights.state.goods[-1] == name_of(0)
    assert nights.night(4).exit_status == 0
    assert nights.place.said() == [("open", "untestable"), ("closed", "untestable")]


def test_what_cannot_be_told_moves_nothing_and_is_not_announced() -> None:
    nights = Nights(World(lambda idx: 0.7 * (idx >= 2), noise=1.0, seed=3), runs=Runs(World(), min_effect=0.5))
    nights.night(0)
    assert nights.night(2).exit_status == 3
    assert nights.state.goods[-1] == name_of(0) and not nights.place.got


def test_finding_without_a_proof_is_updated_once_it_is_proved() -> None:
    nights = quiet()
    nights.runs.can_prove = False
    nights.night(0)
    nights.night(3)
    assert not nights.place.got[0].is_confirmed and nights.place.got[0].culprits == ()
    nights.runs.can_prove = True
    nights.night(4)
    nights.night(4)
    assert nights.place.said() == [("open", "regression"), ("updated", "regression")]
    newest = nights.place.got[-1]
    assert newest.state is FindingState.UPDATED and newest.culprits[0].id == name_of(3) and newest.revision == 2


def test_person_says_which_change_was_meant_where_none_is_proved() -> None:
    nights = quiet()
    nights.runs.can_prove = False
    nights.night(0)
    nights.night(4)
    nights.expect(3, "new loss")
    assert nights.night(4).exit_status == 0
    assert nights.place.got[-1].state is FindingState.INTENDED and nights.state.goods[-1] == name_of(4)


def test_intended_change_does_not_excuse_another_one() -> None:
    nights = quiet(lambda idx: 6.0 * (idx >= 3) + 6.0 * (idx >= 5))
    nights.expect(5)
    nights.night(0)
    assert nights.night(4).exit_status == 5
    assert nights.night(6).exit_status == 5
    assert [(item.state.value, item.culprits[0].id) for item in nights.place.got] == [
        ("open", name_of(3)),
        ("intended", name_of(5)),
    ]


def intended_one_behind(*, can_prove: bool = True, until: int = 7, at: int = 8) -> Nights:
    """A regression at 3 that is fixed at `until`, and an intended change that is there from `at` on."""
    nights = quiet(lambda idx: 20.0 * (3 <= idx < until) + 10.0 * (idx >= at))
    nights.expect(at, "a smaller model")
    for newest in (2, 4, 6):
        nights.night(newest)
    nights.runs.can_prove = can_prove
    return nights


def test_regression_is_closed_where_what_is_left_is_an_intended_change() -> None:
    nights = intended_one_behind()
    assert nights.night(8).exit_status == 0
    assert nights.runs.asked[-1] == Comparison(Role.FIXED, name_of(2), name_of(8), nights.place.got[0].id)
    assert nights.place.said() == [("open", "regression"), ("closed", "regression")]
    assert "what is left is 00000008, an intended change" in nights.place.got[1].summary
    assert nights.state.goods[-1] == name_of(8) and nights.night(9).exit_status == 0


def test_what_is_left_and_not_proved_to_be_the_intended_change_is_unclear() -> None:
    nights = intended_one_behind(can_prove=False, at=5)
    found = nights.night(8)
    assert found.exit_status == 3 and "can be the change that was intended" in found.summary
    assert nights.place.said()[0] == ("open", "regression") and "closed" not in dict(nights.place.said())
    assert nights.state.goods[-1] == name_of(2)


def test_intended_change_behind_a_regression_that_is_still_there_starts_no_search() -> None:
    nights = intended_one_behind(until=100)
    assert nights.night(8).exit_status == 5
    assert [item.role for item in nights.runs.asked if item.bad == name_of(8) and not item.is_ends_only] == [Role.SECOND]


def test_failure_that_gives_way_to_a_worse_metric_is_over_and_the_metric_is_another_finding() -> None:
    nights = quiet(lambda idx: 50.0 * (idx == 3 or idx == 4) + 6.0 * (idx >= 5))
    nights.runs.report_of = lambda comparison: {
        "kind_of_change": "crash" if name_of(3) <= comparison.bad < name_of(5) else "worse"
    }
    for newest in (0, 2, 4):
        nights.night(newest)
    assert nights.runs.asked[-1].role is Role.NEWEST, "a program that fails hides what comes behind it"
    assert nights.night(6).exit_status == 5
    assert nights.place.said() == [("open", "regression"), ("closed", "regression"), ("open", "regression")]
    assert "the crash is gone" in nights.place.got[1].summary.lower() and nights.state.goods[-1] == name_of(2)
    assert nights.place.got[2].culprits[0].id == name_of(3), "the last step over half of the gap"


def test_branch_that_was_rewritten_is_compared_with_the_newest_good_commit_that_it_has() -> None:
    nights = quiet(lambda idx: 0.0)
    for newest in (0, 2, 5):
        nights.night(newest)
    nights.night(3)
    assert nights.runs.asked[-1] == Comparison(Role.NEWEST, name_of(2), name_of(3))


class Rewritten(Commits):
    """A branch that was pushed anew: commits from number 100 on share nothing with those before."""

    def is_ancestor(self, commit: str, of: str) -> bool:
        return super().is_ancestor(commit, of) and (idx_of(commit) >= 100) == (idx_of(of) >= 100)


def test_branch_that_has_no_good_commit_any_more_takes_none_unseen() -> None:
    nights = quiet(lambda idx: 6.0 * (idx >= 101))
    nights.history = Rewritten()
    for newest in (0, 2):
        nights.night(newest)
    num = len(nights.runs.answered)
    for is_forced in (False, False, True):
        with pytest.raises(InputError, match="none of the good commits of this watch lies behind main at 00000065") as caught:
            nights.night(101, is_forced=is_forced)
        assert caught.value.exit_status == 2 and "--good REV" in caught.value.hint and "--unshallow" in caught.value.hint
    assert nights.state.goods == (name_of(0), name_of(2)) and len(nights.runs.answered) == num and not nights.place.got
    with pytest.raises(InputError, match="does not lie behind main"):
        nights.night(101, first_good=name_of(1))
    assert nights.night(101, first_good=name_of(100)).exit_status == 5
    assert nights.place.got[0].culprits[0].id == name_of(101) and nights.state.goods[-1] == name_of(100)


def test_named_good_commit_counts_only_where_none_is_known() -> None:
    nights = quiet()
    nights.night(2)
    assert nights.night(3, first_good=name_of(3)).exit_status == 5 and nights.state.goods == (name_of(2),)


def test_first_good_commit_can_be_named() -> None:
    nights = quiet()
    assert nights.night(3, first_good=name_of(1)).exit_status == 5
    assert nights.place.got[0].culprits[0].id == name_of(3)


def test_slow_drift_is_seen_in_the_history_without_a_pinned_commit() -> None:
    nights = Nights(World(lambda idx: 0.12 * idx, noise=0.5, seed=5), runs=Runs(World(), min_effect=1.0))
    statuses = [nights.night(idx, first_good=name_of(0)).exit_status for idx in range(1, 40)]
    drifts = [finding for finding in nights.place.got if finding.kind is FindingKind.DRIFT]
    assert drifts and drifts[0].state is FindingState.OPEN
    assert len({finding.id for finding in drifts}) == 1
    first = next(idx for idx, status in enumerate(statuses) if status in (3, 5) and nights.state.nights[idx].findings)
    assert 5 < first < 35


def test_drift_that_is_mended_is_closed_and_the_history_begins_anew() -> None:
    nights = Nights(World(lambda idx: 0.5 * idx * (idx < 12), noise=0.5, seed=2), runs=Runs(World(), min_effect=2.0))
    nights.pinned = 0
    for idx in range(12):
        nights.night(idx, first_good=name_of(0))
    assert nights.place.said()[-1] == ("open", "drift")
    assert nights.night(13).exit_status == 0
    assert nights.place.said()[-1] == ("closed", "drift")
    assert len(nights.state.levels()) == 1


# ---- who is told ------------------------------------------------------------------------------------------------------


def test_place_that_is_down_is_told_the_next_night() -> None:
    nights = quiet()
    nights.place.fails = True
    nights.night(0)
    report = nights.night(3)
    assert report.exit_status == 5 and len(report.problems) == 1 and "the place was not told" in report.problems[0]
    nights.place.fails = False
    nights.night(3)
    assert nights.place.said() == [("open", "regression")]


class Picky(Place):
    """A place that never takes what blames commit 3, and says why, or fails over it."""

    error: type[NotDelivered] = NotDelivered
    num_refused = 0

    def tell(self, finding: Finding, *, earlier: dict[str, Any] | None) -> dict[str, Any]:
        if finding.culprits and finding.culprits[0].id == name_of(3):
            self.num_refused += 1
            raise self.error("GitHub answered 422, No commit found for SHA")
        return super().tell(finding, earlier=earlier)


@pytest.mark.parametrize("error", [NotDelivered, PlaceDown])
def test_telling_that_is_never_taken_holds_up_no_other_one(error: type[NotDelivered]) -> None:
    nights = quiet(lambda idx: 6.0 * (3 <= idx < 5) + 6.0 * (7 <= idx < 9))
    nights.place = place = Picky()
    place.error = error
    for newest in (2, 4, 5):
        nights.night(newest)
    found = nights.night(8)
    assert found.exit_status == 5 and len(found.problems) == 1 and "422" in found.problems[0]
    assert [(item.state.value, item.culprits[0].id) for item in place.got] == [("open", name_of(7))]
    assert place.num_refused == 4, "each telling once a night: two on the night that closes it"
    nights.night(9)
    assert [item.state.value for item in place.got] == ["open", "closed"]


class Down(Place):
    """A place that cannot be reached."""

    num_tried = 0

    def tell(self, finding: Finding, *, earlier: dict[str, Any] | None) -> dict[str, Any]:
        self.num_tried += 1
        raise PlaceDown("cannot be reached")


def test_place_that_is_down_is_left_alone_for_the_night() -> None:
    nights = quiet(lambda idx: 6.0 * sum(idx >= at for at in (3, 5, 7, 9)))
    for newest in (2, 4, 6, 8, 10):
        nights.night(newest)
    assert len(nights.place.got) == 4
    nights.place = place = Down("other")
    assert len(nights.night(10).problems) == place.num_tried == MAX_DOWN


def test_new_place_hears_of_what_is_open_and_not_of_what_is_over() -> None:
    nights = quiet()
    for newest in (0, 2, 3, 5):
        nights.night(newest)
    nights.place = Place("other")
    nights.night(5)
    assert nights.place.got == []
    late = quiet()
    for newest in (0, 3):
        late.night(newest)
    late.place = Place("other")
    late.night(3)
    assert late.place.said() == [("open", "regression")]


# ---- cut short --------------------------------------------------------------------------------------------------------


class Mortal(MemoryNightlyLog):
    """A log whose process dies before or after the n-th writing."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 0.0)
        self.num_left: int | None = None
        self.is_after = False

    def append(self, name: str, events: Any) -> int:
        if self.num_left is None:
            return super().append(name, events)
        self.num_left -= 1
        if self.num_left == 0 and not self.is_after:
            raise Killed
        done = super().append(name, events)
        if self.num_left == 0:
            raise Killed
        return done


@contextmanager
def killed_at(log: Mortal, num: int, *, is_after: bool) -> Iterator[None]:
    log.num_left, log.is_after = num, is_after
    try:
        yield
    finally:
        log.num_left = None


SEVEN = (0, 2, 3, 4, 5, 7, 9)


def play(*, kill_night: int = -1, num: int = 0, is_after: bool = False) -> tuple[Nights, bool]:
    """Play the seven nights, one of them killed at a writing and started again; return whether it was."""
    nights = Nights(World(story, noise=0.2), log=Mortal(), runs=Runs(World(), min_effect=1.0))
    nights.pinned = 0
    was_killed = False
    for idx, newest in enumerate(SEVEN):
        if idx == 5:
            nights.expect(6)
        if idx == kill_night:
            assert isinstance(nights.log, Mortal)
            try:
                with killed_at(nights.log, num, is_after=is_after):
                    nights.night(newest)
            except Killed:
                was_killed = True
        nights.night(newest)
    return nights, was_killed


def essence(nights: Nights) -> Any:
    state = nights.state
    findings = [(kept.finding.id, kept.finding.revision, kept.finding.state) for kept in state.findings.values()]
    return findings, state.goods[-1], state.night and state.night.exit_status, nights.place.said()


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kill_night", range(7))
def test_night_killed_at_any_writing_gives_the_same_findings_told_once(kill_night: int, is_after: bool) -> None:
    undisturbed, _ = play()
    for num in range(1, 100):
        nights, was_killed = play(kill_night=kill_night, num=num, is_after=is_after)
        assert essence(nights) == essence(undisturbed), (kill_night, num)
        keys = [finding.key for finding in nights.place.got]
        assert len(keys) - len(set(keys)) <= (1 if not is_after else 0), "at most the one that died before it was noted"
        if not was_killed:
            return
    raise AssertionError("a night never ended")


def test_unfinished_bisection_is_gone_on_with_first_even_if_the_branch_has_moved() -> None:
    nights = quiet()
    nights.night(0)
    real = nights.runs.answer

    def stopped(comparison: Comparison, bisection: str) -> Compared:
        raise InterruptedByUser("interrupted")

    nights.runs.answer = stopped  # type: ignore[method-assign]
    with pytest.raises(InterruptedByUser):
        nights.night(2)
    nights.runs.answer = real  # type: ignore[method-assign]
    assert nights.night(3).exit_status == 5
    assert nights.runs.asked[0].bad == name_of(2) and nights.runs.answered[0] == "00000000"
    assert nights.state.findings and next(iter(nights.state.findings.values())).finding.good == name_of(2)


def test_bisection_that_cannot_be_gone_on_with_is_asked_anew() -> None:
    nights = quiet()
    nights.night(0)
    real, num_calls = nights.runs.answer, 0

    def broken(comparison: Comparison, bisection: str) -> Compared:
        nonlocal num_calls
        num_calls += 1
        if num_calls <= 2:
            raise MachineError("linked data changed")
        return real(comparison, bisection)

    nights.runs.answer = broken  # type: ignore[method-assign]
    with pytest.raises(BisectTrainError):
        nights.night(3)
    assert nights.night(3).exit_status == 5
    assert "abandoned" in [event.kind for event in nights.log.events(WATCH)]
