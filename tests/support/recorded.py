"""Recorded real runs: made once, replayed through the simulated executor in every test run.

python -m tests.support.recorded HOME FILE           writes the newest bisection under a home folder; after
                                                     `bisect-train demo` this renews tests/data/demo_run.json.gz
python -m tests.support.recorded scenarios NAME ...  trains scenarios (all without a name) and writes what their replays
                                                     need into tests/data/scenarios/; what is recorded there is kept
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeJob
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import Script, SimulatedRun
from tests.scenarios.library import SCENARIOS
from tests.scenarios.library.record import record_scenario

DEMO_RUN = Path(__file__).parent.parent / "data" / "demo_run.json.gz"
# times, memory and the recorder's own cost say nothing to a search; without them the file is small and diffs mean something
LEFT_OUT = ("step_s", "step_cpu_s", "step_cuda_s", "rss_mib", "cuda_mib", "self_s")

RunKey = tuple[str, int, int]  # tree, seed index, repeat


def export_newest(home: Path, target: Path) -> int:
    """Write the results of the newest bisection under `home`; return how many."""
    store = open_store(home)
    runs = []
    for probe in store.results(store.load("last").id):
        fingerprint = probe.result.fingerprint.to_json()
        for rank in fingerprint["ranks"]:
            rank["steps"] = [{key: value for key, value in step.items() if key not in LEFT_OUT} for step in rank["steps"]]
            rank["events"] = []
        spec = probe.spec
        runs.append({"key": [spec["tree"], spec["seed_idx"], spec["repeat"]], "fingerprint": fingerprint})
    store.close()
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(gzip.compress(json.dumps(runs).encode(), mtime=0))
    return len(runs)


def read_runs(path: Path) -> dict[RunKey, Fingerprint]:
    """Return recorded fingerprints by tree, seed index and repeat."""
    runs: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))
    return {(run["key"][0], run["key"][1], run["key"][2]): Fingerprint.of_json(run["fingerprint"]) for run in runs}


def replay_script(runs: Mapping[RunKey, Fingerprint]) -> Script:
    """Return the script that gives each job what its tree showed on this seed; a run that was never recorded is lost."""

    def run(job: ProbeJob) -> SimulatedRun:
        spec = job.spec
        found = runs.get((spec.variant.tree, spec.seed_idx, spec.repeat))
        return SimulatedRun(found, 3.0, reason=f"never recorded: {spec.variant.tree} seed {spec.seed_idx}")

    return run


def _record_scenarios(names: Sequence[str]) -> int:
    """Record scenarios one after the other; return 1 if one of them did not say the truth."""
    status = 0
    for name in names or SCENARIOS:
        try:
            print(record_scenario(SCENARIOS[name]), flush=True)
        except AssertionError as error:
            print(f"{name}: NOT AS IT SHOULD BE: {error}", flush=True)
            status = 1
    return status


if __name__ == "__main__":
    if sys.argv[1] == "scenarios":
        sys.exit(_record_scenarios(sys.argv[2:]))
    print(export_newest(Path(sys.argv[1]), Path(sys.argv[2])), "runs")
