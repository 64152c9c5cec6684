"""During the capture of a CUDA graph no hook of the recorder runs, and the first one is noted; elsewhere nothing changes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bisect_train_workers


class Session:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str) -> None:
        self.events.append(name)


class Torch:
    """What the recorder asks of torch about captures."""

    def __init__(self, *, has_cuda: bool) -> None:
        self.is_capturing = False
        self._C = SimpleNamespace(**({"_cuda_getDeviceCount": lambda: 1} if has_cuda else {}))
        self.cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: self.is_capturing)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    folder = Path(bisect_train_workers.__file__).parent / "recorder"
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("_bisect_train_recorder.graph_capture")
    for name in [name for name in sys.modules if name.startswith("_bisect_train_recorder")]:
        del sys.modules[name]


def test_hooks_are_left_out_during_a_capture_and_the_first_one_is_noted(module: Any) -> None:
    session, torch, calls = Session(), Torch(has_cuda=True), list[int]()
    hook = module.GraphCapture(session, torch).leave_out(calls.append)
    hook(1)
    torch.is_capturing = True
    hook(2)
    hook(3)
    torch.is_capturing = False
    hook(4)
    assert calls == [1, 4]
    assert session.events == ["graph_captured"]


def test_without_cuda_the_hook_is_the_very_same(module: Any) -> None:
    hook = print
    assert module.GraphCapture(Session(), Torch(has_cuda=False)).leave_out(hook) is hook
