"""What a stored baseline says of the good end, as observations: they stand for its runs until a fresh one contradicts them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bisect_train.baseline.values import mean_and_sd
from bisect_train.changes.space import ChangeSpace
from bisect_train.core.changes import GOOD_END, Point, point_of_text
from bisect_train.core.golden import Golden
from bisect_train.core.probe import RECORDER_VERSION, MachineFacts
from bisect_train.core.question import Question
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind

GOLDEN_STALE = "golden_stale"
"""Event {key}: this fresh run of the good end is not what its baseline says, which does not count from here on."""

STALE_SD = 6.0  # of the baseline's runs, where bits do not repeat: a fresh run farther away shows another environment


def golden_for(question: Question, space: ChangeSpace, golden: Iterable[Golden]) -> tuple[Golden, ...]:
    """Return the parts of a baseline that hold for a question's good end, with its point.

    A part holds for the very variant, measured in the same way; on which rung and platform it counts is seen later.
    """
    point = Point(0) if space.good_is_base else GOOD_END
    variant, measure = space.variant(point).id, question.settings.measure_digest
    return tuple(replace(item, point=point.to_text()) for item in golden if (item.variant, item.measure) == (variant, measure))


def golden_observations(question: Question, facts: MachineFacts | None) -> list[Observation]:
    """Return the runs of the baseline that hold on this rung, hardware and interpreter; [] where facts are not known yet."""
    if facts is None:
        return []
    platform = (question.rung.name, facts.hardware_class, facts.interpreter, RECORDER_VERSION)
    found = [item for item in question.golden if (item.rung, item.hardware_class, item.interpreter, item.recorder) == platform]
    return [
        Observation(
            point_of_text(item.point), run.seed_idx, 0, 0, -1, Outcome(OutcomeKind.MEASURED, value=run.value, digest=run.digest)
        )
        for item in found[:1]
        for run in item.runs
    ]


def golden_that_count(question: Question, facts: MachineFacts | None, runs: Sequence[Observation]) -> list[Observation]:
    """Return the runs of the baseline that no run of the bisection has made anew; none once one of those contradicts it."""
    golden = golden_observations(question, facts)
    if not golden:
        return []
    repeats = all(item.repeats for item in question.golden)
    if any(is_stale(golden, run, repeats=repeats) for run in runs):
        return []
    seen = {(run.point, run.seed_idx, run.repeat, run.attempt) for run in runs}
    return [run for run in golden if (run.point, run.seed_idx, run.repeat, run.attempt) not in seen]


def is_stale(golden: Sequence[Observation], fresh: Observation, *, repeats: bool) -> bool:
    """Return whether a fresh run of the good end is not what its baseline says.

    Args:
        golden: what the baseline says.
        fresh: a run that is no part of it.
        repeats: whether the same seed gives the same bits; else values are compared.
    """
    same = [run for run in golden if (run.point, run.seed_idx) == (fresh.point, fresh.seed_idx)]
    if not golden or fresh.point != golden[0].point or fresh.attempt > 0:
        return False
    if fresh.outcome.kind is not OutcomeKind.MEASURED or fresh.outcome.value is None:
        return bool(same)
    if repeats:
        return any((run.outcome.digest, run.outcome.value) != (fresh.outcome.digest, fresh.outcome.value) for run in same)
    mean, sd = mean_and_sd([run.outcome.value for run in golden if run.outcome.value is not None])
    return not math.isclose(fresh.outcome.value, mean, abs_tol=STALE_SD * sd, rel_tol=1e-9)
