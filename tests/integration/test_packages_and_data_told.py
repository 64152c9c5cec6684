"""How packages and data are told to a person: titles, and the answer where the bad end looks better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.changes.axes import DataAxis
from bisect_train.changes.package_axis import ReleaseAxis
from bisect_train.core.changes import DataLink
from bisect_train.core.question import DataEnd, EndState
from bisect_train.report.words import name_change
from tests.scenarios.library.five_packages import MASK_PADDING, PACKAGE_THEN_COMMIT
from tests.scenarios.library.replay import replay


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("/data/sets/v3", "/data/sets/v4", "v3 -> v4"),
        ("/data/v3/train", "/data/v4/train", "v3/train -> v4/train"),
        ("/old/set", "/new/set", "/old/set -> /new/set"),
        ("/data/set", "/data/set/more", "/data/set -> /data/set/more"),
    ],
)
def test_data_are_told_without_the_folders_that_both_lie_in(good: str, bad: str, told: str) -> None:
    ends = [EndState(data=(DataEnd(DataLink(source, "corpus"), source),)) for source in (good, bad)]
    assert DataAxis(*ends).changes[0].title == f"corpus: {told}"


def test_release_is_named_once() -> None:
    changes = ReleaseAxis("toyopt", ("1.0", "1.1", "2.0")).changes
    assert [name_change(change) for change in changes] == ["package toyopt 1.1 (1.0 -> 1.1)", "package toyopt 2.0 (1.1 -> 2.0)"]


def test_lower_loss_is_no_regression_and_the_option_that_looks_for_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tuple(option for option in PACKAGE_THEN_COMMIT.options if option != "--any-change")
    _, status, report = replay(replace(PACKAGE_THEN_COMMIT, options=asked), tmp_path)
    assert (status, report["status"]) == (4, "no_regression")
    assert "`--any-change` finds the change that does it" in _said(capsys)


def test_commit_of_a_package_is_told_with_its_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, report = replay(PACKAGE_THEN_COMMIT, tmp_path)
    assert f'"{MASK_PADDING.subject}"' in report["summary"]
    assert "in the repository of minitrainer." in _said(capsys)


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())
