"""What is said of two profiles: what grew, and the shares of a step."""

from __future__ import annotations

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, RankRecord, StepRecord
from bisect_train.report.profile import read_profile, say_profiles

STOPPED = Ending(EndingKind.STOPPED)
Row = tuple[str, float, float, int, int]


def profiled(*rows: Row, wall_s: float = 0.1, data_s: float | None = 0.001, num_steps: int = 10) -> Fingerprint:
    """Return a run of 13 steps whose last `num_steps` were profiled; rows are (name, CPU s, device s, calls, bytes kept)."""
    steps = tuple(StepRecord(idx, step_s=0.01, data_s=data_s if idx > 2 else 9.0) for idx in range(13))
    others = {"num": 2, "cpu_s": 0.01, "device_s": 0.0}
    data = {"steps": num_steps, "wall_s": wall_s, "operations": [list(row) for row in rows], "others": others}
    return Fingerprint(STOPPED, (RankRecord(0, steps, (Event("profile", 12, data),)),))


def test_profile_is_per_step_and_waits_are_those_of_its_steps() -> None:
    found = read_profile(profiled(("aten::mm", 0.04, 0.0, 20, 4096)))
    assert found is not None and not found.has_device
    assert (found.num_steps, found.step_s, found.data_s) == (10, 0.01, pytest.approx(0.001))
    assert found.operations["aten::mm"].cpu_s == pytest.approx(0.004)
    assert found.share_outside == pytest.approx(0.5)  # the other operations count as inside


def test_operations_that_grew_come_first_and_those_that_shrank_not_at_all() -> None:
    healthy = profiled(("aten::mm", 0.02, 0.0, 1, 0), ("aten::add", 0.03, 0.0, 1, 0))
    sick = profiled(("aten::mm", 0.03, 0.0, 1, 0), ("aten::sort", 0.06, 0.0, 1, 0), ("aten::add", 0.01, 0.0, 1, 0), wall_s=0.2)
    said = say_profiles([healthy, sick])
    assert said[0] == "a profiled step takes 10 ms before the change and 20 ms with it"
    assert said[1] == (
        "operations that take more CPU time of their own, a step: aten::sort 0 ms -> 6 ms; aten::mm 2 ms -> 3 ms"
    )


def test_shares_tell_communication_data_and_copies_apart() -> None:
    healthy = profiled(("aten::copy_", 0.01, 0.0, 1, 0))
    sick = profiled(
        ("aten::copy_", 0.01, 0.0, 1, 0), ("gloo:all_reduce", 0.05, 0.0, 1, 0), ("c10d::allreduce_", 0.0, 0.0, 1, 0)
    )
    assert say_profiles([healthy, sick])[-1] == (
        "shares of a step: communication 0% -> 50%; waiting for data 10% -> 10%; copies 10% -> 10%; "
        "outside torch's operations 80% -> 80%"
    )


def test_times_of_the_device_are_told_before_those_of_the_cpu() -> None:
    healthy = profiled(("ampere_sgemm", 0.0, 0.02, 1, 0), ("aten::mm", 0.01, 0.0, 1, 0))
    sick = profiled(
        ("ampere_sgemm", 0.0, 0.05, 1, 0), ("aten::mm", 0.02, 0.0, 1, 0), ("ncclDevKernel_AllReduce", 0.0, 0.03, 1, 0)
    )
    said = say_profiles([healthy, sick])
    assert said[1].startswith("operations that take more device time of their own, a step: ampere_sgemm 2 ms -> 5 ms; nccl")
    assert said[2].startswith("operations that take more CPU time of their own, a step: aten::mm 1 ms -> 2 ms")
    assert "communication 0% -> 30%" in said[-1]


def test_loader_in_the_program_itself_is_waiting_for_data() -> None:
    rows: Row = ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0.02, 0.0, 10, 0)
    assert "waiting for data 20% -> 20%" in say_profiles([profiled(rows, data_s=None)] * 2)[-1]


def test_memory_that_is_kept_is_told_where_memory_was_asked_for() -> None:
    healthy, sick = profiled(("aten::mul", 0.01, 0.0, 1, 0)), profiled(("aten::mul", 0.01, 0.0, 1, 10 * 2**20))
    assert any("aten::mul 0 -> 1.02e+03 KiB" in text for text in say_profiles([healthy, sick], is_memory=True))
    assert not any("KiB" in text for text in say_profiles([healthy, sick]))


def test_side_without_a_profile_says_nothing() -> None:
    assert say_profiles([profiled(), Fingerprint(STOPPED)]) == () == say_profiles([Fingerprint(STOPPED, (RankRecord(0),))] * 2)
    assert read_profile(profiled(num_steps=0)) is None
