"""What a step costs, bisected for real beside other work on the machine: the slow commit, the one that keeps memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bisect_train.store.home import open_store
from tests.scenarios.library.scenario import Built, Scenario, check_report
from tests.scenarios.library.throughput import GRAPHS_KEPT, SLIDING_WINDOW, SUMMARY
from tests.support.command_line import CommandLine

LOAD = """
import time
while True:
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        pass
    time.sleep(0.5)
"""


@pytest.fixture
def busy_core() -> Iterator[None]:
    """One core works on something else, most of the time."""
    with subprocess.Popen([sys.executable, "-c", LOAD]) as process:
        try:
            yield
        finally:
            process.kill()


def bisect(scenario: Scenario, folder: Path) -> tuple[Built, CommandLine, int, dict[str, Any], str]:
    built = scenario.build(folder)
    line = CommandLine(built.path, folder / "home")
    target = folder / "report.json"
    arguments = ["--good", built.good, "--bad", built.bad, "--python", sys.executable, "--json", str(target)]
    status, said = line.run("run", *arguments, *built.options, "--", *built.command, timeout_s=1500)
    print(said)
    assert target.exists(), said
    return built, line, status, json.loads(target.read_text()), said


@pytest.mark.scenario
@pytest.mark.timeout(1600)
@pytest.mark.usefixtures("busy_core")
def test_commit_that_costs_throughput_is_named_beside_other_work_and_the_small_decoy_is_not(tmp_path: Path) -> None:
    built, line, status, report, said = bisect(SLIDING_WINDOW, tmp_path)
    check_report(SLIDING_WINDOW.truth, built, report, status)
    named = {change["id"] for culprit in report["culprits"] for change in culprit["changes"]}
    assert built.hash_of(SUMMARY) not in {*named, *(item["id"] for item in report["candidates"])}
    assert "the same worker, one pair at a time" in " ".join(said.split())
    second = report["triage"]["second_look"]
    assert second["kind"] == "profile" and "aten::_scaled_dot_product" in " ".join(second["said"]), second
    line.wait_until_gone([], limit_s=15.0)
    store = open_store(tmp_path / "home")
    results = store.results(report["id"])
    assert results and all(probe.result.fingerprint.reference is not None for probe in results)
    store.close()


@pytest.mark.scenario
@pytest.mark.timeout(1600)
@pytest.mark.usefixtures("busy_core")
def test_commit_that_keeps_graphs_alive_is_named_by_its_memory(tmp_path: Path) -> None:
    built, line, status, report, _ = bisect(GRAPHS_KEPT, tmp_path)
    check_report(GRAPHS_KEPT.truth, built, report, status)
    assert report["triage"]["second_look"]["kind"] == "profile"
    line.wait_until_gone([], limit_s=15.0)
