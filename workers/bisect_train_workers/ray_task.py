"""What runs inside Ray workers. Ray finds these functions by name, so both sides need this module."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from bisect_train.core.executor import ExecutorEvent, ProbeLost
from bisect_train.core.probe import ProbeJob, RunSettings
from bisect_train_workers.node import NAME_VARIABLE, find_node_home
from bisect_train_workers.node_facts import NodeFacts, find_hardware, find_node_facts
from bisect_train_workers.probe_task import NodeTrouble, TaskContext, run_probe
from bisect_train_workers.program import Coordinator
from bisect_train_workers.upkeep import bound_node

CARRIED_FOLDER = "carried"
"""Beside our own code on a node: packages that it may lack."""
_CARRIED = Path(__file__).resolve().parents[1] / CARRIED_FOLDER
if _CARRIED.is_dir():
    sys.path.append(str(_CARRIED))


@dataclass(frozen=True, slots=True)
class Planned:
    """Where the coordinator of a cluster means a probe to run.

    Attributes:
        node_id: Ray's id of the node.
        name: what the coordinator calls it.
        hardware: its hardware class.
    """

    node_id: str
    name: str
    hardware: str


def run_probe_task(
    job: ProbeJob,
    pack_refs: dict[str, list[Any]],
    coordinator: Coordinator | None,
    node_home: str,
    planned: Planned | None = None,
) -> Iterator[ExecutorEvent | NodeTrouble]:
    """Run one probe in a Ray worker.

    Args:
        job: without the content of its packs.
        pack_refs: by pack id a list of one reference: Ray must not fetch what the node has already.
        coordinator: whose end ends the probe; None unless it runs on this machine.
        node_home: the node's cache folder where the coordinator chose it (a local Ray), else "".
        planned: where it is meant to run; elsewhere its numbers would not compare, and it is lost. None on a local Ray.
    """
    if planned is not None:
        os.environ[NAME_VARIABLE] = planned.name
        if reason := _is_elsewhere(planned, job.settings.gpus):
            yield ProbeLost(job.id, reason, planned.name)
            return
    home = find_node_home(node_home)

    def load_pack(pack_id: str) -> bytes:
        data: bytes = ray.get(pack_refs[pack_id][0])
        return data

    yield from run_probe(job, TaskContext(home, tuple(pack_refs), load_pack, coordinator))
    if coordinator is None:  # on a cluster nobody else comes by; at home the coordinator does it once all probes have ended
        bound_node(home)


def find_facts_task(settings: RunSettings) -> NodeFacts:
    """Return a worker's node facts."""
    return find_node_facts(settings)


def _is_elsewhere(planned: Planned, gpus: float) -> str:
    """Return why this worker is not where a probe is meant to run, "" if it is."""
    node_id = ray.get_runtime_context().get_node_id()
    if node_id != planned.node_id:
        return f"it came to another node than {planned.name}: {node_id}"
    hardware = _find_hardware(gpus)
    return "" if hardware == planned.hardware else f"{planned.name} is {hardware}, and not {planned.hardware} as it said before"


@functools.cache
def _find_hardware(gpus: float) -> str:
    """Return this process's hardware class; asking for GPUs takes a moment, and a process stays where it is."""
    return find_hardware(gpus)
