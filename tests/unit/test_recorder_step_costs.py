"""The clocks of a step: the device's own, worker processes', and what the recorder takes off."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bisect_train_workers.injection import RECORDER_FOLDER

PACKAGE = "_bisect_train_recorder"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the parts of the recorder that are tested here, by name; imported as a program would."""
    monkeypatch.syspath_prepend(str(RECORDER_FOLDER))
    names = ("own_time", "profiling", "step_costs")
    return SimpleNamespace(**{name: importlib.import_module(f"{PACKAGE}.{name}") for name in names})


class FakeCuda:
    """A device that is behind: it passes an event once `passed` is at its number."""

    def __init__(self, *, is_initialized: bool = True, is_capturing: bool = False) -> None:
        self.is_initialized = lambda: is_initialized
        self.is_current_stream_capturing = lambda: is_capturing
        self.num_events = 0
        self.passed = 0

    def Event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        self.num_events += 1
        number = self.num_events
        return SimpleNamespace(
            record=lambda: None,
            number=number,
            query=lambda: self.passed >= number,
            elapsed_time=lambda later: 5.0 * (later.number - number),
        )


def torch_with(cuda: FakeCuda, *, is_built: bool = True) -> Any:
    return SimpleNamespace(cuda=cuda, _C=SimpleNamespace(**({"_cuda_getDeviceCount": len} if is_built else {})))


def test_device_clock_reads_the_time_between_two_marks_once_the_device_is_there(recorder: Any) -> None:
    cuda = FakeCuda()
    clock = recorder.step_costs.DeviceClock(torch_with(cuda))
    first, second = clock.mark(), clock.mark()
    assert clock.between_s(first, second) is None  # never waits
    cuda.passed = 2
    assert clock.between_s(first, second) == 0.005
    assert clock.between_s(None, second) is None is clock.between_s(first, None)


def test_device_clock_marks_nothing_without_cuda_before_its_first_use_and_in_a_graph(recorder: Any) -> None:
    assert recorder.step_costs.DeviceClock(torch_with(FakeCuda(), is_built=False)).mark() is None
    assert recorder.step_costs.DeviceClock(torch_with(FakeCuda(is_initialized=False))).mark() is None
    assert recorder.step_costs.DeviceClock(torch_with(FakeCuda(is_capturing=True))).mark() is None


def _work(until: Any, ready: Any) -> None:
    while time.process_time() < 0.2:
        pass
    ready.set()
    until.wait()


def test_cpu_time_of_a_child_counts_while_it_lives_and_once_when_it_is_gone(recorder: Any) -> None:
    context = multiprocessing.get_context("fork")
    until, ready = context.Event(), context.Event()
    before_s = recorder.step_costs.children_cpu_s()
    child = context.Process(target=_work, args=(until, ready))
    child.start()
    ready.wait()
    living_s = recorder.step_costs.children_cpu_s() - before_s
    until.set()
    child.join()
    assert living_s >= 0.1
    assert living_s <= recorder.step_costs.children_cpu_s() - before_s <= living_s + 0.2


def test_program_time_stands_still_inside_a_hook(recorder: Any) -> None:
    own = recorder.own_time.OwnTime()
    own.hook_cpu_started, own.cpu_s = 5.0, 1.5
    assert own.program_cpu_s() == 3.5


def test_operations_are_read_under_the_names_of_old_and_new_torch(recorder: Any) -> None:
    new = SimpleNamespace(key="aten::mm", self_cpu_time_total=2e6, self_device_time_total=1e6, count=3, self_cpu_memory_usage=8)
    old = SimpleNamespace(key="x" * 200, self_cpu_time_total=5e6, self_cuda_time_total=0, count=1, self_cuda_memory_usage=16)
    assert recorder.profiling.operations_of([new, old]) == [["x" * 120, 5.0, 0.0, 1, 16], ["aten::mm", 2.0, 1.0, 3, 8]]
