"""How the parts of a restarted run become one record."""

from __future__ import annotations

from bisect_train.core.fingerprint import Event, RankRecord, StepRecord
from bisect_train_workers.restart_run import join_ranks

SEAM = Event("restart", 2, {"save_at": 2, "resumed_ranks": 1})


def record(rank: int, num_steps: int, *events: Event) -> RankRecord:
    return RankRecord(rank, tuple(StepRecord(step, loss=float(step)) for step in range(num_steps)), events)


def test_joined_steps_and_events_are_counted_on() -> None:
    late = Event("batch", 1, {"step": 1, "values": [1]})
    (joined,) = join_ranks([record(0, 3, Event("stop", 3))], [record(0, 2, Event("start"), late)], seam=SEAM, num_before=3)
    assert [(step.step, step.loss) for step in joined.steps] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 0.0), (4, 1.0)]
    assert [(event.name, event.step) for event in joined.events] == [("stop", 3), ("restart", 2), ("start", None), ("batch", 4)]
    assert joined.events[-1].data == {"step": 4, "values": [1]} and late.data["step"] == 1


def test_rank_of_one_part_only_keeps_what_it_has() -> None:
    before = join_ranks([record(0, 3), record(1, 3)], [record(0, 2)], seam=SEAM, num_before=3)
    assert [[step.step for step in rank.steps] for rank in before] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    after = join_ranks([record(0, 3)], [record(0, 2), record(1, 2)], seam=SEAM, num_before=3)
    assert [[step.step for step in rank.steps] for rank in after] == [[0, 1, 2, 3, 4], [3, 4]]
    assert all(SEAM in rank.events for rank in (*before, *after))
