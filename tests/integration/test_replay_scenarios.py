"""The scenarios' real runs, recorded, through the whole command line: the truth of `make scenarios` without any training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bisect_train.core.changes import Variant
from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import ProbeJob, ProbeSpec, Rung, RunSettings
from tests.scenarios.library import SCENARIOS, Scenario, check_report
from tests.scenarios.library.record import REPLAY_SLOTS
from tests.scenarios.library.recording import Recording, UnequalRunsError
from tests.scenarios.library.replay import NotRecordedError, replay, scenario_script
from tests.support.simulated_bisection import fingerprint_of

RECORDED = {name: scenario for name, scenario in SCENARIOS.items() if Recording(name).path.exists()}
MAX_BYTES = 60_000
MAX_INSIDE = {"squash_one_hunk": 2 * math.log2(60) + 6}
"""Probes inside the culprit, two at a time."""


@pytest.mark.parametrize("scenario", RECORDED.values(), ids=RECORDED)
@pytest.mark.parametrize("slots", REPLAY_SLOTS)
def test_replayed_scenario_says_the_truth(tmp_path: Path, scenario: Scenario, slots: int) -> None:
    built, status, report = replay(scenario, tmp_path, slots=slots)
    check_report(scenario.truth, built, report, status)
    if slots == REPLAY_SLOTS[0]:
        num_inside = report["cost"]["probes"] - len(report["probes"])
        assert num_inside <= MAX_INSIDE.get(scenario.name, num_inside)


@pytest.mark.parametrize("scenario", RECORDED.values(), ids=RECORDED)
def test_replayed_scenario_says_the_same_where_no_run_is_stopped_early_and_none_left_out(
    tmp_path: Path, scenario: Scenario
) -> None:
    built, status, report = replay(scenario, tmp_path, options=("--no-early", "--no-prune"))
    check_report(scenario.truth, built, report, status)
    assert report["cost"]["pruned"] == report["cost"]["early"] == 0


@pytest.mark.parametrize("name", RECORDED)
def test_recording_is_small(name: str) -> None:
    assert Recording(name).path.stat().st_size < MAX_BYTES


def _spec(tree: str, seed_idx: int = 0) -> ProbeSpec:
    return ProbeSpec(Variant(tree * 40, "c" * 40, ("python", "train.py")), Rung(24), seed_idx)


def test_replay_without_the_run_that_is_asked_for_says_how_to_renew() -> None:
    job = ProbeJob("id", _spec("f"), RunSettings("/usr/bin/python3"), "repo")
    with pytest.raises(NotRecordedError, match=r"python -m tests\.support\.recorded scenarios case01_loss_scale"):
        scenario_script(Recording("case01_loss_scale"))(job)


def test_variants_with_the_same_bits_on_seed_0_share_their_runs() -> None:
    recording = Recording("any")
    recording.add(_spec("a", 5), fingerprint_of(2.0, seed_idx=0))  # before its kind is known
    for tree, loss in (("a", 1.0), ("b", 1.0), ("c", 3.0)):
        recording.add(_spec(tree), fingerprint_of(loss, seed_idx=0))
    assert recording.find(_spec("b", 5)) == recording.find(_spec("a", 5)) is not None
    assert recording.find(_spec("c", 5)) is None
    with pytest.raises(UnequalRunsError):
        recording.add(_spec("b", 5), fingerprint_of(2.5, seed_idx=0))


def test_failures_that_differ_in_a_path_only_are_of_one_kind() -> None:
    recording = Recording("any")
    for tree in "ab":
        ending = Ending(EndingKind.CRASHED, "ImportError: no load_corpus", f"no load_corpus in /checkout/{tree}/corpus.py", 1)
        recording.add(_spec(tree), fingerprint_of(1.0, seed_idx=0, ending=ending))
    assert len(set(recording.kinds.values())) == 1
