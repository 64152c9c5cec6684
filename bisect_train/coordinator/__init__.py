"""The loop of one bisection: plan, run, judge, record. A library with an event stream and a cancel token."""

from bisect_train.coordinator.events import (
    CoordinatorEvent,
    PlanMade,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
)
from bisect_train.coordinator.loop import Coordinator, Ended
from bisect_train.coordinator.observing import (
    StoredState,
    is_comparable,
    load_state,
    observe_stored,
    request_of_spec,
    rules_for,
    spec_of_request,
)
from bisect_train.coordinator.single import SingleProbe, run_singles

__all__ = [
    "Coordinator",
    "CoordinatorEvent",
    "Ended",
    "PlanMade",
    "ProbeDone",
    "ProbeGone",
    "ProbeMoved",
    "ProbeStarted",
    "SingleProbe",
    "StoredState",
    "is_comparable",
    "load_state",
    "observe_stored",
    "request_of_spec",
    "rules_for",
    "run_singles",
    "spec_of_request",
]
