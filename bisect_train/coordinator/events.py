"""What a coordinator tells whoever watches it (terminal, service). Values only; nobody answers."""

from __future__ import annotations

from dataclasses import dataclass

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.contradiction import Contradiction
from bisect_train.core.executor import ProbeProgress
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question
from bisect_train.search.terms import Plan, Request
from bisect_train.verdict.outcome import Observation


@dataclass(frozen=True, slots=True)
class PlanMade:
    """A new plan, after something was observed; `num_probes` were run, `num_reused` came from the store."""

    plan: Plan
    num_probes: int
    num_reused: int
    slots: int


@dataclass(frozen=True, slots=True)
class ProbeStarted:
    """A probe was handed to the executor; `rung` names the next rung where it runs ahead on that, else it is ""."""

    key: str
    request: Request
    rung: str = ""


@dataclass(frozen=True, slots=True)
class ProbeMoved:
    """A running probe made progress."""

    progress: ProbeProgress


@dataclass(frozen=True, slots=True)
class ProbeDone:
    """A probe came to its end, or a known result was reused; `rung` as in ProbeStarted."""

    key: str
    observation: Observation
    result: ProbeResult
    is_reused: bool
    rung: str = ""


@dataclass(frozen=True, slots=True)
class ProbeGone:
    """A probe was lost (and is run again), obsolete (and was cancelled), or its variant cannot be built."""

    key: str
    request: Request
    reason: str


@dataclass(frozen=True, slots=True)
class MarkContradicted:
    """The runs of a version show the opposite of what a person called it; told once."""

    found: Contradiction


@dataclass(frozen=True, slots=True)
class RungTaken:
    """Another rung of the ladder is worked on from here on; `question` is on it, `space` holds its variants."""

    question: Question
    space: ChangeSpace
    reason: str


CoordinatorEvent = PlanMade | ProbeStarted | ProbeMoved | ProbeDone | ProbeGone | MarkContradicted | RungTaken
