"""Kinds of optimizers and wrappers in one process: the numbers stay, and steps, losses, norms and rates are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.engines.bench import Job, Rank, run_jobs
from tests.support.engines.checks import assert_stopped, assert_told, assert_unchanged

pytest.importorskip("torch", reason="the engines train with torch")

NAMED = {"foreign_named": "single:Foreign.step", "chained_skipping": "single:Chained.step"}
ENGINES = (
    *("plain", "gan", "muon_and_adamw", "chained", "chained_skipping", "container", "in_backward", "closure", "lbfgs"),
    *("scaler", "scaler_two", "scaler_fused", "foreign", "foreign_zero_first", "foreign_named"),
    *("swapped_groups", "lent_params"),
    *("checkpointed", "checkpointed_reentrant", "checkpointed_root", "checkpointed_root_reentrant"),
)
FULL = {"checksum_every": 1, "every_step": True, "triage": True}


def settings(engine: str, **more: Any) -> dict[str, Any]:
    """Return the recorder's settings for an engine."""
    named = {"step_function": NAMED[engine]} if engine in NAMED else {}
    return {**named, **more}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Rank]]]:
    """Each engine plain, recorded, and stopped after two steps."""
    jobs = []
    for name in ENGINES:
        jobs += [Job(name), Job(name, 1, settings(name, **FULL)), Job(name, 1, settings(name, steps=2))]
    found = run_jobs(tmp_path_factory.mktemp("engines"), jobs)
    return {name: found[3 * idx : 3 * idx + 3] for idx, name in enumerate(ENGINES)}


@pytest.mark.parametrize("engine", ENGINES)
def test_recorder_on_an_engine_changes_nothing_and_says_what_the_program_says(
    runs: dict[str, list[list[Rank]]], engine: str
) -> None:
    plain, recorded, cut = runs[engine]
    assert_unchanged(plain, recorded)
    assert_told(recorded)
    assert_stopped(cut, recorded, num_steps=2)
    assert [rank.status for rank in cut] == [0]


def test_checkpointed_root_module_is_hashed_once_for_each_micro_batch(runs: dict[str, list[list[Rank]]]) -> None:
    lines = {name: runs[name][1][0].steps for name in ("plain", "checkpointed_root", "checkpointed_root_reentrant")}
    hashes = {name: [(line["batch_hash"], line["samples"]) for line in found] for name, found in lines.items()}
    assert len(lines["plain"][0]["samples"]) == 8 * 8
    assert hashes["plain"] == hashes["checkpointed_root"] == hashes["checkpointed_root_reentrant"]


def test_step_function_that_a_module_lacks_is_told_and_counts_no_step(tmp_path: Path) -> None:
    (found,) = run_jobs(tmp_path, [Job("plain", 1, {"step_function": "single:Gone.step"})])
    assert found[0].events("step_function") == [{"function": "single:Gone.step", "is_found": False}]
    assert found[0].steps == []
