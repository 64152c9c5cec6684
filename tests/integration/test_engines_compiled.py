"""Compiled models, steps and clipping: no graph, graph break or compilation more than without the recorder."""

from __future__ import annotations

import pytest

from tests.support.engines.bench import Job, Rank, run_jobs
from tests.support.engines.checks import assert_stopped, assert_told, assert_unchanged

pytest.importorskip("torch", reason="the engines train with torch")

ENGINES = ("compiled_model", "compiled_step", "compiled_step_inside", "compiled_step_whole", "compiled_clipping")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Rank]]]:
    """Each engine plain, recorded, and stopped after two steps."""
    jobs = []
    for name in ENGINES:
        jobs += [Job(name), Job(name, 1, {"checksum_every": 1, "every_step": True}), Job(name, 1, {"steps": 2})]
    found = run_jobs(tmp_path_factory.mktemp("compiled"), jobs)
    return {name: found[3 * idx : 3 * idx + 3] for idx, name in enumerate(ENGINES)}


@pytest.mark.parametrize("engine", ENGINES)
def test_recorder_on_a_compiled_program_adds_no_graph_and_sees_its_steps(
    runs: dict[str, list[list[Rank]]], engine: str
) -> None:
    plain, recorded, cut = runs[engine]
    assert_unchanged(plain, recorded)  # the program prints how many compilations, graphs and breaks there were
    assert any(line.get("graphs", 0) > 0 for line in plain[0].other)
    assert_told(recorded)
    assert_stopped(cut, recorded, num_steps=2)
