"""A probe that runs, and how a bisection ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.core.changes import Variant
from bisect_train.core.probe import ProbeSpec
from bisect_train.core.question import Question
from bisect_train.search.terms import Answer, Plan, Request


@dataclass(frozen=True, slots=True)
class Ended:
    """How a bisection ended: the last plan with its answer, and what it cost.

    Attributes:
        plan: `plan.answer` is set.
        answer: the answer.
        num_probes: probes that were run, by this coordinator or an earlier one of the same bisection.
        num_reused: results that came from other bisections.
        wall_s: time of all coordinators of this bisection, seconds.
        question: on the rung that gave the answer.
        space: of the question.
        gpu_hours: GPU-hours that its own probes used, lost and cancelled ones too.
    """

    plan: Plan
    answer: Answer
    num_probes: int
    num_reused: int
    wall_s: float
    question: Question
    space: ChangeSpace
    gpu_hours: float = 0.0

    @property
    def plan_with_answer(self) -> Plan:
        """The last plan, its answer set also where the budget ended it."""
        return replace(self.plan, answer=self.answer)


@dataclass(slots=True)
class RunningProbe:
    """A running probe: the requests that its result answers, what it runs, and when it was started (clock, seconds).

    `knowledge` takes the result: that of the rung it runs on.
    """

    knowledge: Knowledge
    requests: list[Request]
    variant: Variant
    spec: ProbeSpec
    started_s: float
