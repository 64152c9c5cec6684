"""The loop of one bisection: plan, run, judge, record. A library with an event stream and a cancel token."""

from bisect_train.coordinator.descent import (
    DESCENDED,
    MAX_DESCENTS,
    NothingInsideError,
    Opening,
    OpeningKind,
    ask_inside,
    children_of,
    limits_left,
    look_inside,
    openings,
)
from bisect_train.coordinator.events import (
    CoordinatorEvent,
    MarkContradicted,
    PlanMade,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
)
from bisect_train.coordinator.loop import Coordinator
from bisect_train.coordinator.observing import (
    StoredState,
    is_comparable,
    load_state,
    observe_stored,
    results_that_count,
    rules_for,
    spec_of_request,
)
from bisect_train.coordinator.person import request_of_spec
from bisect_train.coordinator.running import Ended
from bisect_train.coordinator.single import SingleProbe, run_singles

__all__ = [
    "DESCENDED",
    "MAX_DESCENTS",
    "Coordinator",
    "CoordinatorEvent",
    "Ended",
    "MarkContradicted",
    "NothingInsideError",
    "Opening",
    "OpeningKind",
    "PlanMade",
    "ProbeDone",
    "ProbeGone",
    "ProbeMoved",
    "ProbeStarted",
    "SingleProbe",
    "StoredState",
    "ask_inside",
    "children_of",
    "is_comparable",
    "limits_left",
    "load_state",
    "look_inside",
    "observe_stored",
    "openings",
    "request_of_spec",
    "results_that_count",
    "rules_for",
    "run_singles",
    "spec_of_request",
]
