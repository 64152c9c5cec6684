"""What has to hold for every engine: the numbers stay as they are, and what is recorded is what the program itself prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bisect_train.core.early import norm_of_step
from bisect_train.core.fingerprint import RankRecord, StepRecord
from bisect_train_workers.records import ProcessRecord, to_rank_records
from tests.support.engines.bench import Rank

LOSS_TOLERANCE = 2e-7  # micro-batches are added in double by the recorder, in single precision by the program
NORM_TOLERANCE = 2e-6  # of norms in single precision over few tensors


def records_of(ranks: Sequence[Rank]) -> tuple[RankRecord, ...]:
    """Return what a worker makes of the ranks' lines."""
    processes = {}
    for idx, rank in enumerate(ranks):
        processes[idx] = ProcessRecord()
        for line in rank.lines:
            processes[idx].take(line)
    return to_rank_records(processes, num_steps=None)


def assert_unchanged(plain: Sequence[Rank], recorded: Sequence[Rank]) -> None:
    """The program printed the same to the last bit, digest of its final state included, and the recorder had no error."""
    assert [rank.status for rank in plain] == [0] * len(plain), plain[0].stderr
    assert [rank.status for rank in recorded] == [0] * len(plain), recorded[0].stderr
    assert [rank.printed for rank in recorded] == [rank.printed for rank in plain]
    assert any("digest" in line for line in plain[0].other)
    assert [error for rank in recorded for error in rank.events("recorder_error")] == []


def assert_told(recorded: Sequence[Rank]) -> None:
    """Each recorded step says what the program says of it."""
    for rank, record in zip(recorded, records_of(recorded), strict=True):
        assert len(record.steps) == len(rank.told)
        for told, step in zip(rank.told, record.steps, strict=True):
            _assert_step(told, step)


def _assert_step(told: dict[str, Any], step: StepRecord) -> None:
    if "loss" in told:
        assert_near(step.loss, told["loss"], LOSS_TOLERANCE)
    if told.get("clip_norm") is not None:
        assert_near(step.clip_norm, told["clip_norm"], NORM_TOLERANCE)
    whole = step.whole_grad_norm if step.whole_grad_norm is not None else step.grad_norm
    for name, value in (("grad_norm", whole), ("param_norm", norm_of_step(step, "param_norm"))):
        if told.get(name) is not None:
            assert_near(value, told[name], NORM_TOLERANCE)
    if step.lr or not step.skipped:
        assert list(step.lr) == told.get("lr", list(step.lr))
    assert step.skipped == told.get("skipped", step.skipped)
    assert step.missing_grads == told.get("missing_grads", step.missing_grads)


def assert_near(got: float | None, told: float | None, tolerance: float) -> None:
    """Both are None, both the same infinity or NaN, or equal up to a relative tolerance."""
    if got is None or told is None or not (math.isfinite(got) and math.isfinite(told)):
        assert str(got) == str(told)
    else:
        assert math.isclose(got, told, rel_tol=tolerance), (got, told)


def assert_stopped(cut: Sequence[Rank], whole: Sequence[Rank], *, num_steps: int) -> None:
    """Each rank was stopped after the steps that were asked for, and they are the beginning of the whole run."""
    for mine, theirs in zip(cut, whole, strict=True):
        assert mine.told == theirs.told[:num_steps]
        assert len(mine.steps) == num_steps
        keys = ("step", "micro", "grad_sq", "clip_norm", "lr", "batch_hash", "skipped")
        assert [[line[key] for key in keys] for line in mine.steps] == [
            [line[key] for key in keys] for line in theirs.steps[:num_steps]
        ]
    assert any(rank.events("stop") for rank in cut), "the recorder ended it"
