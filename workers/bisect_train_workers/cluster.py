"""The nodes of a cluster as placing sees them: their names, their classes, and on which one a probe runs; pure.

Numbers compare only within one hardware class and one interpreter. So all probes of a bisection run on the nodes of one class,
the one that has room for most probes, and the others are left out and named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bisect_train.core.probe import join_nodes
from bisect_train_workers.placement import Resources, count_gangs, count_slots, left_of

_ID_LETTERS = 6
_NAMED = 5
"""Nodes that a note lists by name before it says how many more there are."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """What the numbers of a probe depend on, see `core.probe.MachineFacts`."""

    hardware: str
    interpreter: str


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A living node.

    Attributes:
        id: Ray's, hexadecimal.
        name: unique among the nodes that live at the same time, and readable.
        has: all its resources, whoever takes them.
    """

    id: str
    name: str
    has: Resources = field(hash=False)


def read_nodes(table: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> tuple[ClusterNode, ...]:
    """Return the living nodes of `ray.nodes()`, by name.

    Args:
        table: what Ray says of its nodes, living and dead.
        names: by id those that were given earlier: a node keeps its name.
    """
    living = {str(row["NodeID"]): row for row in table if row["Alive"]}
    given = name_nodes({node_id: label_of(row) for node_id, row in living.items()}, names)
    nodes = [ClusterNode(node_id, given[node_id], dict(row["Resources"])) for node_id, row in living.items()]
    return tuple(sorted(nodes, key=lambda node: node.name))


def label_of(row: Mapping[str, Any]) -> str:
    """Return what a person calls a node of `ray.nodes()`: the name it was started with, else its host, else its address."""
    address, name = str(row.get("NodeManagerAddress") or ""), str(row.get("NodeName") or "")
    if name and name != address:
        return name
    return str(row.get("NodeManagerHostname") or "") or address or str(row["NodeID"])[:_ID_LETTERS]


def name_nodes(labels: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return unique names of living nodes: a label, with some of the id behind it where several have the same.

    Args:
        labels: by id.
        names: by id those that were given earlier.
    """
    found = {node_id: names[node_id] for node_id in labels if node_id in names}
    new = {node_id: label for node_id, label in labels.items() if node_id not in found}
    counts = Counter(new.values())
    taken = set(found.values())
    for node_id, label in sorted(new.items()):
        is_alone = counts[label] == 1 and label not in taken
        found[node_id] = label if is_alone else f"{label}-{node_id[:_ID_LETTERS]}"
        if found[node_id] in taken:  # ids that begin alike
            found[node_id] = f"{label}-{node_id}"
        taken.add(found[node_id])
    return found


def choose_class(
    nodes: Iterable[ClusterNode], classes: Mapping[str, NodeClass], wanted: Resources, *, at_once: int = 1
) -> NodeClass | None:
    """Return the class whose nodes hold most probes, of several that hold as many that of the first node by name.

    Args:
        nodes: that live.
        classes: by a node's id; those that have none yet do not count.
        wanted: resources of one probe on one node.
        at_once: nodes that one probe takes.
    Returns:
        None where the nodes of no known class have room.
    """
    slots: dict[NodeClass, list[int]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.name):
        if node.id in classes:
            slots[classes[node.id]].append(count_slots(wanted, node.has))
    gangs = {found: count_gangs(counts, at_once) for found, counts in slots.items()}
    best = max(gangs.values(), default=0)
    return next((found for found, num in gangs.items() if num == best), None) if best else None


def name_gangs(names: Sequence[str], at_once: int) -> tuple[str, ...]:
    """Return names of nodes that share none: each of one node, or of as many as one probe takes."""
    return tuple(join_nodes(names[idx : idx + at_once]) for idx in range(0, len(names) - at_once + 1, at_once))


def of_class(nodes: Iterable[ClusterNode], classes: Mapping[str, NodeClass], chosen: NodeClass | None) -> list[ClusterNode]:
    """Return the nodes of one class."""
    return [node for node in nodes if chosen is not None and classes.get(node.id) == chosen]


def say_left_out(
    nodes: Sequence[ClusterNode], classes: Mapping[str, NodeClass], chosen: NodeClass | None, troubles: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a note for each class that is left out, and for each kind of trouble.

    Args:
        nodes: that live and have room for a probe.
        classes: by a node's id.
        chosen: the class whose nodes are used.
        troubles: by a node's id why it is not used, whatever its class is.
    """
    others: dict[NodeClass, list[str]] = defaultdict(list)
    broken: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.id in troubles:
            broken[troubles[node.id]].append(node.name)
        elif node.id in classes and chosen is not None and classes[node.id] != chosen:
            others[classes[node.id]].append(node.name)
    notes = [_say_other(found, names, chosen) for found, names in others.items() if chosen is not None]
    notes += [f"{_say_nodes(names)} not used ({_list(names)}): {why}" for why, names in broken.items()]
    return tuple(notes)


def _say_other(found: NodeClass, names: Sequence[str], chosen: NodeClass) -> str:
    if found.hardware != chosen.hardware:
        what, rule = f"with other hardware ({found.hardware})", "numbers compare only within one hardware class"
    else:
        what, rule = f"with another interpreter or other packages ({found.interpreter})", "numbers compare only within the same"
    return f"{_say_nodes(names, what)} not used ({_list(names)}): {rule}"


def _say_nodes(names: Sequence[str], what: str = "") -> str:
    is_one = len(names) == 1
    return " ".join([f"{len(names)} node{'' if is_one else 's'}", *([what] if what else []), "is" if is_one else "are"])


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def choose_nodes(
    nodes: Sequence[ClusterNode],
    wanted: Resources,
    taken: Mapping[str, Sequence[Resources]],
    *,
    at_once: int = 1,
    avoid: Collection[str] = (),
    busy: Collection[str] = (),
    shaky: Collection[str] = (),
    num_run: Mapping[str, int] | None = None,
) -> tuple[ClusterNode, ...]:
    """Return the nodes on which a probe should run now, () while there is no room for it.

    Args:
        nodes: that live and are of the class.
        wanted: resources of the probe on each node.
        taken: by a node's id what our own probes take of it.
        at_once: different nodes that it takes.
        avoid: names of nodes that are taken only where there are not enough others that could ever hold it.
        busy: ids of nodes that others use so much that Ray would let the probe wait.
        shaky: ids of nodes that may be dead already. They come last; a probe of several nodes, which each one can end, waits
            for others.
        num_run: by a node's id how many probes it was given so far; of nodes that are as free, the one with fewest.
    """
    able = [node for node in nodes if count_slots(wanted, node.has) >= 1]
    if at_once > 1 and sum(node.id not in shaky for node in able) >= at_once:
        able = [node for node in able if node.id not in shaky]
    others = [node for node in able if node.name not in avoid]
    allowed = others if len(others) >= at_once else able
    free = [(node, count_slots(wanted, left_of(node.has, taken.get(node.id, ())))) for node in allowed]
    num_run = num_run or {}

    def rank(item: tuple[ClusterNode, int]) -> tuple[bool, bool, float, int, str]:
        node, num_free = item
        share = num_free / count_slots(wanted, node.has)
        return (node.name in avoid, node.id in busy or node.id in shaky, -share, num_run.get(node.id, 0), node.name)

    best = sorted((item for item in free if item[1] >= 1), key=rank)[:at_once]
    return tuple(node for node, _ in best) if len(best) == at_once else ()
