"""The terms of a plan: phases, requests, rules, what is known, answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from bisect_train.core.changes import GOOD_END, Point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.belief import credible_changes
from bisect_train.verdict.end_terms import EndRules, Ends
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import ClaimResult

PROVED = ("isolated", "several")
"""Statuses of an answer whose culprits are proved."""


class Phase(str, Enum):
    """Where a bisection stands."""

    ENDS = "ends"
    BASE = "base"
    SEARCH = "search"
    PROOF = "proof"
    PARTNER = "partner"
    REST = "rest"
    DONE = "done"


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """One run that is wanted: a point, a seed index, a repeat; in a proof its attempt (from 1) and the change it is about.

    `part` is 0 for the whole range; 1, 2, ... is a part of it that is searched by itself (`search.parts`); -1 are bad stretches
    (`search.islands`), -2 coupled changes (`search.coupling`), -10, -11, ... the range without the culprits found so far
    (`search.complement`).
    """

    point: Point
    seed_idx: int
    repeat: int = 0
    attempt: int = 0
    proof_of: int = -1
    part: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays the same during one bisection.

    Attributes:
        num_changes: N >= 1.
        ends: metric, criterion, smallest effect, seeds.
        good_is_base: whether the good end is where the list of changes starts.
        skipped: versions that must not be run.
        prior_nats: ln of a change's prior weight, by index; 0 where nothing is said.
        confidence: posterior at which a change is put to the proof.
        max_runs: runs of one version in the search, at most.
        num_earlier_attempts: attempts at a proof that were made before this range was searched; they spent their error.
        num_ordered: so many changes, from the first, need those before them; the others are free: they can be applied in any
            order, and come in the order of what they need, where that is known. None: none is free.
        ends_only: whether the ends are told apart and nothing is searched.
        first_seed: then, the seed index with which they begin.
    """

    num_changes: int
    ends: EndRules
    good_is_base: bool = True
    skipped: frozenset[int] = frozenset()
    prior_nats: Mapping[int, float] = field(default_factory=dict)
    confidence: float = 0.99
    max_runs: int = 6
    num_earlier_attempts: int = 0
    num_ordered: int | None = None
    ends_only: bool = False
    first_seed: int = 0

    @property
    def first_free(self) -> int:
        """Index of the first change that can be applied in any order; `num_changes` where there is none."""
        return self.num_changes if self.num_ordered is None else self.num_ordered

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
        part: number of the part of the range in which it was proved, 0 for the whole.
    """

    changes: tuple[int, ...]
    probability: float
    claims: tuple[ClaimResult, ...]
    is_necessary: bool | None
    is_sufficient: bool | None
    part: int = 0


class RemarkKind(str, Enum):
    """What a reader must know beside an answer."""

    MASKED = "masked"  # a later change makes up for part of the worsening
    IMPROVED_BEFORE = "improved_before"  # an earlier change made it better than the good end
    UNEXPLAINED = "unexplained"  # part of the worsening arose elsewhere
    NOT_PROVED = "not_proved"  # there, nothing more could be proved
    UNDONE = "undone"  # it made it worse there, and the bad end is no better without it: later changes made up for it
    PROVED_PART = "proved_part"  # this change is proved to be part of it, the rest could not be isolated
    NOT_SEARCHED = "not_searched"  # the rest was not searched
    NOT_NARROWED = "not_narrowed"  # there, something makes it worse too, but no single change could be isolated
    EITHER_ENOUGH = "either_enough"  # each culprit is enough by itself: only without all of them is the bad end healthy
    COUPLED = "coupled"  # the culprit's changes can only be changed together: none of them could be run without the others
    NEEDS = "needs"  # the culprit cannot be run alone: it needs this change, which is no cause


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark about the changes first..last - 1.

    Attributes:
        kind: see RemarkKind.
        first, last: the changes (indices from 0) that it is about.
        size: how much worse (positive) or better, in the metric's unit; None where it was not measured.
        share: `size` as a share of the gap between the ends, or None.
        reason: more, or "".
    """

    kind: RemarkKind
    first: int
    last: int
    size: float | None = None
    share: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Island:
    """A bad stretch before the culprit, by versions: the last good one before it, its first and last one, the next good one.

    An edge is exact where the two versions at it are neighbours.
    """

    good_before: int
    first_bad: int
    last_bad: int
    good_again: int


@dataclass(frozen=True, slots=True)
class Answer:
    """How a bisection ended.

    Attributes:
        status: as in report.json: isolated, several, candidates, drift, no_regression, not_reproduced, fixed_before, budget,
            failed.
        reason: one sentence.
        culprits: proved ones, ranked by effect, or the one whose proof was left open.
        candidates: (index, probability), most probable first.
        end: `good`, `bad` or "" when an end could not be tested.
        is_input_error: whether the question itself cannot be answered (exit status 2).
        remarks: what a reader must know beside it.
        islands: bad stretches before the culprit, in order.
    """

    status: str
    reason: str
    culprits: tuple[Culprit, ...] = ()
    candidates: tuple[tuple[int, float], ...] = ()
    end: str = ""
    is_input_error: bool = False
    remarks: tuple[Remark, ...] = ()
    islands: tuple[Island, ...] = ()


class CornersOutcome(str, Enum):
    """Which block of changes makes it worse: the ordered one (code) or the free one (the rest)."""

    CODE_ALONE = "code_alone"
    REST_ALONE = "rest_alone"
    BOTH_NEEDED = "both_needed"
    EITHER_ENOUGH = "either_enough"
    UNTESTABLE = "untestable"  # a corner cannot be run; its evidence says why
    UNCLEAR = "unclear"  # a corner was not run, or decided nothing


@dataclass(frozen=True, slots=True)
class Corners:
    """The two mixed corners; evidence is None where one was not run.

    Attributes:
        outcome: see CornersOutcome.
        code: all ordered changes, none of the rest.
        rest: the good code with all the rest.
    """

    outcome: CornersOutcome
    code: Evidence | None = None
    rest: Evidence | None = None


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
        parts: parts of the range that are searched by themselves, after its own answer.
        own: the range's own answer, where parts or bad stretches are still looked at.
        corners: what the mixed corners show, where there are two blocks of changes.
        inert: changes that need no run, since the program reads nothing of them.
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
    parts: tuple[Part, ...] = ()
    own: Answer | None = None
    corners: Corners | None = None
    inert: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a range with a plan of its own: changes first..last - 1, numbered as in Request; the plan counts from 0."""

    first: int
    last: int
    number: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class Known:
    """Everything observed.

    Attributes:
        observations: finished probes.
        unbuildable: points that cannot be built, with the reason.
        in_flight: requests that are running.
        slots: probes that may run at the same time.
        marks: what a person said about versions 1..N-1 (see search.marks); it overrides their runs.
        costs: of the next run of a version, in units of a typical run; 0 where its result is there already, 1 where nothing is
            said. They move the choice of what to run next, never what is believed, nor whether anything is worth a run.
        inert: indices of changes that the program was seen not to read (see search.inert).
    """

    observations: Sequence[Observation] = ()
    unbuildable: Mapping[Point, str] = field(default_factory=dict)
    in_flight: Collection[Request] = ()
    slots: int = 1
    marks: Mapping[int, VerdictKind] = field(default_factory=dict)
    costs: Mapping[int, float] = field(default_factory=dict)
    inert: frozenset[int] = frozenset()

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


def answer_nodes(plan: Plan, reason: str) -> Answer:
    """Return the answer where nodes contradict each other and nobody can tell which is right: nothing is proved."""
    return answer_candidates(plan, reason) if plan.posterior else Answer("failed", reason)


def answer_budget(plan: Plan, reason: str) -> Answer:
    """Return the answer of a bisection that may spend no more: what was proved stays proved, else what is left."""
    if plan.own is not None and plan.own.status in PROVED:
        remark = Remark(RemarkKind.NOT_SEARCHED, 0, len(plan.posterior), reason=reason)
        return replace(plan.own, remarks=(*plan.own.remarks, remark))
    return answer_candidates(plan, reason, status="budget")
