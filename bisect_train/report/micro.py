"""A warning where the number of micro-batches changes: the recorded loss of a step is the sum over them."""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.report.case import Case, Run


def warn_of_micro_batches(case: Case) -> list[str]:
    """Return a warning if a step has another number of micro-batches at the bad end than at the good end."""
    if case.question.metric.name != "loss" or case.is_symptom:
        return []
    counts = [_num_micro(case.at(point, attempt=0)) for point in (case.good_point, case.bad_point)]
    if None in counts or counts[0] == counts[1]:
        return []
    return [
        f"a step has {counts[0]} micro-batches at the good end and {counts[1]} at the bad end; the loss compared here is their "
        "sum, as it was handed to backward(): it is no mean, and the program may print another number"
    ]


def _num_micro(runs: Sequence[Run]) -> int | None:
    """Return the number of micro-batches of the first recorded step."""
    steps = [step for run in runs[:1] for rank in run.fingerprint.ranks[:1] for step in rank.steps[:1]]
    return len(steps[0].micro) if steps and steps[0].micro else None
