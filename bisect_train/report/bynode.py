"""What a reader must know about the nodes of a cluster: which are avoided and why, and where probes were lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bisect_train.coordinator.node_events import NodeHistory, Why, node_histories, notes_of
from bisect_train.coordinator.person import GIVEN_UP
from bisect_train.report.words import say_count
from bisect_train.search.node_checks import NODE_CHECK
from bisect_train.store.contract import StoredEvent, StoredProbe

MAX_NAMED = 8
WHY_WORDS = {
    Why.WRONG: "its results are not believed and were run again elsewhere",
    Why.LOSES: "it was avoided from then on",
}


def histories_of(events: Sequence[StoredEvent], probes: Iterable[StoredProbe]) -> tuple[NodeHistory, ...]:
    """Return what happened on each node, () where the bisection ran on one machine.

    Args:
        probes: all results of the bisection, those that do not count any more too.
    """
    return node_histories(events, {probe.key: probe.result.node for probe in probes})


def warn_of_nodes(events: Sequence[StoredEvent], probes: Iterable[StoredProbe]) -> tuple[str, ...]:
    """Return one sentence for each node that is avoided, on lost probes and missing words, and what was said of the cluster."""
    nodes = histories_of(events, probes)
    told = [f"node {node.name}: {WHY_WORDS[node.why]}: {node.reason}" for node in nodes if node.why is not None]
    lost = [f"{node.num_lost} on {node.name}" for node in nodes if node.num_lost]
    if lost:
        num = sum(node.num_lost for node in nodes)
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        told.append(f"{say_count(num, 'probe')} lost and run again: {', '.join(lost[:MAX_NAMED])}{more}")
    num_unseen = sum(event.kind == GIVEN_UP and event.data.get("part") == NODE_CHECK for event in events)
    if num_unseen:
        told.append(f"{say_count(num_unseen, 'run')} could not be seen by a second node: the answer rests on the word of one")
    return (*told, *notes_of(events))
