"""From rung to rung: which rung of its ladder a bisection works on.

The rung in force is an event of its own, so a bisection that is resumed goes on where it was. Runs of other rungs stay
stored and are never compared with those of this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.person import spec_of_event
from bisect_train.core.question import Question
from bisect_train.search.terms import Phase, Plan
from bisect_train.shrink.moves import (
    Move,
    after_answer,
    after_settling,
    distance_of,
    has_first_look,
    is_hopeless,
    is_weak,
    weigh_trial,
)
from bisect_train.store.contract import Store, StoredEvent, StoredProbe
from bisect_train.verdict.end_terms import EndsStatus

RUNG_TAKEN = "rung_taken"
"""Event {idx, from_idx, reason, is_trial, is_settled, fall_back, num_attempts, sd}: another rung is worked on from here on.

`fall_back`: rung whose answer stands where this one shows nothing. `num_attempts`: proofs that were tried on the rungs before;
they spent their error. `sd`: distance of the ends on the rung that this one is weighed against.
"""


def rungs_taken(events: Sequence[StoredEvent]) -> list[dict[str, Any]]:
    """Return the data of the events that took another rung, in order."""
    return [event.data for event in events if event.kind == RUNG_TAKEN]


def rung_in_force(question: Question, events: Sequence[StoredEvent]) -> Question:
    """Return the question on the rung that is worked on; `question` may be on any rung of its ladder."""
    taken = rungs_taken(events)
    if not taken or not question.ladder:
        return question
    return replace(question.at_rung(taken[-1]["idx"]), num_earlier_attempts=taken[-1]["num_attempts"])


@dataclass(frozen=True, slots=True)
class RungLeft:
    """A rung that was worked on and left: its name, why, and how many runs it had."""

    name: str
    reason: str
    num_probes: int


def rungs_left(question: Question, events: Sequence[StoredEvent], probes: Iterable[StoredProbe]) -> tuple[RungLeft, ...]:
    """Return the rungs that were left, in order; `probes` are all results of the bisection."""
    counts = Counter(str(probe.spec.get("rung")) for probe in probes)
    names = [(question.ladder[data["from_idx"]].name, str(data["reason"])) for data in rungs_taken(events)]
    return tuple(RungLeft(name, reason, counts[name]) for name, reason in names)


class Climb:
    """Where a bisection stands on its ladder.

    Args:
        question: on the rung in force.
        store: holds the bisection, whose lock the caller holds.
        bisection_id: of the bisection.
    """

    def __init__(self, question: Question, *, store: Store, bisection_id: str) -> None:
        self._question, self._store, self._id = question, store, bisection_id
        taken = rungs_taken(read_events(store, bisection_id))
        self._last = taken[-1] if taken else {}
        self._is_settled = bool(self._last.get("is_settled")) or not question.ladder
        self._is_trial = bool(self._last.get("is_trial"))

    @property
    def is_above_first(self) -> bool:
        """Whether this rung was taken after another one."""
        return bool(self._last)

    @property
    def ahead(self) -> Question | None:
        """The question on the next rung, None where that is not tried, or not with the same variants."""
        if self._is_settled or self._is_trial or self._question.is_last_rung:
            return None
        above = self._question.at_rung(self._question.rung_idx + 1)
        return above if above.command == self._question.command else None

    def stay(self) -> None:
        """Take no other rung: no node has what the next one takes, so what this one shows is the answer."""
        self._is_settled = True

    def next_move(self, plan: Plan) -> Move | None:
        """Return the rung to go on with, None where this one is worked on."""
        question, ends = self._question, plan.ends
        idx, ladder = question.rung_idx, question.ladder
        if self._is_settled:
            status, fall_back = plan.answer.status if plan.answer else "", self._last.get("fall_back")
            return after_settling(ladder, idx, status=status, fall_back=fall_back) if ladder else None
        if self._is_trial:
            return self._weigh(plan) if ends.status is not EndsStatus.OPEN or has_first_look(ends) else None
        if plan.answer is not None:
            status, fall_back = plan.answer.status, self._last.get("fall_back")
            return after_answer(ladder, idx, status=status, ends=ends, num_proofs=len(plan.tried), fall_back=fall_back)
        if question.is_last_rung:
            return None
        if plan.phase is Phase.ENDS and is_hopeless(ends):
            said = f"{len(ends.good_values)} + {len(ends.bad_values)} runs do not tell the ends apart"
            fall_back = self._last.get("fall_back")
            return Move(idx + 1, f"{said} ({distance_of(ends):.1f} seed sd)", fall_back=fall_back)
        if plan.phase is Phase.SEARCH and is_weak(ends):
            said = f"the ends lie {distance_of(ends):.1f} seed sd apart"
            return Move(idx + 1, f"{said}: does a larger rung tell more?", is_trial=True)
        return None

    def take(self, move: Move, plan: Plan) -> Question:
        """Store that another rung is taken, given the plan on the rung that is left; return the question on it."""
        events = read_events(self._store, self._id)
        attempts = [int(spec["attempt"]) for event in events if (spec := spec_of_event(event)) is not None]
        most = max([self._question.num_earlier_attempts, *attempts])
        data = {
            "idx": move.idx,
            "from_idx": self._question.rung_idx,
            "reason": move.reason,
            "is_trial": move.is_trial,
            "is_settled": move.is_settled,
            "fall_back": move.fall_back,
            # back on a rung, its own attempts are no earlier ones
            "num_attempts": self._num_attempts_at(move.idx, events) if move.is_settled else most,
            "sd": distance_of(plan.ends) if move.is_trial else None,
        }
        self._store.append(self._id, RUNG_TAKEN, data)
        return rung_in_force(self._question, read_events(self._store, self._id))

    def _num_attempts_at(self, idx: int, events: Sequence[StoredEvent]) -> int:
        """Return how many attempts had been made when a rung was first taken."""
        return next((int(data["num_attempts"]) for data in rungs_taken(events) if data["idx"] == idx), 0)

    def _weigh(self, plan: Plan) -> Move:
        idx = self._question.rung_idx
        is_worse = plan.ends.gap > 0.0 or self._question.any_change
        is_shown = plan.ends.status is EndsStatus.SEPARATED or (plan.ends.status is EndsStatus.OPEN and is_worse)
        costs = [self._mean_cost(at) for at in (idx - 1, idx)]
        sds = [float(self._last["sd"]), distance_of(plan.ends) if is_shown else 0.0]
        return weigh_trial(self._question.ladder, idx - 1, low_cost=costs[0], high_cost=costs[1], low_sd=sds[0], high_sd=sds[1])

    def _mean_cost(self, idx: int) -> float:
        """Return the mean time of a run on a rung, seconds."""
        name = self._question.ladder[idx].name
        times = [probe.result.wall_s for probe in self._store.results(self._id) if probe.spec.get("rung") == name]
        return fmean(times) if times else 1.0
