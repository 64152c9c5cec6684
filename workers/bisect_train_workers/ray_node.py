"""What a Ray worker knows of the node that it is on: whether that is the planned one, and what a probe needs there."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from bisect_train_workers.environment import ADDRESS_VARIABLE
from bisect_train_workers.node import NAME_VARIABLE, find_node_home
from bisect_train_workers.node_facts import find_hardware
from bisect_train_workers.program import Coordinator
from bisect_train_workers.workplaces import TaskContext

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
        home: cache folder that the coordinator chose, on its own node; "" leaves it to the node.
    """

    node_id: str
    name: str
    hardware: str
    home: str = ""


def context_on_node(
    planned: Planned | None, pack_refs: dict[str, list[Any]], coordinator: Coordinator | None = None, home: str = ""
) -> TaskContext:
    """Return what a probe's task needs in this worker; a planned node's name and address are noted in the environment.

    Args:
        planned: None on a local Ray.
        pack_refs: by pack id a list of one reference: Ray must not fetch what the node has already.
        coordinator: whose end ends the probe; None unless it runs on this machine.
        home: cache folder of a local Ray.
    """
    address = ""
    if planned is not None:
        address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        os.environ.update({NAME_VARIABLE: planned.name, ADDRESS_VARIABLE: address})

    def load_pack(pack_id: str) -> bytes:
        data: bytes = ray.get(pack_refs[pack_id][0])
        return data

    chosen = planned.home if planned is not None else home
    return TaskContext(find_node_home(chosen), tuple(pack_refs), load_pack, coordinator, address=address)


def is_elsewhere(planned: Planned, gpus: float) -> str:
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
