"""How a program's end is told from outcome, records and log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.fingerprint import EndingKind
from bisect_train_workers.ending import Evidence, decide_ending
from bisect_train_workers.program import Outcome
from bisect_train_workers.records import ProcessRecord, pick_ranks


def process(rank: int = 0, *, steps: int = 0, world_size: int = 1, t: float = 1.0, **events: dict[str, Any]) -> ProcessRecord:
    record = ProcessRecord({"rank": rank, "world_size": world_size, "t": t})
    record.steps = {idx: {"step": idx, "t": t + idx} for idx in range(steps)}
    record.events = [{"name": name, "t": t + 50, "data": data} for name, data in events.items()]
    return record


def error(exc_type: str, message: str = "", signature: str = "sig") -> dict[str, Any]:
    return {"exc_type": exc_type, "message": message, "signature": signature}


def evidence(*processes: ProcessRecord, status: int | None = 0, steps: int | None = 3, log: str = "", **more: Any) -> Evidence:
    given = {"ended_by": more.pop("ended_by", "itself"), "status": status}
    base: dict[str, Any] = {"needs_recorder": True, "timeout_s": 100.0, "last_sign_t": 0.0, "ended_t": 100.0, **more}
    return Evidence(Outcome(**given), list(processes), pick_ranks(processes), log, Path("/co"), steps, **base)


def test_all_ranks_with_their_steps_are_stopped_whatever_came_after() -> None:
    ranks = [process(rank, steps=3, world_size=2, exception=error("RuntimeError")) for rank in range(2)]
    for status, ended_by in ((0, "itself"), (1, "itself"), (-9, "itself"), (None, "timeout")):
        assert decide_ending(evidence(*ranks, status=status, ended_by=ended_by)).kind is EndingKind.STOPPED


def test_missing_rank_is_not_stopped() -> None:
    ending = decide_ending(evidence(process(0, steps=3, world_size=2), status=1, log="boom"))
    assert ending.kind is EndingKind.CRASHED


def test_exception_after_a_ranks_own_last_step_is_not_the_cause() -> None:
    done = process(0, steps=3, world_size=2, t=0.0, exception=error("ConnectionError", signature="late"))
    failed = process(1, steps=1, world_size=2, t=9.0, exception=error("ValueError", signature="cause"))
    assert decide_ending(evidence(done, failed, status=1)).signature == "cause"


def test_first_exception_of_the_ranks_is_the_cause() -> None:
    first = process(0, world_size=2, t=1.0, exception=error("ValueError", signature="first"))
    second = process(1, world_size=2, t=0.5, exception=error("ChildFailedError", signature="launcher"))
    third = process(2, world_size=2, t=2.0, exception=error("RuntimeError", signature="second"))
    assert decide_ending(evidence(first, second, third, status=1)).signature == "first"


@pytest.mark.parametrize(
    ("exc_type", "message"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried"),
        ("MemoryError", ""),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_exceptions_of_memory_are_out_of_memory(exc_type: str, message: str) -> None:
    assert decide_ending(evidence(process(exception=error(exc_type, message)), status=1)).kind is EndingKind.OUT_OF_MEMORY


def test_kill_is_out_of_memory_only_if_the_kernel_says_so() -> None:
    assert decide_ending(evidence(status=-9)).kind is EndingKind.KILLED
    assert decide_ending(evidence(status=-9, oom_kills=1)).kind is EndingKind.OUT_OF_MEMORY
    assert decide_ending(evidence(status=-11, oom_kills=1)).kind is EndingKind.KILLED


def test_signal_behind_a_launcher_or_a_shell_is_found() -> None:
    log = "Root Cause (first observed failure):\n  exitcode  : -11 (pid: 2)\n"
    broken = process(1, world_size=2, exception=error("RuntimeError", "connection closed by peer"))
    assert decide_ending(evidence(broken, status=1, log=log)).signal == 11
    assert decide_ending(evidence(status=139)).signature == "killed: SIGSEGV"


def test_timeout_is_a_hang_only_without_steps_in_its_second_half() -> None:
    stuck = evidence(process(), status=None, ended_by="timeout", last_sign_t=40.0)
    assert decide_ending(stuck).signature == "timeout: hang"
    slow = evidence(process(), status=None, ended_by="timeout", last_sign_t=60.0)
    assert decide_ending(slow).signature == "timeout: slow"


def test_quiet_end_without_torch_has_no_recorder() -> None:
    assert decide_ending(evidence()).kind is EndingKind.NO_RECORDER
    assert decide_ending(evidence(process())).kind is EndingKind.NO_RECORDER
    assert decide_ending(evidence(process(torch_imported={}))).kind is EndingKind.FINISHED
    assert decide_ending(evidence(needs_recorder=False)).kind is EndingKind.FINISHED


def test_code_from_outside_outweighs_everything() -> None:
    outside = process(steps=3, imports={"outside": {"pkg.model": "/home/u/r/pkg/model.py"}})
    ending = decide_ending(evidence(outside))
    assert ending.kind is EndingKind.CANNOT_START and "pkg.model" in ending.message


def test_exit_status_without_any_exception_has_a_signature() -> None:
    ending = decide_ending(evidence(process(), status=3, log="fatal: no data\n\n"))
    assert (ending.signature, ending.message, ending.exit_status) == ("exit status 3", "fatal: no data", 3)


def test_ranks_that_lose_those_of_a_node_at_its_limit_are_part_of_the_hang() -> None:
    gone = error("RuntimeError", "Connection closed by peer [10.0.0.2]:1234")
    ranks = (process(0, steps=1, world_size=2), process(1, steps=1, world_size=2, exception=gone, exit={"code": 1}))
    hang = evidence(*ranks, status=None, ended_by="timeout")
    assert decide_ending(replace(hang, is_on_several=True)).signature == "timeout: hang"
    assert decide_ending(hang).kind is EndingKind.CRASHED, "of one node it is what happened"


def test_cause_outweighs_its_effect_on_another_node_whatever_the_clocks_say() -> None:
    ranks = (
        process(0, world_size=2, t=1.0, exception=error("RuntimeError", "Connection reset by peer", "effect")),
        process(1, world_size=2, t=2.0, exception=error("ValueError", "the cause", "cause")),
    )
    assert decide_ending(replace(evidence(*ranks, status=1), is_on_several=True)).signature == "cause"
