"""The cache after real probes: brought under its limit when a run ends, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bisect_train_workers.node import NodeHome
from bisect_train_workers.upkeep import LOOK_AGAIN_S, bound_node
from tests.support.command_line import CommandLine
from tests.support.training_repo import COMMAND, build_training_repo


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A home in which one probe has run, with its checkout kept for a person."""
    folder = tmp_path_factory.mktemp("real")
    repo = build_training_repo(folder / "repo", num_commits=1, culprit=0, num_steps=3).repo
    command = CommandLine(repo.path, folder / "home", {"BISECT_TRAIN_CACHE_LIMIT": "1kB"})
    status, output = command.run("probe", "--steps", "2", "--keep", "--quiet", "--", *COMMAND)
    assert status == 0, output
    return command


def test_node_is_under_its_limit_when_a_run_has_ended(ran: CommandLine, tmp_path: Path) -> None:
    status, output = ran.run("cache", "ls", "--json", str(tmp_path / "cache.json"))
    assert status == 0, output
    data = json.loads((tmp_path / "cache.json").read_text())
    assert sorted(item["kind"] for item in data["items"]) == ["kept probe", "mirror", "packs"], "checkouts and mirror went"
    assert data["results"][0]["num"] == 1 and "torch" in data["results"][0]["interpreter"]
    assert data["results"][0]["num_reusable"] == 0, "a single probe is always fresh"
    assert (ran.home / "node/bounded").is_file()
    assert (
        bound_node(NodeHome(ran.home / "node"), environ={}, now_s=(ran.home / "node/bounded").stat().st_mtime + LOOK_AGAIN_S)
        == []
    )


def test_real_cache_is_well_and_nothing_is_left_once_it_is_emptied(ran: CommandLine) -> None:
    status, output = ran.run("cache", "verify")
    assert status == 0 and "1 of 1 decode and are those of their keys: 1 of one bisection only" in output, output
    status, output = ran.run("cache", "gc", "--max-size", "0", "--kept", "--bisections-older-than", "0")
    assert status == 0 and "nothing is left behind" in output, output
    assert ran.living() == []
    files = [path for path in ran.home.rglob("*") if path.is_file() and path.stat().st_size]
    kept = {path.name for path in files if "mirrors" not in path.parts}
    assert kept <= {"bisect-train.db", "bisect-train.db-wal", "bisect-train.db-shm", "bounded"}, sorted(files)
    status, output = ran.run("cache", "verify")
    assert status == 0, output
