"""Marks that runs contradict: a person called a version good and its runs say bad, or the other way round. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.core.verdict import VerdictKind
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation

_OPPOSITE = {VerdictKind.GOOD: VerdictKind.BAD, VerdictKind.BAD: VerdictKind.GOOD}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A version that was marked `marked`, and what its `num_runs` runs say, those of proofs among them."""

    version: int
    marked: VerdictKind
    shown: VerdictKind
    num_runs: int


def contradicted_marks(
    marks: Mapping[int, VerdictKind], observations: Iterable[Observation], ends: Ends, metric: Metric
) -> tuple[Contradiction, ...]:
    """Return the marks whose versions were run, before or after, and show the opposite; () while the ends are open."""
    if ends.status is not EndsStatus.SEPARATED:
        return ()
    runs_of: dict[Point, list[Observation]] = {Point(version): [] for version, kind in marks.items() if kind in _OPPOSITE}
    for run in observations:
        if run.point in runs_of:
            runs_of[run.point].append(run)
    found = []
    for point, runs in runs_of.items():
        if runs:
            shown = judge_variant(runs, ends, metric)
            marked = marks[point.prefix]
            if shown.verdict is _OPPOSITE[marked]:
                found.append(Contradiction(point.prefix, marked, shown.verdict, shown.num_runs))
    return tuple(found)
