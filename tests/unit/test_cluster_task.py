"""A probe's task on a node of a cluster: it runs only where, and on what, the coordinator meant it to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bisect_train.core.executor import ProbeFinished, ProbeLost
from bisect_train_workers import ray_node
from bisect_train_workers.environment import ADDRESS_VARIABLE
from bisect_train_workers.node import NAME_VARIABLE
from bisect_train_workers.node_facts import find_hardware
from bisect_train_workers.ray_node import Planned
from bisect_train_workers.ray_task import run_probe_task
from tests.support.probes import job_of, make_settings

HERE = find_hardware(0.0)


@pytest.fixture(autouse=True)
def _on_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says that this process is on node n1."""
    monkeypatch.setattr(ray_node.ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n1"))
    monkeypatch.setattr(ray_node.ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    for name in (NAME_VARIABLE, ADDRESS_VARIABLE):
        monkeypatch.setenv(name, "")  # the task sets it; taken back afterwards


@pytest.mark.parametrize(
    ("planned", "said"),
    [
        (Planned("n2", "birch", HERE), "it came to another node than birch: n1"),
        (Planned("n1", "birch", "Old CPU, avx"), f"birch is {HERE}, and not Old CPU, avx as it said before"),
    ],
)
def test_probe_that_comes_elsewhere_is_lost_and_runs_nothing(tmp_path: Path, planned: Planned, said: str) -> None:
    job = job_of(tmp_path / "r", "print('ran')\n")
    planned = replace(planned, home=str(tmp_path / "n"))
    assert list(run_probe_task(job, {}, None, "", planned)) == [ProbeLost(job.id, said, "birch")]
    assert not (tmp_path / "n").exists()


def test_probe_where_it_should_be_runs_and_names_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path / "r", "print('ran')\n", settings=make_settings(needs_recorder=False))
    packs = {pack.id: pack.data for pack in job.packs}
    monkeypatch.setattr(ray_node.ray, "get", lambda ref: packs[ref])
    planned = Planned("n1", "birch", HERE, str(tmp_path / "n"))
    events = list(run_probe_task(job, {name: [name] for name in packs}, None, "", planned))
    assert isinstance(events[-1], ProbeFinished)
    assert events[-1].result.node == "birch" and "ran" in events[-1].result.log_tail
    assert (os.environ[NAME_VARIABLE], os.environ[ADDRESS_VARIABLE]) == ("birch", "10.0.0.1")
    assert (tmp_path / "n/repos").is_dir()
