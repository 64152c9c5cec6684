"""Each probe has its own commit's environment, whatever ran before it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.library.requirements import REQUIREMENTS_TRAVEL, SWAP, TO_TWO
from tests.support.command_line import CommandLine


def _probe(line: CommandLine, commit: str, recipe: Path, command: tuple[str, ...]) -> dict[str, Any]:
    """Run a commit once; return its fingerprint."""
    target = line.home.parent / "probe.json"
    arguments = ["--rev", commit, "--recipe", str(recipe), "--steps", "6", "--python", sys.executable]
    status, said = line.run("probe", *arguments, "--json", str(target), "--", *command)
    assert status == 0, said
    fingerprint: dict[str, Any] = json.loads(target.read_text())["result"]["fingerprint"]
    target.unlink()
    return fingerprint


@pytest.mark.scenario
@pytest.mark.timeout(600)
def test_commits_probed_out_of_order_have_their_own_requirements_and_repeat_bitwise(tmp_path: Path) -> None:
    built = REQUIREMENTS_TRAVEL.build(tmp_path)
    line = CommandLine(built.path, tmp_path / "home")
    settings = {"files": ["requirements.txt"], "find_links": [str(tmp_path / "files" / "wheels")], "index": "none"}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps({"environment": settings}))
    commits = {"D": built.bad, "A": built.good, "B": built.hash_of(TO_TWO), "C": built.hash_of(SWAP)}
    order = "DACAB"
    ran = [_probe(line, commits[name], recipe, built.command) for name in order]
    environments = [dict(fingerprint["facts"])["environment"] for fingerprint in ran]
    of_one, of_two = environments[1], environments[0]
    assert of_one != of_two
    assert environments == [of_one if name == "A" else of_two for name in order]
    bits = [[(step["loss"], step["param_hash"]) for step in fingerprint["ranks"][0]["steps"]] for fingerprint in ran]
    assert bits[1] == bits[3]  # A after D, and after C
    assert [item[0] for item in bits[1]] == [item[0] for item in bits[4]]  # B adapts the code and keeps the numbers
    assert bits[1] != bits[2] == bits[0]  # C breaks it, and D has it still
