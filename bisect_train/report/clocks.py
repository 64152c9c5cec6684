"""What the runs of a bisection by wall time show by CPU time, where wall time told nothing."""

from __future__ import annotations

from bisect_train.report.case import Case
from bisect_train.report.words import say_number
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.outcome import judge_outcome
from bisect_train.verdict.stats import pooled_sd, summarise
from bisect_train.verdict.step_costs import TIME_METRICS

MIN_CLEAR_SD = 3.0  # of a pair, that the ends must lie apart to be worth saying; chosen, not measured


def say_cpu_time(case: Case) -> tuple[str, ...]:
    """Return how far the same runs of the ends lie apart by CPU time, where wall time told nothing and that would, else ()."""
    if case.question.metric.name != "step_s" or case.ends.status is not EndsStatus.UNCLEAR:
        return ()
    sides = [_percents(case, end) for end in ("good", "bad")]
    if min(map(len, sides)) < 2:
        return ()
    gap, (spread, _) = summarise(sides[1]).mean - summarise(sides[0]).mean, pooled_sd(sides)
    if gap < MIN_CLEAR_SD * spread or gap <= 0.0:
        return ()
    said = f"by {say_number(gap, unit='%')}, and pairs spread by {say_number(spread, unit='%')} only"
    return (f"By CPU time the same runs differ {said}: `--metric step_cpu_s` would tell.",)


def _percents(case: Case, end: str) -> list[float]:
    point = case.good_point if end == "good" else case.bad_point
    outcomes = [judge_outcome(run.fingerprint, TIME_METRICS["step_cpu_s"]) for run in case.at(point, attempt=0)]
    return [outcome.value for outcome in outcomes if outcome.value is not None]
