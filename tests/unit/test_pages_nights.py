"""The nightly log as the page shows it: a state for each night, by what was found, mended, meant or left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bisect_train.nightly.state import read_state
from bisect_train.service.pages.contract import WatchedBranch
from bisect_train.service.pages.nightly_view import make_branch
from bisect_train.service.pages.watched import Branches, read_branch
from bisect_train.store.nightly_memory import MemoryNightlyLog
from tests.support.git_repos import UserRepo
from tests.support.simulated_nights import WATCH, Nights, Runs, World, name_of

NOWHERE = Path("/nowhere")


def _nights(level_of: Any, **more: Any) -> Nights:
    return Nights(World(level_of, noise=0.2, **more), runs=Runs(World(), min_effect=1.0))


def _branch(nights: Nights) -> WatchedBranch:
    (branch,) = Branches(nights.log, home=NOWHERE)()
    return branch


def test_nights_are_clean_bad_fixed_and_intended_in_turn() -> None:
    nights = _nights(lambda idx: 6.0 * (3 <= idx < 5) + 3.0 * (idx >= 6))
    for newest in (0, 2, 3, 4, 5):
        nights.night(newest)
    nights.expect(6, "a smaller model")
    nights.night(7)
    branch = _branch(nights)
    assert [night.state for night in branch.nights] == ["clean", "clean", "regression", "regression", "fixed", "intended"]
    assert [night.commit for night in branch.nights][:3] == [name_of(0), name_of(2), name_of(3)]
    assert (branch.metric, branch.better, branch.last_good) == ("loss", "lower", name_of(7))
    assert branch.open_findings == ()
    levels = [night.mean for night in branch.nights]
    assert all(value is not None for value in levels)
    assert levels[2] > levels[1] + 5.0  # type: ignore[operator]
    assert all(night.num >= 3 and night.sd is not None and night.said for night in branch.nights)
    assert branch.nights[2].bisection_id


def test_open_findings_are_named_and_an_untestable_night_has_no_value() -> None:
    nights = _nights(lambda idx: 6.0 * (idx >= 4), is_broken=lambda idx: idx == 2)
    for newest in (0, 2, 3, 4):
        nights.night(newest)
    branch = _branch(nights)
    assert [night.state for night in branch.nights] == ["clean", "untestable", "fixed", "regression"]
    assert branch.nights[1].mean is None
    assert len(branch.open_findings) == 1
    view = make_branch(branch, 0)
    assert (view.rows[2].state, view.rows[2].value) == ("cannot be tested", "-")


def test_night_that_cannot_tell_and_one_that_was_cut_short_say_so() -> None:
    nights = Nights(World(lambda idx: 0.7 * (idx >= 2), noise=1.0, seed=3), runs=Runs(World(), min_effect=0.5))
    nights.night(0)
    nights.night(2)
    nights.log.append(WATCH, [("begun", {"night": 3, "commit": name_of(3), "asked": "x", "pinned": ""})])
    assert [night.state for night in _branch(nights).nights] == ["clean", "unclear", "unfinished"]
    assert [row.state for row in make_branch(_branch(nights), 0).rows][:2] == ["not finished", "cannot tell"]


def test_subjects_are_read_from_the_repository_where_it_is_there(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commit = repo.commit({"a": "1"}, message="use <b>the fast path")
    log = MemoryNightlyLog(clock=lambda: 0.0)
    watch = log.open("nano", {"root": str(repo.path), "branch": "main"})
    begun = {"asked": "x", "pinned": ""}
    log.append(
        "nano", [("begun", {"night": 1, "commit": commit, **begun}), ("begun", {"night": 2, "commit": "f" * 40, **begun})]
    )
    branch = read_branch(watch, read_state(log.events("nano")), home=tmp_path / "home")
    assert [night.subject for night in branch.nights] == ["use <b>the fast path", ""]
    assert (branch.branch, branch.repo) == ("main", str(repo.path))


def test_branches_are_read_anew_only_after_a_while(tmp_path: Path) -> None:
    log = MemoryNightlyLog(clock=lambda: 0.0)
    branches = Branches(log, home=tmp_path)
    assert branches() == ()
    log.open("nano", {})
    assert branches() == (), "what was read a moment ago is fresh enough"
