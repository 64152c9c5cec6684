"""What runs inside Ray workers. Ray finds these functions by name, so both sides need this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ray

from bisect_train.core.executor import ExecutorEvent
from bisect_train.core.probe import ProbeJob, RunSettings
from bisect_train_workers.node import find_node_home
from bisect_train_workers.node_facts import NodeFacts, find_node_facts
from bisect_train_workers.probe_task import NodeTrouble, TaskContext, run_probe
from bisect_train_workers.program import Coordinator
from bisect_train_workers.upkeep import bound_node


def run_probe_task(
    job: ProbeJob, pack_refs: dict[str, list[Any]], coordinator: Coordinator | None, node_home: str
) -> Iterator[ExecutorEvent | NodeTrouble]:
    """Run one probe in a Ray worker.

    Args:
        job: without the content of its packs.
        pack_refs: by pack id a list of one reference: Ray must not fetch what the node has already.
        coordinator: whose end ends the probe; None unless it runs on this machine.
        node_home: the node's cache folder where the coordinator chose it (a local Ray), else "".
    """
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
