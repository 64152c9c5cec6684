"""What the recorder tells of point-to-point calls, without torch: the first of a rank, and nothing more."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bisect_train_workers.injection import RECORDER_FOLDER
from tests.support.recorded_training import train_recorded

SOURCE = """
def send(tensor, dst): return isend(tensor, dst)
def recv(tensor, src): raise RuntimeError("theirs")
def isend(tensor, dst): return "sent"
def irecv(tensor, src): return "received"
def all_reduce(tensor, op=None, group=None, async_op=False): return "reduced"
def get_world_size(): return 2
def is_known(op): return op in [isend, irecv]
"""


class Session:
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, **data: Any) -> None:
        self.events.append((name, data))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any, Session, list[int]]]:
    """A stand-in for torch.distributed with the recorder's hooks, the log of calls, the events, and what makes it compile."""
    monkeypatch.syspath_prepend(str(RECORDER_FOLDER))
    from _bisect_train_recorder import collective_watch

    module: Any = types.ModuleType("torch.distributed.stand_in")
    exec(SOURCE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    session, compiling = Session(), []  # type: ignore[var-annotated]
    log = collective_watch.CollectiveLog(session, module)
    collective_watch.watch_collectives(module, log.note, lambda: bool(compiling))
    collective_watch.watch_point_to_point(module, log.note_point_to_point, lambda: bool(compiling))
    yield module, log, session, compiling


def test_first_point_to_point_call_is_told_once_and_never_counted(watched: Any) -> None:
    module, log, session, _ = watched
    held = module.isend
    assert module.send(1, 0) == "sent" and module.irecv(1, 0) == "received" and held(1, 0) == "sent"
    assert session.events == [("point_to_point", {"op": "send"})]
    assert log.take() == (0, 0)
    assert module.is_known(held) and module.is_known(module.irecv), "torch compares these by identity"
    with pytest.raises(RuntimeError, match="theirs"):
        module.recv(1, 0)
    module.all_reduce(None)
    assert [name for name, _ in session.events] == ["point_to_point", "collective"] and log.take()[0] == 1


def test_point_to_point_calls_that_are_being_compiled_are_left_alone(watched: Any) -> None:
    module, _, session, compiling = watched
    compiling.append(1)
    module.isend(1, 0)
    assert session.events == []


def test_ranks_that_send_on_tell_their_first_call_and_stay_silent(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "scenarios/triage/programs/ring_attention.py"
    run = train_recorded(tmp_path / "r", source.read_text().replace("range(30)", "range(3)"), ranks=2, triage=True)
    assert run.fingerprint.ending.is_healthy, run.log_tail
    told = [[event for event in rank.events if event.name == "point_to_point"] for rank in run.fingerprint.ranks]
    assert [[event.data for event in events] for events in told] == [[{"op": "batch_isend_irecv"}]] * 2
    assert not [event for rank in run.fingerprint.ranks for event in rank.events if event.name == "recorder_error"]
