"""Nodes of a Ray cluster that cannot be used, that die and that join, and a whole bisection on nodes that share no folder."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.executor import ProbeLost
from bisect_train.store.home import open_store
from bisect_train_workers import cluster_nodes
from bisect_train_workers.ray_executor import RayExecutor
from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo
from tests.support.ray_nodes import JOIN, SETTINGS, RayNodes, ends_of, jobs_of, nodes_of, ray_nodes

NUM_COMMITS, CULPRIT = 12, 7
TRAIN = """\
import random, time, level
random.seed(3)
for step in range(4):
    time.sleep(0.05)
    print(f"step {step} loss {level.LEVEL + random.gauss(0, 0.01):.6f}", flush=True)
"""
RECIPE = {
    "command": ["python", "train.py"],
    "shrink": {"steps": ["end"]},
    "metrics": {"loss": {"from": "log", "pattern": "loss ([0-9.]+)", "better": "lower"}},
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RayNodes]:
    with ray_nodes(tmp_path) as found, mock.patch.dict(os.environ, JOIN):
        yield found


def test_nodes_that_cannot_be_used_are_told_and_left_out_while_there_are_others(
    tmp_path: Path, nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_nodes, "ANSWER_S", 3.0)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ -z "$SLOW" ] || sleep 100\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    nodes.add("well")
    nodes.add("slow", env={"SLOW": "1"})
    nodes.add("full", env={"BISECT_TRAIN_NODE_HOME": "/sys/bisect-train"})
    without = RayExecutor(replace(SETTINGS, python="/no/such/python"), address=nodes.address)
    with pytest.raises(MachineError, match=r"no node can run probes; full: the interpreter /no/such/python") as caught:
        without.facts()
    assert "--python" in caught.value.hint
    without.close()
    executor = RayExecutor(replace(SETTINGS, python=str(python)), address=nodes.address)
    try:
        while executor.facts().nodes != ("full", "well"):
            time.sleep(0.2)
        assert executor.facts().notes == ("1 node is not used (slow): no answer within 3 s",)
        (lost,) = ends_of(executor, jobs_of(tmp_path / "first", 1, avoid=("well",)))
        assert isinstance(lost, ProbeLost) and lost.node == "full" and "/sys/bisect-train" in lost.reason
        facts = executor.facts()
        assert facts.nodes == ("well",) and "is not used (full): cannot write" in facts.notes[0]
        assert len(facts.notes) == 2
        assert nodes_of(ends_of(executor, jobs_of(tmp_path / "again", 2))) == ["well"] * 2
    finally:
        executor.close()


@pytest.mark.scenario
def test_bisection_on_four_nodes_survives_a_dead_one_and_uses_a_new_one(tmp_path: Path, nodes: RayNodes) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commits = [
        repo.commit({"train.py": TRAIN, "level.py": f"LEVEL = {2.0 if idx >= CULPRIT else 1.0}\n", f"notes{idx}.txt": "note\n"})
        for idx in range(NUM_COMMITS)
    ]
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    for name in ("one", "two", "three", "four"):
        nodes.add(name)
    line = CommandLine(repo.path, tmp_path / "home", env=dict(JOIN))
    asked = [
        "--good",
        commits[0],
        "--recipe",
        str(tmp_path / "recipe.yaml"),
        "--python",
        sys.executable,
        "--no-warm",
        "--quiet",
    ]
    with (tmp_path / "out.txt").open("w") as output:
        process = line.start("run", *asked, "--address", nodes.address, "--json", str(tmp_path / "report.json"), output=output)
        while sum(event.kind == "probe_finished" for event in line.events()) < 3:
            assert process.poll() is None, (tmp_path / "out.txt").read_text()
            time.sleep(0.05)
        nodes.kill("three")
        nodes.add("five")
        status = process.wait(200)
    assert status == 0, (tmp_path / "out.txt").read_text()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["status"] == "isolated"
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT]]
    store = open_store(line.home)
    used = {stored.result.node for stored in store.results(store.list()[0].id)}
    store.close()
    assert used >= {"one", "two", "four", "five"}, used
    for name in used:
        assert list((nodes.home(name) / "repos").glob("*/mirror.git")), name
    assert not (line.home / "node").exists()


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("127.0.0.1:1", MachineError, "Ray could not be reached at 127.0.0.1:1: "),
        ("ray://127.0.0.1:10001", InputError, "the address of a Ray client"),
    ],
)
def test_address_that_cannot_be_joined_is_told_at_once(address: str, error: type[Exception], said: str) -> None:
    executor = RayExecutor(SETTINGS, address=address)
    with pytest.raises(error, match=said):
        executor.facts()
    executor.close()
