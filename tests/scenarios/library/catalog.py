"""All scenarios by name."""

from __future__ import annotations

from tests.scenarios.library.averaging import AVERAGED_TWICE
from tests.scenarios.library.config_keys import RENAMED_KEY, RENAMED_KEY_HELD, ROUNDED_AWAY
from tests.scenarios.library.five_packages import PACKAGE_THEN_COMMIT
from tests.scenarios.library.free_sets import ONE_KEY, PAIR_OF_KEYS, TWO_KEYS
from tests.scenarios.library.hanging import HANG_AT_END
from tests.scenarios.library.harmless import DATA_ORDER, IDENTICAL_ENDS, REORDERED_SUMS
from tests.scenarios.library.hidden import BROKEN_STRETCH, REPAIRED_STRETCH
from tests.scenarios.library.launch import FEWER_PROCESSES
from tests.scenarios.library.loss_scale import LOSS_SCALE, LOSS_SCALE_CONDITION
from tests.scenarios.library.outside_data import SHARDS, TOKENIZER
from tests.scenarios.library.requirements import REQUIREMENTS_TRAVEL, REQUIREMENTS_TWICE
from tests.scenarios.library.rotary import ROTARY_TABLE
from tests.scenarios.library.scenario import Scenario
from tests.scenarios.library.sharding import SHARED_FILES
from tests.scenarios.library.slower import FIRST_COMMIT, LAST_COMMIT, MERGED_BRANCH, TWO_CULPRITS
from tests.scenarios.library.spikes import LOSS_SPIKES
from tests.scenarios.library.squash import ONE_HUNK, TWO_HUNKS, TWO_QUIET_HUNKS
from tests.scenarios.library.trouble import NOISE_AND_DEATHS
from tests.scenarios.library.variables import VARIABLE
from tests.scenarios.library.warmup import WARMUP_SHAPE

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        LOSS_SCALE,
        LOSS_SCALE_CONDITION,
        ROTARY_TABLE,
        WARMUP_SHAPE,
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
        PACKAGE_THEN_COMMIT,
        REQUIREMENTS_TRAVEL,
        REQUIREMENTS_TWICE,
        TOKENIZER,
        SHARDS,
        VARIABLE,
        RENAMED_KEY,
        RENAMED_KEY_HELD,
        ROUNDED_AWAY,
        FEWER_PROCESSES,
        LOSS_SPIKES,
        SHARED_FILES,
        AVERAGED_TWICE,
        HANG_AT_END,
        ONE_HUNK,
        TWO_HUNKS,
        TWO_QUIET_HUNKS,
        ONE_KEY,
        PAIR_OF_KEYS,
        TWO_KEYS,
    )
}
