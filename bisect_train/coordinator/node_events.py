"""What is stored about the nodes of a cluster, and what that says of each.

nodes_seen      {nodes, notes}: what the executor told, where that is new
node_suspect    {node, why, reason, seqs, keys, requests}: the node is avoided from here on, and what it said (the last three,
                as in "undone") counts no more and is run again; they are empty where it only loses probes
nodes_disagree  {reason}: nobody is left to decide between them, so that there is no answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bisect_train.store.contract import PROBE_FINISHED, StoredEvent

NODES_SEEN = "nodes_seen"
NODE_SUSPECT = "node_suspect"
NODES_DISAGREE = "nodes_disagree"
LOST = "probe_lost"


class Why(str, Enum):
    """Why a node is avoided."""

    LOSES = "loses"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What one bisection has seen of one node.

    Attributes:
        name: of the node.
        num_finished: probes that came to their end there, reused ones left out.
        num_lost: probes that were lost there.
        why: why it is avoided, None while it is not.
        reason: one sentence, "" while it is not.
    """

    name: str
    num_finished: int = 0
    num_lost: int = 0
    why: Why | None = None
    reason: str = ""


def suspects_of(events: Sequence[StoredEvent]) -> dict[str, Why]:
    """Return the nodes that are avoided, the last reason of each; being wrong outweighs losing probes."""
    found: dict[str, Why] = {}
    for event in events:
        if event.kind == NODE_SUSPECT:
            name, why = str(event.data["node"]), Why(event.data["why"])
            found[name] = Why.WRONG if Why.WRONG in (why, found.get(name)) else why
    return found


def node_histories(events: Sequence[StoredEvent], node_of_key: Mapping[str, str]) -> tuple[NodeHistory, ...]:
    """Return what happened on each node, by name; () where the bisection ran on one machine.

    Args:
        node_of_key: where each result was made, by its key.
    """
    told = {str(name) for event in events if event.kind == NODES_SEEN for name in event.data["nodes"]}
    if not told:
        return ()
    finished = [node_of_key.get(str(event.data["key"]), "") for event in events if event.kind == PROBE_FINISHED]
    lost = [str(event.data.get("node", "")) for event in events if event.kind == LOST]
    suspects = suspects_of(events)
    reasons = {str(event.data["node"]): str(event.data["reason"]) for event in events if event.kind == NODE_SUSPECT}
    names = sorted({*told, *finished, *lost, *suspects} - {""})
    return tuple(
        NodeHistory(name, finished.count(name), lost.count(name), suspects.get(name), reasons.get(name, "")) for name in names
    )


def notes_of(events: Sequence[StoredEvent]) -> tuple[str, ...]:
    """Return what the executor said of the cluster, each note once."""
    return tuple(dict.fromkeys(str(note) for event in events if event.kind == NODES_SEEN for note in event.data["notes"]))


def disagreement_of(events: Sequence[StoredEvent]) -> str:
    """Return why no answer is possible, unless the bisection was started again since; "" otherwise."""
    for event in reversed(events):
        if event.kind == NODES_DISAGREE:
            return str(event.data["reason"])
        if event.kind == "started":
            return ""
    return ""
