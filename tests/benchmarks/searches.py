"""Our own search on the benchmark's problems: the product's functions, nothing copied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.search.line import Line, search_line
from bisect_train.search.rates import posterior_with_rates, propose_with_rates
from bisect_train.search.terms import Known, Rules
from bisect_train.verdict import evidence
from bisect_train.verdict.end_terms import EndRules, Ends
from bisect_train.verdict.outcome import Observation
from tests.benchmarks.peers import Levels, Stopped
from tests.benchmarks.problems import SURE_ENDS, RateProblem, SureProblem, ValueProblem
from tests.support.observations import LOSS


@dataclass(frozen=True)
class Cost:
    """What a search of a deterministic problem took.

    Attributes:
        rounds, probes: until every other change but the suspects was contradicted by a probe.
        rounds_open, probes_open: until no version was worth a run any more, repeats of failed ones not counted.
        rounds_named, probes_named: until 0.99 was reached, or the search gave up.
        suspects: changes that no probe contradicts.
    """

    rounds: int
    probes: int
    rounds_open: int
    probes_open: int
    rounds_named: int
    probes_named: int
    suspects: int


def search_sure(problem: SureProblem, slots: int) -> Cost:
    """Search with slots probes a round until 0.99, or until nothing more is wanted."""
    line, rules = Line(problem.num, Point), Rules(problem.num, EndRules(LOSS))
    observations: list[Observation] = []
    low, high, rounds, first, is_open, last = 0, problem.num, 0, (0, 0), True, (0, 0)
    while True:
        belief = search_line(line, rules, Known(observations, slots=slots), SURE_ENDS)
        if max(belief.posterior) >= rules.confidence or not belief.wanted:
            last = (rounds, len(observations)) if is_open else last
            return Cost(*first, *last, rounds, len(observations), high - low)
        tried = {run.point for run in observations}
        if is_open and all(want.point in tried and want.point.prefix in problem.broken for want in belief.wanted):
            is_open, last = False, (rounds, len(observations))
        rounds, width = rounds + 1, high - low
        for request in belief.wanted[:slots]:
            version = request.point.prefix
            observations.append(problem.run(version, request.seed_idx))
            if version not in problem.broken:
                low, high = (low, min(high, version)) if version >= problem.culprit else (max(low, version), high)
        if high - low < width:
            first = rounds, len(observations)


def search_rates(
    problem: RateProblem,
    slots: int,
    levels: tuple[float, ...],
    *,
    history: tuple[int, int] = (0, 0),
    max_runs: int = 600,
) -> Stopped:
    """Search for a change of a failure rate; runs of `history` are known and not counted."""
    num = problem.num
    old = problem.history(*history) if sum(history) else {}
    counts = dict(old)
    seen, num_runs, rounds, worth = Levels(problem.culprit, levels), 0, 0, np.ones(num + 1)
    posterior = posterior_with_rates(num, counts)
    while num_runs < max_runs:
        chosen = propose_with_rates(num, counts, posterior, worth, num=slots)
        for version in chosen:
            fails, passes = counts.get(version, (0, 0))
            has_failed = problem.run(version)
            counts[version] = (fails + has_failed, passes + (not has_failed))
        num_runs, rounds = num_runs + len(chosen), rounds + 1
        posterior = posterior_with_rates(num, counts)
        if not chosen or seen.note(num_runs, rounds, float(posterior.max()), int(posterior.argmax()) + 1):
            break
    return seen.stop(num_runs, rounds)


def search_values(
    problem: ValueProblem, slots: int, levels: tuple[float, ...], *, num_end_seeds: int, is_offset_free: bool = False
) -> tuple[Stopped, bool | None]:
    """Search for a shift of the mean; the runs of the ends count.

    Also return, where the search ended by itself before the last level, whether its best change was the culprit; else None.

    Args:
        is_offset_free: take the offset of a variant's own as none, to see what allowing for it costs.
    """
    ends = problem.ends(num_end_seeds)
    if is_offset_free:
        with patch.object(evidence, "OFFSET_SD", 0.0):
            return _search_values(problem, slots, levels, replace(ends, min_effect=0.0), num_end_runs=2 * num_end_seeds)
    return _search_values(problem, slots, levels, ends, num_end_runs=2 * num_end_seeds)


def _search_values(
    problem: ValueProblem, slots: int, levels: tuple[float, ...], ends: Ends, *, num_end_runs: int
) -> tuple[Stopped, bool | None]:
    line, rules = Line(problem.num, Point), Rules(problem.num, EndRules(LOSS))
    observations: list[Observation] = []
    seen, rounds = Levels(problem.culprit, levels), 0
    while True:
        belief = search_line(line, rules, Known(observations, slots=slots), ends)
        runs = len(observations) + num_end_runs
        if seen.note(runs, rounds, max(belief.posterior), belief.best + 1) or not belief.wanted:
            return seen.stop(runs, rounds), None if seen.is_done else belief.best + 1 == problem.culprit
        rounds += 1
        observations += [problem.run(want.point.prefix, want.seed_idx) for want in belief.wanted[:slots]]
