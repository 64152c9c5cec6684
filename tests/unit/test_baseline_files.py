"""Baselines as files: what is written is read back; what is broken is told with file and key; names leave no folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.baseline import Baseline, Intended, Saved, list_baselines, path_of, read_baseline, write_baseline
from bisect_train.baseline.values import mean_and_sd
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.golden import Golden, GoldenRun

COMMIT, OTHER = "a" * 40, "b" * 40


def golden(*, hardware: str = "cpu", value: float = 2.5, rung: str = "50 steps x 1 rank") -> Golden:
    runs = (GoldenRun(0, value, "d1"), GoldenRun(1, value + 0.125, "d2"))
    return Golden("main", "variant", rung, "measure", hardware, "py", "4", True, runs)


def baseline() -> Baseline:
    return Baseline(
        "main", Saved(COMMIT, "2026-11-30T00:00:00Z", "first"), ("python", "train.py"), ("loss", "tail"), (golden(),)
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    full = (
        baseline()
        .with_platform(golden(hardware="gpu"))
        .renewed(Saved(OTHER, "2026-12-01T00:00:00Z", "schedule"), golden(value=3.0), [Intended(OTHER, "schedule")])
    )
    path = write_baseline(tmp_path, full)
    assert read_baseline(tmp_path, "main") == full
    assert list_baselines(tmp_path) == ["main"]
    assert not list(path.parent.glob("*.new"))
    assert str(tmp_path) not in path.read_text()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_values_survive_to_the_last_bit(values: list[float]) -> None:
    import tempfile

    runs = tuple(GoldenRun(idx, value) for idx, value in enumerate(values))
    with tempfile.TemporaryDirectory() as folder:
        write_baseline(Path(folder), replace(baseline(), golden=(replace(golden(), runs=runs),)))
        assert read_baseline(Path(folder), "main").golden[0].runs == runs


def test_another_platform_stands_beside_and_the_same_one_is_replaced() -> None:
    two = baseline().with_platform(golden(hardware="gpu"))
    assert [item.hardware_class for item in two.golden] == ["cpu", "gpu"]
    again = two.with_platform(golden(hardware="cpu", value=9.0))
    assert {item.hardware_class: item.runs[0].value for item in again.golden} == {"gpu": 2.5, "cpu": 9.0}
    assert len(again.with_platform(golden(rung="200 steps x 1 rank")).golden) == 3


def test_renewal_keeps_the_history_and_adds_an_intended_change_once() -> None:
    renewed = baseline().renewed(Saved(OTHER, "later"), golden(), [Intended(OTHER, "x")])
    assert renewed.history == (baseline().saved,)
    assert renewed.renewed(Saved(COMMIT, "last"), golden(), [Intended(OTHER, "y")]).intended == (Intended(OTHER, "x"),)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", "a b", "x" * 200, "a\n", "ü"])
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no name of a baseline"):
        path_of(tmp_path, name)


def test_a_baseline_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    write_baseline(tmp_path, baseline())
    with pytest.raises(InputError, match="no baseline 'other'") as caught:
        read_baseline(tmp_path, "other")
    assert "main" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema: 1", "schema: 2", "schema"),
        (COMMIT, "zzz", "saved.commit"),
        ("value: 2.5", "value: .nan", "platforms.0.runs.0.value"),
        ("value: 2.5", "value: [1]", "platforms.0.runs.0.value"),
        ("seed: 0", "seed: -1", "platforms.0.runs.0.seed"),
        ("schema: 1", "schema: 1\nmore: 2", "more"),
        ("schema: 1", "schema: [", "cannot be read"),
        ("schema: 1", "!!python/object/apply:os.system ['true']", "cannot be read"),
    ],
)
def test_a_broken_file_is_told_with_file_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write_baseline(tmp_path, baseline())
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        read_baseline(tmp_path, "main")
    assert str(path) in caught.value.message and said in caught.value.message


def test_a_folder_that_cannot_be_written_is_an_error_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / ".bisect-train").write_text("in the way")
    with pytest.raises(MachineError, match="cannot write"):
        write_baseline(tmp_path, baseline())


def test_mean_and_sd() -> None:
    assert mean_and_sd([2.0]) == (2.0, 0.0)
    assert mean_and_sd([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
