"""A bisection as the report's computations see it: the question, the changes, the last plan, and every finished probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.climb import RungLeft
from bisect_train.coordinator.observing import observe
from bisect_train.coordinator.person import request_of_spec
from bisect_train.core.changes import GOOD_END, Point
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.question import Question
from bisect_train.core.verdict import Criterion
from bisect_train.report.words import say_point
from bisect_train.search.terms import Answer, Culprit, Plan, answer_candidates
from bisect_train.store.contract import StoredProbe
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Observation

SYMPTOM_CRITERIA = (Criterion.SYMPTOM, Criterion.JUDGE)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished probe, as stored and in the terms of the search."""

    probe: StoredProbe
    seen: Observation

    @property
    def fingerprint(self) -> Fingerprint:
        """What it recorded."""
        return self.probe.result.fingerprint


@dataclass(frozen=True, slots=True)
class Case:
    """All that a report is computed from; `bisection` is its id, "" where that does not matter; `rungs` were left for this."""

    question: Question
    space: ChangeSpace
    plan: Plan
    runs: tuple[Run, ...]
    bisection: str = ""
    rungs: tuple[RungLeft, ...] = ()

    @property
    def ends(self) -> Ends:
        """The proof of the ends."""
        return self.plan.ends

    @property
    def answer(self) -> Answer:
        """The answer; an unfinished bisection's is what its belief says so far."""
        if self.plan.answer is not None:
            return self.plan.answer
        return answer_candidates(self.plan, f"phase {self.plan.phase.value}")

    @property
    def is_finished(self) -> bool:
        """Whether there is an answer."""
        return self.plan.answer is not None

    @property
    def good_point(self) -> Point:
        """The good end as it was given."""
        return Point(0) if self.space.good_is_base else GOOD_END

    @property
    def bad_point(self) -> Point:
        """The bad end."""
        return Point(len(self.space.changes))

    @property
    def is_symptom(self) -> bool:
        """Whether a failure or a judging command decided, not a value."""
        return self.ends.criterion in SYMPTOM_CRITERIA

    @property
    def unit(self) -> str:
        """Unit of the metric."""
        return self.question.metric.unit

    @property
    def culprit(self) -> Culprit | None:
        """The first culprit of the answer."""
        return self.answer.culprits[0] if self.answer.culprits else None

    @property
    def are_ends_equal(self) -> bool | None:
        """Whether the ends were bitwise equal on every seed that both ran; None where there are no bits to compare."""
        good, bad = self.ends.good_digests, self.ends.bad_digests
        shared = good.keys() & bad.keys()
        if not shared or not all(good[idx] and bad[idx] for idx in shared):
            return None
        return all(good[idx] == bad[idx] for idx in shared)

    def at(self, point: Point, *, attempt: int | None = None) -> list[Run]:
        """Return the runs of a point by seed; only those of one attempt if it is given (0: ends and search).

        One result can answer for several points that give the same variant: a point without runs of its own has theirs.
        """
        found = [run for run in self.runs if run.seen.point == point and attempt in (None, run.seen.attempt)]
        if not found and attempt != 0:
            variant = self._variant_id(point)
            alike = [run for run in self.runs if variant and run.probe.spec.get("variant") == variant]
            found = [run for run in alike if attempt in (None, run.seen.attempt)]
        return sorted(found, key=lambda run: (run.seen.attempt, run.seen.seed_idx, run.seen.repeat))

    def _variant_id(self, point: Point) -> str:
        try:
            return self.space.variant(point).id
        except BisectTrainError:
            return ""

    def attempt_shown(self) -> int:
        """Return the number of the attempt that `plan.claims` or the culprit's claims are about, 0 without one."""
        shown = self.culprit.changes if self.culprit is not None else (self.plan.candidate,)
        return self.proof_attempt([idx for idx in shown if idx is not None])

    def attempts(self) -> tuple[int, ...]:
        """The numbers of all attempts at a proof, in order."""
        return tuple(sorted({run.seen.attempt for run in self.runs if run.seen.attempt > 0}))

    def proof_attempt(self, changes: Sequence[int]) -> int:
        """Return the number of the newest attempt about one of these changes, 0 if there was none."""
        return max((run.seen.attempt for run in self.runs if run.seen.proof_of in changes), default=0)

    def say(self, point: Point, *, width: int = 44) -> str:
        """Return a point in words."""
        return say_point(point, self.space, width=width)


def make_case(
    question: Question,
    space: ChangeSpace,
    plan: Plan,
    probes: Sequence[StoredProbe],
    *,
    bisection: str = "",
    rungs: Sequence[RungLeft] = (),
) -> Case:
    """Return the case of stored results."""
    runs = []
    for probe in probes:
        request = request_of_spec(probe.spec)
        runs.append(Run(probe, observe(request, probe.result.fingerprint, question)))
    return Case(question, space, plan, tuple(runs), bisection, tuple(rungs))
