"""Generated repositories with a known truth: small trainings of ordinary commits, and what the tool must answer about them.

    program     the training program that all of them start from
    ordinary    harmless commits: docs, renames, dead code, logging, refactors that keep the numbers, decoys
    repository  writes a history as a git repository; the same history always has the same hashes
    scenario    what a scenario is, and what a report must say about it
    catalog     all scenarios by name

A new scenario is a history and a `Truth` in one of the modules that `catalog` lists; `make scenarios` trains it for real, and
`python -m tests.support.recorded scenarios NAME` records it for the replays.
"""

from tests.scenarios.library.catalog import SCENARIOS
from tests.scenarios.library.scenario import Built, Scenario, Truth, check_report

__all__ = ["SCENARIOS", "Built", "Scenario", "Truth", "check_report"]
