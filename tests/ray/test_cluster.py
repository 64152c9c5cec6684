"""A Ray cluster of several nodes: one class is used, jobs say where they must not run, what cannot be placed is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bisect_train.core.changes import DataLink
from bisect_train.core.errors import InputError
from bisect_train.core.executor import ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import EndingKind
from bisect_train_workers.ray_executor import RayExecutor
from tests.support.ray_nodes import JOIN, SETTINGS, RayNodes, ends_of, jobs_of, nodes_of, ray_nodes


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """Three nodes, one of which has other numerics, as libraries there choose other kernels."""
    with ray_nodes(tmp_path_factory.mktemp("mixed")) as found, mock.patch.dict(os.environ, JOIN):
        found.add("big", num_cpus=2)
        found.add("small", resources={"disk": 1})
        found.add("odd", env={"ATEN_CPU_CAPABILITY": "default"})
        yield found


@pytest.fixture(scope="module")
def executor(mixed: RayNodes) -> Iterator[RayExecutor]:
    found = RayExecutor(SETTINGS, address=mixed.address)
    yield found
    found.close()


def test_nodes_of_one_class_are_used_and_the_others_named(executor: RayExecutor) -> None:
    facts = executor.facts()
    assert (facts.slots, facts.nodes) == (3, ("big", "small"))
    (note,) = facts.notes
    assert note.startswith("1 node with another interpreter or other packages") and "is not used (odd)" in note


def test_probes_spread_over_the_nodes_of_the_class(tmp_path: Path, executor: RayExecutor, mixed: RayNodes) -> None:
    assert set(nodes_of(ends_of(executor, jobs_of(tmp_path, 6)))) == {"big", "small"}
    for name, is_used in (("big", True), ("small", True), ("odd", False)):
        assert bool(list((mixed.home(name) / "repos").glob("*/mirror.git"))) == is_used


def test_avoided_node_runs_nothing_while_there_is_another(tmp_path: Path, executor: RayExecutor) -> None:
    assert nodes_of(ends_of(executor, jobs_of(tmp_path / "a", 3, avoid=("big",)))) == ["small"] * 3
    assert set(nodes_of(ends_of(executor, jobs_of(tmp_path / "b", 2, avoid=("big", "small"))))) <= {"big", "small"}


def test_own_resource_of_a_cluster_places_a_probe(tmp_path: Path, executor: RayExecutor) -> None:
    jobs = jobs_of(tmp_path, 2, settings={"custom": (("disk", 1.0),)})
    assert nodes_of(ends_of(executor, jobs)) == ["small"] * 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"custom": (("disk", 2.0),)}, "the most of any is 1 disk"),
        ({"memory": 10**15}, "1000 TB of memory"),
        ({"accelerator": "H100"}, "no node has the accelerator H100"),
        ({"cpus": 4.0}, "the largest of 2 has 2 CPUs"),
    ],
    ids=["custom", "memory", "accelerator", "cpus"],
)
def test_what_no_node_has_is_refused_at_once(tmp_path: Path, executor: RayExecutor, asked: dict[str, Any], said: str) -> None:
    (job,) = jobs_of(tmp_path, 1, settings=asked)
    with pytest.raises(InputError) as caught:
        executor.submit(job)
    assert said in caught.value.message
    with pytest.raises(InputError):
        executor.adopt(job.settings)
    assert executor.facts().slots == 3


def test_data_that_a_node_lacks_are_told_with_node_and_path(tmp_path: Path, executor: RayExecutor) -> None:
    links = {"links": (DataLink("/no/such/corpus", "corpus"),)}
    (end,) = ends_of(executor, jobs_of(tmp_path, 1, settings=links, avoid=("big",)))
    assert isinstance(end, ProbeFinished)
    assert end.result.fingerprint.ending.kind is EndingKind.CANNOT_START
    assert end.result.fingerprint.ending.message == "the data /no/such/corpus (for corpus) does not exist on small"


def test_probe_whose_worker_dies_is_lost_with_its_node(tmp_path: Path, executor: RayExecutor) -> None:
    kill = "import os, psutil, time\npsutil.Process(os.getppid()).parent().kill()\ntime.sleep(60)\n"
    (end,) = ends_of(executor, jobs_of(tmp_path, 1, kill, avoid=("big",)))
    assert isinstance(end, ProbeLost) and end.node == "small"
