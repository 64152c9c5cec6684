"""Every scenario of the library, trained for real: the command as a user starts it, and a report that says the truth."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.scenarios.library import SCENARIOS, Scenario, check_report
from tests.support.command_line import CommandLine


@pytest.mark.scenario
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_real_run_of_a_scenario_says_the_truth(tmp_path: Path, scenario: Scenario) -> None:
    built = scenario.build(tmp_path)
    line = CommandLine(built.path, tmp_path / "home")
    target = tmp_path / "report.json"
    arguments = ["--good", built.good, "--bad", built.bad, "--python", sys.executable, "--json", str(target)]
    status, said = line.run("run", *arguments, *built.options, "--", *built.command, timeout_s=800)
    print(said)
    assert target.exists(), said
    check_report(scenario.truth, built, json.loads(target.read_text()), status)
    if any(len(culprit) == 2 for culprit in scenario.truth.culprits):
        assert "The two changes on the good end" in said
    for piece in scenario.truth.pieces:
        assert f"+++ b/{piece.partition(':')[0]}" in said  # of the smallest patch
    line.wait_until_gone([], limit_s=15.0)
