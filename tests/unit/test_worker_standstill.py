"""At the time limit: slow, hanging, or waiting for a rank that died."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from bisect_train.core.fingerprint import EndingKind
from bisect_train_workers.cpu_meter import CpuMeter
from bisect_train_workers.dead_rank import find_dead_ranks
from bisect_train_workers.ending import decide_ending, find_silence
from bisect_train_workers.standstill import Standing, read_frames
from tests.unit.test_worker_ending import error, evidence, process

TORCH = "/env/lib/python3.11/site-packages/torch"


def stack(*frames: tuple[str, str]) -> str:
    """Return what faulthandler writes of a process with one more thread; the innermost frame comes first."""
    lines = [f'  File "{path}", line 7 in {function}' for path, function in frames]
    other = ["Thread 0x00007f01 (most recent call first):", '  File "/env/lib/python3.11/threading.py", line 324 in wait', ""]
    return "\n".join([*other, "Current thread 0x00007f00 (most recent call first):", *lines, ""])


BARRIER = stack((f"{TORCH}/distributed/distributed_c10d.py", "barrier"), ("/co/train.py", "save"), ("/co/train.py", "<module>"))
INIT = stack((f"{TORCH}/distributed/rendezvous.py", "_create_c10d_store"),
             (f"{TORCH}/distributed/distributed_c10d.py", "init_process_group"), ("/co/train.py", "<module>"))  # fmt: skip
FORWARD = stack((f"{TORCH}/nn/modules/linear.py", "forward"), ("/co/train.py", "<module>"))
COMPILE = stack(("/env/lib/python3.11/subprocess.py", "_communicate"), (f"{TORCH}/_inductor/cpp_builder.py", "build"))
SLEEP = stack(("/co/train.py", "<module>"))


def record(pid: int, rank: int = 0, **more: Any) -> Any:
    made = process(rank, **more)
    made.start["pid"] = pid
    return made


def at_limit(*records: Any, cores: dict[int, float], stacks: dict[int, str], sign_t: float, **more: Any) -> Any:
    given = evidence(*records, status=None, ended_by="timeout", last_sign_t=sign_t, stacks=stacks, **more)
    object.__setattr__(given.outcome, "cores", cores)
    return given


def test_slow_first_step_that_comes_within_the_limit_is_slow() -> None:
    # a limit of 100 s and steps of 60 s: the first one came, the second one has been under way for 40 s
    made = at_limit(record(1, steps=1), cores={1: 0.0}, stacks={1: SLEEP}, sign_t=60.0)
    assert decide_ending(made).signature == "timeout: slow"


@pytest.mark.parametrize(("cores", "text"), [(0.9, FORWARD), (1.9, COMPILE.replace("subprocess.py", "codegen.py"))])
def test_silent_program_that_computes_is_slow(cores: float, text: str) -> None:
    ending = decide_ending(at_limit(record(1), cores={1: cores}, stacks={1: text}, sign_t=3.0))
    assert ending.signature == "timeout: slow" and f"it was computing ({cores:.1f} cores)" in ending.message


@pytest.mark.parametrize("text", [SLEEP, BARRIER, INIT, ""])
def test_silent_program_that_computes_nothing_hangs(text: str) -> None:
    ending = decide_ending(at_limit(record(1), cores={1: 0.01}, stacks={1: text} if text else {}, sign_t=3.0))
    assert ending.signature == "timeout: hang" and "no sign of a step for 97 s" in ending.message


def test_rank_that_spins_in_a_wait_does_not_compute() -> None:
    ranks = [record(1, 0, steps=2, world_size=2), record(2, 1, steps=2, world_size=2)]
    waiting = at_limit(*ranks, cores={1: 1.0, 2: 1.0}, stacks={1: BARRIER, 2: BARRIER}, sign_t=10.0)
    ending = decide_ending(waiting)
    assert ending.signature == "timeout: hang"
    assert "rank 0 waits in barrier; rank 1 waits in barrier" in ending.message
    one_works = at_limit(*ranks, cores={1: 1.0, 2: 1.0}, stacks={1: BARRIER, 2: FORWARD}, sign_t=10.0)
    assert decide_ending(one_works).signature == "timeout: slow"


def test_compiler_that_a_rank_waits_for_computes() -> None:
    made = at_limit(record(1), cores={1: 0.0, 77: 0.9}, stacks={1: COMPILE}, sign_t=3.0)
    assert decide_ending(made).signature == "timeout: slow"


def test_rank_on_a_gpu_computes_only_where_it_compiles() -> None:
    spinning = {"cores": {1: 1.0}, "sign_t": 3.0, "has_gpu": True}  # a wait for a kernel takes a whole core
    assert decide_ending(at_limit(record(1), stacks={1: FORWARD}, **spinning)).signature == "timeout: hang"
    compiling = stack((f"{TORCH}/_inductor/scheduler.py", "fuse"), ("/co/train.py", "<module>"))
    assert decide_ending(at_limit(record(1), stacks={1: compiling}, **spinning)).signature == "timeout: slow"


def test_program_that_only_prints_that_it_waits_for_ranks_hangs() -> None:
    alone = record(1, world_size=2, process_group_begin={"backend": "gloo"})
    chatty = {"cores": {1: 0.0}, "sign_t": 99.0, "last_event_t": 10.0}
    ending = decide_ending(at_limit(alone, stacks={1: INIT}, **chatty))
    assert ending.signature == "timeout: hang"
    assert "rank 0 waits in init_process_group; only 1 of 2 ranks came" in ending.message
    assert decide_ending(at_limit(alone, stacks={1: SLEEP}, **chatty)).signature == "timeout: slow"


def test_ranks_that_all_wait_for_each_other_hang_however_late_they_came_there() -> None:
    ranks = [record(1, 0, steps=2, world_size=2), record(2, 1, steps=2, world_size=2)]
    late = {"cores": {1: 0.0, 2: 0.0}, "sign_t": 80.0}  # the start took 80 s of the 100 s
    assert decide_ending(at_limit(*ranks, stacks={1: BARRIER, 2: BARRIER}, **late)).signature == "timeout: hang"
    assert decide_ending(at_limit(*ranks, stacks={1: BARRIER, 2: SLEEP}, **late)).signature == "timeout: slow"
    for made in ranks:
        made.steps = {0: {"step": 0, "t": 1.0}, 1: {"step": 1, "t": 9.0}}  # steps of 8 s: 20 s without one say nothing
    assert decide_ending(at_limit(*ranks, stacks={1: BARRIER, 2: BARRIER}, **late)).signature == "timeout: slow"


def test_rank_that_raised_is_the_ending_though_the_others_hang() -> None:
    ranks = [record(1, 0, steps=2, world_size=2), record(2, 1, steps=2, world_size=2, exception=error("ValueError", "boom"))]
    ending = decide_ending(at_limit(*ranks, cores={1: 0.0}, stacks={1: BARRIER}, sign_t=10.0))
    assert (ending.kind, ending.signature) == (EndingKind.CRASHED, "sig")
    assert (
        ending.message.startswith("ValueError: boom (stopped at the time limit") and "rank 0 waits in barrier" in ending.message
    )


def test_rank_that_vanished_is_the_ending_though_the_others_hang() -> None:
    ranks = [record(1, 0, steps=2, world_size=2), record(2, 1, steps=1, world_size=2)]
    ending = decide_ending(at_limit(*ranks, cores={1: 0.0}, stacks={1: BARRIER}, sign_t=10.0))
    assert (ending.kind, ending.signature) == (EndingKind.CRASHED, "rank died")
    assert ending.message.startswith("rank 1 ended after 1 steps without an exception")
    left = [ranks[0], record(2, 1, steps=1, world_size=2, exit={"code": 0})]
    assert decide_ending(at_limit(*left, cores={1: 0.0}, stacks={1: BARRIER}, sign_t=10.0)).signature == "timeout: hang"


def test_unmeasured_processes_are_not_taken_for_dead() -> None:
    ranks = [record(1, 0, steps=2, world_size=2), record(2, 1, steps=1, world_size=2)]
    made = at_limit(*ranks, cores={}, stacks={}, sign_t=10.0)
    assert find_silence(made).dead_ranks == () and decide_ending(made).signature == "timeout: hang"


def test_rank_that_failed_behind_an_exit_status_of_0_is_the_ending() -> None:
    suffers = record(1, 0, steps=2, world_size=2, exit={"code": 1})
    ending = decide_ending(evidence(suffers, record(2, 1, steps=2, world_size=2), status=0))
    assert (ending.signature, ending.message[:27]) == ("rank died", "rank 1 ended after 2 steps ")
    raised = record(2, 1, steps=2, world_size=2, exit={"code": 1}, exception=error("ValueError", "boom"))
    assert decide_ending(evidence(suffers, raised, status=0)).message == "ValueError: boom"


REPORT = """
Failures:
[1]:
  time      : 2026-01-01_00:00:01
  host      : node
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 12)
  error_file: <N/A>
--------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:01
  host      : node
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 11)
  error_file: <N/A>
"""


def test_rank_without_a_word_outweighs_those_that_lost_it() -> None:
    ranks = [
        record(11, 0, world_size=2, exception=error("RuntimeError", "Connection closed by peer [127.0.0.1]:61164")),
        record(12, 1, world_size=2),
    ]
    ending = decide_ending(evidence(*ranks, status=1, log=REPORT))
    assert (ending.signature, ending.message[:32]) == ("exit status 3", "rank 1 ended with exit status 3,")
    own = [record(11, 0, world_size=2, exception=error("ValueError", "boom")), ranks[1]]
    assert decide_ending(evidence(*own, status=1, log=REPORT)).message == "ValueError: boom"


@pytest.mark.parametrize(("said", "status"), [("signal SIGKILL", -9), ("exit code 3", 3)])
def test_spawned_rank_that_ended_is_read_from_the_log(said: str, status: int) -> None:
    log = f"torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with {said}\n"
    assert [(dead.rank, dead.status) for dead in find_dead_ranks(log, explained=())] == [(1, status)]


def test_frames_of_several_dumps_are_those_of_the_last() -> None:
    assert [frame.function for frame in read_frames(SLEEP + BARRIER)] == ["barrier", "save", "<module>"]
    assert read_frames("") == () and Standing().waits_in == ""


class Spinning:
    """A process that takes so many cores all the time."""

    def __init__(self, pid: int, cores: float) -> None:
        self.pid, self._cores = pid, cores

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=self._cores * time.monotonic(), system=0.0)


def test_meter_measures_the_last_seconds_only() -> None:
    found: list[Any] = [Spinning(5, 2.0), Spinning(6, 0.0)]
    begins = time.monotonic() + 0.1
    meter = CpuMeter(lambda: found, timeout_s=0.4, deadline=begins + 0.1)
    meter.look()
    assert meter.cores() == {5: 0.0, 6: 0.0}  # its window has not begun: nothing is known
    time.sleep(0.12)
    meter.look()
    time.sleep(0.1)
    assert meter.cores() == {5: pytest.approx(2.0, rel=0.05), 6: 0.0}
