"""Probes whose ranks are spread over several nodes of a Ray cluster: the same numbers as on one, and nothing left of them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
import ray
from ray.util import placement_group_table

from bisect_train.core.errors import InputError
from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import EndingKind, Fingerprint
from bisect_train.core.probe import MetricPattern, ProbeJob, ProbeResult
from bisect_train_workers.ray_executor import RayExecutor
from tests.support.probes import job_of
from tests.support.ray_nodes import JOIN, SETTINGS, RayNodes, ends_of, ray_nodes

TWO_NODES = replace(SETTINGS, needs_recorder=True, ranks_per_node=1, nodes=2)
TRAIN = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, node = dist.get_rank(), os.environ["BT_TEST_NODE"]
torch.manual_seed(3)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = model(torch.full((2, 4), 1.0 + rank + step)).pow(2).mean()
    FAULT
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(f"rank {rank} on {node} step {step} loss{rank} {loss.item():.6f}", flush=True)
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    with ray_nodes(tmp_path_factory.mktemp("gang")) as found, mock.patch.dict(os.environ, JOIN):
        found.add("head", num_cpus=0)
        for name in ("a", "b", "c"):
            found.add(name, env={"BT_TEST_NODE": name})
        yield found


@pytest.fixture(scope="module")
def executor(nodes: RayNodes) -> Iterator[RayExecutor]:
    found = RayExecutor(TWO_NODES, address=nodes.address)
    yield found
    found.close()


def job(folder: Path, fault: str = "pass", *, steps: int | None = 4, **settings: Any) -> ProbeJob:
    return job_of(
        folder / "r",
        TRAIN.replace("FAULT", fault),
        id=folder.name,
        ranks=2,
        steps=steps,
        settings=replace(TWO_NODES, **settings),
    )


def result_of(end: ExecutorEvent) -> ProbeResult:
    assert isinstance(end, ProbeFinished), end
    return end.result


def losses(found: Fingerprint) -> list[list[float | None]]:
    return [[step.loss for step in rank.steps] for rank in found.ranks]


def hashes(found: Fingerprint) -> list[list[str | None]]:
    return [[step.param_hash for step in rank.steps] for rank in found.ranks]


def groups_left() -> list[dict[str, Any]]:
    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def wait_until_gone(nodes: RayNodes, *names: str) -> None:
    """Wait until no node has a program or a probe's folder left, and no room is reserved."""
    deadline = time.monotonic() + 30.0
    left: list[Any] = ["?"]
    while left:
        assert time.monotonic() < deadline, left
        programs = trainings()
        folders = [path for name in names for path in (nodes.home(name) / "probes").glob("*")]
        left = [*programs, *folders, *groups_left()]
        time.sleep(0.2)


def trainings() -> list[list[str]]:
    """Return the command lines of the programs that run on our nodes."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            command = process.cmdline()
            if "train.py" in command and "BT_TEST_NODE" in process.environ():
                found.append(command)
    return found


def test_ranks_on_two_nodes_give_what_they_give_on_one(tmp_path: Path, nodes: RayNodes, executor: RayExecutor) -> None:
    assert (executor.facts().slots, executor.facts().nodes) == (1, ("a + b",))
    spread, together = job(tmp_path / "spread", every_step=True), job(tmp_path / "together", every_step=True)
    together = replace(together, settings=replace(together.settings, ranks_per_node=0, nodes=1))
    (end,) = ends_of(executor, [spread])
    found = result_of(end)
    assert len(set(found.node.split(" + "))) == 2
    assert found.fingerprint.ending.kind is EndingKind.STOPPED
    printed = set(re.findall(r"rank (\d) on (\w) step 3", found.log_tail))
    assert {rank for rank, _ in printed} == {"0", "1"} and {name for _, name in printed} == set(found.node.split(" + "))
    (end,) = ends_of(executor, [together])
    on_one = result_of(end)
    assert losses(found.fingerprint) == losses(on_one.fingerprint)
    assert hashes(found.fingerprint) == hashes(on_one.fingerprint)
    assert [len(rank.steps) for rank in found.fingerprint.ranks] == [4, 4]
    assert not found.fingerprint.reads.is_complete or found.fingerprint.reads == on_one.fingerprint.reads
    wait_until_gone(nodes, "a", "b", "c")


@pytest.mark.scenario
def test_metric_that_only_the_last_rank_prints_is_read(tmp_path: Path, executor: RayExecutor) -> None:
    pattern = MetricPattern("last", r"loss1 ([0-9.]+)")
    (end,) = ends_of(executor, [job(tmp_path / "printed", steps=None, patterns=(pattern,))])
    found = result_of(end).fingerprint
    assert found.ending.kind is EndingKind.FINISHED
    assert [series.name for series in found.metrics] == ["last"] and len(found.metrics[0].values) == 6


@pytest.mark.scenario
def test_failure_of_one_node_is_the_failure_and_the_other_node_does_not_wait(
    tmp_path: Path, nodes: RayNodes, executor: RayExecutor
) -> None:
    fault = "if rank == 1 and step == 2: raise ValueError('no such token: 7')"
    (end,) = ends_of(executor, [job(tmp_path / "raised", fault, steps=None)], limit_s=80.0)
    ending = result_of(end).fingerprint.ending
    assert (ending.kind, ending.message) == (EndingKind.CRASHED, "ValueError: no such token: 7")
    wait_until_gone(nodes, "a", "b", "c")


def test_variant_whose_command_does_not_know_of_nodes_cannot_start(tmp_path: Path, executor: RayExecutor) -> None:
    own = job(tmp_path / "own")
    command = ("torchrun", "--nproc-per-node", "{ranks}", "train.py")
    own = replace(own, spec=replace(own.spec, variant=replace(own.spec.variant, command=command)))
    (end,) = ends_of(executor, [own])
    ending = result_of(end).fingerprint.ending
    assert ending.kind is EndingKind.CANNOT_START and "--node-rank {node_rank}" in ending.message


def test_more_nodes_than_there_are_and_a_cancelled_probe(tmp_path: Path, nodes: RayNodes, executor: RayExecutor) -> None:
    four = job(tmp_path / "four", nodes=4)
    with pytest.raises(InputError, match=r"one probe takes 4 nodes of one class .* 3 of 3 nodes have that"):
        executor.submit(replace(four, spec=replace(four.spec, rung=replace(four.spec.rung, ranks=4))))
    executor.submit(job(tmp_path / "forever", "import time; time.sleep(300)", steps=None))
    while len(trainings()) < 4:  # two ranks, each under its torchrun
        executor.wait(0.2)
    executor.cancel("forever")
    wait_until_gone(nodes, "a", "b", "c")


@pytest.mark.scenario
def test_node_that_dies_loses_the_probe_and_the_others_run_it(tmp_path: Path, nodes: RayNodes, executor: RayExecutor) -> None:
    mark = tmp_path / "begun"
    fault = f"open({str(mark)!r}, 'w').write(node) if rank == 1 and step == 1 else None; import time; time.sleep(2.0)"
    executor.submit(job(tmp_path / "dying", fault))
    ends: list[ExecutorEvent] = []
    while not ends:
        ends += [event for event in executor.wait(0.2) if isinstance(event, (ProbeFinished, ProbeLost))]
        if mark.exists() and mark.read_text():
            dead = mark.read_text()
            mark.unlink()
            nodes.kill(dead)
    (lost,) = ends
    assert isinstance(lost, ProbeLost) and dead in lost.node.split(" + ")
    (end,) = ends_of(executor, [replace(job(tmp_path / "again"), avoid=(lost.node,))])
    assert set(result_of(end).node.split(" + ")) == {"a", "b", "c"} - {dead}
    wait_until_gone(nodes, *{"a", "b", "c"} - {dead})
    assert ray.is_initialized()
