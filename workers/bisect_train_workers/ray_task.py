"""What runs inside Ray workers. Ray finds these functions by name, so both sides need this module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.probe import ProbeJob, RunSettings, join_nodes
from bisect_train_workers.node_facts import NodeFacts, find_node_facts
from bisect_train_workers.probe_task import NodeTrouble, run_probe
from bisect_train_workers.program import Coordinator
from bisect_train_workers.ray_gang import GangPlan, gather_with
from bisect_train_workers.ray_node import Planned, context_on_node, is_elsewhere
from bisect_train_workers.upkeep import bound_node


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
    if planned is not None and (reason := is_elsewhere(planned, job.settings.gpus)):
        yield ProbeLost(job.id, reason, planned.name)
        return
    context = context_on_node(planned, pack_refs, coordinator, node_home)
    yield from run_probe(job, context)
    if coordinator is None:  # on a cluster nobody else comes by; at home the coordinator does it once all probes have ended
        bound_node(context.home)


def run_gang_task(job: ProbeJob, pack_refs: dict[str, list[Any]], plan: GangPlan) -> Iterator[ExecutorEvent | NodeTrouble]:
    """Run a probe of several nodes from the first of them: as `run_probe_task` does, in the bundles of a placement group."""
    first = plan.nodes[0]
    if reason := is_elsewhere(first, job.settings.gpus):
        yield ProbeLost(job.id, reason, first.name)
        return
    context = context_on_node(first, pack_refs)
    gather = gather_with(plan, pack_refs, address=context.address)
    names = join_nodes(node.name for node in plan.nodes)
    for event in run_probe(job, replace(context, gather=gather)):
        if not isinstance(event, ProbeFinished):
            yield event
            continue
        bound_node(context.home)  # before the last event: the group, and this worker with it, ends right after that
        yield replace(event, result=replace(event.result, node=names))


def find_facts_task(settings: RunSettings) -> NodeFacts:
    """Return a worker's node facts."""
    return find_node_facts(settings)
