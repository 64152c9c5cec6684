"""All scenarios by name."""

from __future__ import annotations

from tests.scenarios.library.harmless import DATA_ORDER, IDENTICAL_ENDS, REORDERED_SUMS
from tests.scenarios.library.hidden import BROKEN_STRETCH, REPAIRED_STRETCH
from tests.scenarios.library.loss_scale import LOSS_SCALE, LOSS_SCALE_CONDITION
from tests.scenarios.library.scenario import Scenario
from tests.scenarios.library.slower import FIRST_COMMIT, LAST_COMMIT, MERGED_BRANCH, TWO_CULPRITS
from tests.scenarios.library.trouble import NOISE_AND_DEATHS

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        LOSS_SCALE,
        LOSS_SCALE_CONDITION,
        NOISE_AND_DEATHS,
        REORDERED_SUMS,
        DATA_ORDER,
        IDENTICAL_ENDS,
        BROKEN_STRETCH,
        REPAIRED_STRETCH,
        TWO_CULPRITS,
        MERGED_BRANCH,
        FIRST_COMMIT,
        LAST_COMMIT,
    )
}
