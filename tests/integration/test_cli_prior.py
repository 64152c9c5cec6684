"""The person in the loop: `--prior`, through the command line. Nothing is trained."""

from __future__ import annotations

import json

import pytest

from bisect_train.store.contract import StoredEvent
from tests.support.command_bench import CULPRIT, Bench, culprits_of

RUN = ("run", "--quiet", "--parallel", "1")
TRAINING = ("--", "python", "train.py")


def ask_with(bench: Bench, *priors: str, dry: bool = False) -> tuple[str, ...]:
    rules = [part for rule in priors for part in ("--prior", rule)]
    return (*RUN, *(["--dry-run"] if dry else []), "--good", bench.commit(0), "--no-reuse", *rules)


def num_searched(events: tuple[StoredEvent, ...]) -> int:
    """Count the runs of the search itself, without those that look for bad stretches after the answer."""
    specs = [event.data["spec"] for event in events if event.kind == "probe_finished"]
    return sum(spec["attempt"] == spec["part"] == 0 and spec["point"] not in ("0", "13") for spec in specs)


def test_prior_is_stored_and_shortens_the_search(bench: Bench) -> None:
    assert bench.call(*ask_with(bench), *TRAINING)[0] == 0
    plain = num_searched(bench.events())
    assert bench.call(*ask_with(bench, "message:number 9$=300"), *TRAINING)[0] == 0
    assert num_searched(bench.events()) < plain
    with bench.store() as store:
        assert store.load("last").question["priors"] == ["message:number 9$=300"]


def test_culprit_found_against_its_prior_is_named_with_a_warning(bench: Bench) -> None:
    place = bench.lab.home / "report.json"
    status, _, _ = bench.call(*ask_with(bench, "message:number 9$=0.001"), "--json", str(place), *TRAINING)
    report = json.loads(place.read_text())
    assert status == 0 and culprits_of(report) == [bench.commit(CULPRIT)]
    assert f"{bench.commit(CULPRIT)[:8]} was found against its prior (weight 0.001)" in report["warnings"]


def test_dry_run_tells_the_priors_and_idle_ones_are_warned_of(bench: Bench) -> None:
    status, out, err = bench.call(*ask_with(bench, "path:train.py=2", "path:docs/**=0.1", dry=True), *TRAINING)
    assert status == 0 and "prior     path:train.py=2 (13 changes)" in out and "prior     path:docs/**=0.1 (0 changes)" in out
    assert err == "bisect-train: warning: --prior 'path:docs/**=0.1' matches no change of the range\n"


@pytest.mark.parametrize("rule", ["docs=1", "message:(=1", "path:docs=0", "path:docs=2000", "file:docs=1"])
def test_bad_prior_is_refused(bench: Bench, rule: str) -> None:
    assert f"--prior {rule!r}" in bench.refuse(*ask_with(bench, rule), *TRAINING)
