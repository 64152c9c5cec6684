"""Early verdicts of one bisection: the rules that travel with a run of the search, made from the ends' stored runs.

Only the search may stop a run: never a run of the ends or of the merge base, a repeat, a proof, or one of a part, an island or
a complement, whose ends are others. What was stopped early is stored under a key of its own, so that nobody takes it for a
whole run: no other bisection, no proof of this one, no part of the range whose end that version may become.

A run that will probably be wanted whole is not stopped: whoever looks inside a culprit begins with it and the version before
it, and a run that is stopped and made again costs a start and all its steps more. So a run may be stopped where the
probability that it is one of the two is below the share of its time that stopping saves; where nobody looks inside, always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from bisect_train.core.changes import Point
from bisect_train.core.early import EarlyRules, Shown
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question
from bisect_train.search.terms import Phase, Plan, Request, Rules
from bisect_train.store.contract import StoredProbe
from bisect_train.verdict.early_rules import EndCurve, make_early_rules, why_not_early
from bisect_train.verdict.outcome import Observation, OutcomeKind

SAVED_BY_CURVE = 0.5  # of the steps, about what the test of a curve saves
UNKNOWN_SHARE = 0.3  # of the time that stopping saves, where the ends' runs have no times
Runs = Mapping[Request, ProbeResult]


class EarlyVerdicts:
    """Makes the rules once the ends are proved, and anew when more of their runs are known."""

    def __init__(self, question: Question) -> None:
        self._metric = question.metric
        self._is_off = bool(why_not_early(question))
        self._descends = question.range.descend
        self._made: dict[tuple[int, int, int], EarlyRules | None] = {}

    def rules_for(
        self, request: Request, plan: Plan, rules: Rules, *, observations: Sequence[Observation], runs: Runs
    ) -> EarlyRules | None:
        """Return when a run may be stopped; None where it must go to its end.

        Args:
            request: the run.
            plan: that wants it.
            rules: of the search; they say where the ends lie.
            observations: all that count.
            runs: what was recorded, by request.
        """
        ends = (rules.good_point, rules.bad_point)
        if self._is_off or plan.phase is not Phase.SEARCH or request.point in ends:
            return None
        if request.repeat or request.attempt or request.part:
            return None
        good, bad = (_whole_runs(point, observations, runs) for point in ends)
        asked = (request.seed_idx, len(good), len(bad))
        if asked not in self._made:
            self._made[asked] = make_early_rules(good, bad, plan.ends, self._metric, seed_idx=request.seed_idx)
        made = self._made[asked]
        if made is None or not self._descends:
            return made
        share = _saved_share(made) * _share_of_steps(
            [runs[Request(point, seed)] for point, side in zip(ends, (good, bad), strict=True) for seed in side]
        )
        return made if _beside_the_answer(request.point, plan) < share else None


def _beside_the_answer(point: Point, plan: Plan) -> float:
    """Return how probable it is that a version is the culprit's, or the one before: whoever looks inside wants both whole."""
    last = point.prefix
    return sum(plan.posterior[max(0, last - 1) : last + 1]) if point.is_prefix else 0.0


def _saved_share(rules: EarlyRules) -> float:
    """Return the share of its steps that a run need not make, about."""
    if rules.bits is None:
        return SAVED_BY_CURVE
    return 1.0 - (rules.steps[len(rules.bits.good) - 1] + 1) / (rules.steps[-1] + 1)


def _share_of_steps(results: Sequence[ProbeResult]) -> float:
    """Return the share of a whole probe's time that its steps take, the rest is its start; the median of some runs."""
    shares = []
    for result in results:
        times = [step.step_s for step in result.fingerprint.ranks[0].steps if step.step_s is not None]
        if times and result.wall_s > 0.0:
            shares.append(min(1.0, math.fsum(times) / result.wall_s))
    return median(shares) if shares else UNKNOWN_SHARE


def _whole_runs(point: Point, observations: Sequence[Observation], runs: Runs) -> dict[int, EndCurve]:
    """Return the whole runs of an end's proof by seed index; a seed with the bits of an earlier one is no run of its own."""
    seen: set[str] = set()
    kept: dict[int, EndCurve] = {}
    for run in sorted(observations, key=lambda run: run.seed_idx):
        outcome = run.outcome
        recorded = runs.get(Request(point, run.seed_idx))
        if run.point != point or run.repeat or run.attempt or run.part or recorded is None:
            continue
        if outcome.kind is OutcomeKind.MEASURED and not outcome.is_early and outcome.value is not None:
            if outcome.digest not in seen:
                kept[run.seed_idx] = EndCurve(recorded.fingerprint.ranks, Shown(outcome.digest, outcome.value))
            seen |= {outcome.digest} - {""}
    return kept


def count_early(probes: Sequence[StoredProbe], question: Question) -> tuple[int, int]:
    """Return how many probes of a bisection were stopped early, and how many steps they did not make."""
    asked = question.rung.steps or 0
    made = [probe.result.fingerprint.num_steps for probe in probes if probe.result.fingerprint.early is not None]
    return len(made), sum(max(0, asked - num) for num in made)
