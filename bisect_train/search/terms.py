"""The terms of a plan: phases, requests, rules, what is known, answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from bisect_train.core.changes import GOOD_END, Point
from bisect_train.core.verdict import Evidence
from bisect_train.search.belief import credible_changes
from bisect_train.verdict.end_terms import EndRules, Ends
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import ClaimResult


class Phase(str, Enum):
    """Where a bisection stands."""

    ENDS = "ends"
    BASE = "base"
    SEARCH = "search"
    PROOF = "proof"
    PARTNER = "partner"
    DONE = "done"


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """One run that is wanted: a point, a seed index, a repeat; in a proof its attempt (from 1) and the change it is about."""

    point: Point
    seed_idx: int
    repeat: int = 0
    attempt: int = 0
    proof_of: int = -1


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays the same during one bisection.

    Attributes:
        num_changes: N >= 1.
        ends: metric, criterion, smallest effect, seeds.
        good_is_base: whether the good end is where the list of changes starts.
        skipped: versions that must not be run.
        unlikely: indices of changes outside what was asked about: UNLIKELY_PRIOR each, against 1.
        confidence: posterior at which a change is put to the proof.
        max_runs: runs of one version in the search, at most.
    """

    num_changes: int
    ends: EndRules
    good_is_base: bool = True
    skipped: frozenset[int] = frozenset()
    unlikely: frozenset[int] = frozenset()
    confidence: float = 0.99
    max_runs: int = 6

    @property
    def good_point(self) -> Point:
        """The good end as it was given."""
        return Point(0) if self.good_is_base else GOOD_END

    @property
    def bad_point(self) -> Point:
        """The bad end."""
        return Point(self.num_changes)


@dataclass(frozen=True, slots=True)
class Culprit:
    """A change, or a pair, that was put to the proof.

    Attributes:
        changes: indices from 0.
        probability: posterior, in 0..1.
        claims: what the proof showed.
        is_necessary: the bad end without it is healthy; None if that could not be built.
        is_sufficient: the good end with it is sick; None if that could not be built.
    """

    changes: tuple[int, ...]
    probability: float
    claims: tuple[ClaimResult, ...]
    is_necessary: bool | None
    is_sufficient: bool | None


@dataclass(frozen=True, slots=True)
class Answer:
    """How a bisection ended.

    Attributes:
        status: of report.json: isolated, candidates, drift, no_regression, not_reproduced, fixed_before, budget, failed.
        reason: one sentence.
        culprits: proved ones, or the one whose proof was left open.
        candidates: (index, probability), most probable first.
        end: `good`, `bad` or "" when an end could not be tested.
        is_input_error: whether the question itself cannot be answered (exit status 2).
    """

    status: str
    reason: str
    culprits: tuple[Culprit, ...] = ()
    candidates: tuple[tuple[int, float], ...] = ()
    end: str = ""
    is_input_error: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What should run now, and what is known.

    Attributes:
        phase: see Phase.
        wanted: runs that should be in flight or start next, most urgent first; running ones that are not here are obsolete.
        ends: the proof of the ends.
        posterior: probability of each change (index from 0), () before the search.
        evidence: by version.
        claims: of the current or last attempt.
        candidate: change being proved, or None.
        tried: changes that were ever put to the proof, in order.
        answer: set when the phase is DONE.
    """

    phase: Phase
    wanted: tuple[Request, ...]
    ends: Ends
    posterior: tuple[float, ...] = ()
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    claims: tuple[ClaimResult, ...] = ()
    candidate: int | None = None
    tried: tuple[int, ...] = ()
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Everything observed: finished probes, points that cannot be built (with the reason), requests that are running."""

    observations: Sequence[Observation] = ()
    unbuildable: Mapping[Point, str] = field(default_factory=dict)
    in_flight: Collection[Request] = ()
    slots: int = 1

    def at(self, point: Point) -> list[Observation]:
        """Return the observations at a point, search and proof together."""
        return [run for run in self.observations if run.point == point]


def answer_candidates(plan: Plan, reason: str, *, status: str = "candidates") -> Answer:
    """Return the answer that lists the changes holding 99 % of the belief, and every change that was put to the proof."""
    chosen = set(credible_changes(np.asarray(plan.posterior), mass=0.99)) if plan.posterior else set()
    if plan.posterior:
        chosen |= {*plan.tried, *([] if plan.candidate is None else [plan.candidate])}
    ranked = sorted(((idx, plan.posterior[idx]) for idx in chosen), key=lambda pair: (-pair[1], pair[0]))
    return Answer(status, reason, candidates=tuple(ranked))


def answer_budget(plan: Plan, reason: str) -> Answer:
    """Return the answer of a bisection that may spend no more: what is left, honestly."""
    return answer_candidates(plan, reason, status="budget")
