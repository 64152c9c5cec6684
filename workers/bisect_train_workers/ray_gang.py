"""Gangs on Ray: a placement group that reserves room on all nodes of a probe at once, and an actor on each further node.

The coordinator makes the group; the probe's task, on the first node, starts the actors in it. They belong to the task's
worker, so that they end when it does, and what is left of them ends with the group.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from bisect_train.core.errors import MachineError
from bisect_train.core.executor import ExecutorEvent, ProbeProgress
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.cluster import ClusterNode
from bisect_train_workers.command import Share
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.gang import Gang, Gather, Member, News
from bisect_train_workers.gang_member import GangMember, Prepared
from bisect_train_workers.node import NodeError
from bisect_train_workers.placement import Resources, task_options
from bisect_train_workers.probe_run import LostError
from bisect_train_workers.ray_node import Planned, context_on_node, is_elsewhere
from bisect_train_workers.upkeep import bound_node

_ANSWER_S = 60.0
"""A member that has not answered a question for this long is given up, seconds."""
_LOOK_S = 0.5
"""Time between two looks at whether all members are prepared, seconds."""
_END_S = 60.0
"""Time that members get to end their programs and to remove their folders, seconds."""
_REACH_S = 10.0
"""Time in which a member must reach the first node, seconds."""
_NODE_LABEL = "ray.io/node-id"


@dataclass(frozen=True, slots=True)
class GangPlan:
    """Where a probe of several nodes runs.

    Attributes:
        group: the placement group; its n-th bundle is for the n-th node.
        nodes: the first is where the probe's task runs.
    """

    group: PlacementGroup
    nodes: tuple[Planned, ...]


def reserve(nodes: Sequence[ClusterNode], wanted: Resources) -> PlacementGroup:
    """Return a placement group of one bundle on each of these nodes, which Ray grants as a whole or not yet.

    Raises:
        MachineError: this Ray cannot say on which nodes.
    """
    if "bundle_label_selector" not in inspect.signature(placement_group).parameters:
        raise MachineError(
            f"Ray {ray.__version__} cannot choose the nodes of a placement group, which ranks on several nodes need",
            hint="take a newer Ray (2.49 can), or at most `ranks_per_node` ranks",
        )
    group: PlacementGroup = placement_group(
        [dict(wanted)] * len(nodes),
        strategy="STRICT_SPREAD",
        bundle_label_selector=[{_NODE_LABEL: node.id} for node in nodes],
    )
    return group


def give_back(group: PlacementGroup | None) -> None:
    """Remove a group, with whatever still runs in it."""
    if group is not None:
        with contextlib.suppress(RayError, RuntimeError, ValueError):
            remove_placement_group(group)


def in_bundle(group: PlacementGroup, idx: int) -> PlacementGroupSchedulingStrategy:
    """Return the strategy by which something runs in one bundle of a group."""
    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=idx)


def gather_with(plan: GangPlan, pack_refs: dict[str, list[Any]], *, address: str) -> Gather:
    """Return what calls the members of a probe; the ranks meet at `address`, which is this node's."""

    @contextlib.contextmanager
    def gather(job: ProbeJob, port: int) -> Iterator[Gang]:
        members: list[_RayMember] = []
        try:
            for idx, planned in enumerate(plan.nodes[1 : job.nodes], start=1):
                options = {key: value for key, value in task_options(job.settings).items() if key != "max_retries"}
                remote = ray.remote(MemberActor).options(
                    **options, max_restarts=0, scheduling_strategy=in_bundle(plan.group, idx)
                )
                share = Share(idx, job.nodes, address)
                actor: Any = remote.remote(job, pack_refs, planned, share, port)
                members.append(_RayMember(planned.name, actor, actor.prepare.remote()))
            yield _RayGang(job.id, members, (address, port))
        finally:
            _end_all(members)

    return gather


class MemberActor:
    """A member in a Ray worker on its own node."""

    def __init__(self, job: ProbeJob, pack_refs: dict[str, list[Any]], planned: Planned, share: Share, port: int) -> None:
        self._reason = is_elsewhere(planned, job.settings.gpus)
        context = context_on_node(planned, pack_refs)
        self._home = context.home
        self._member = GangMember(job, context, share=share, port=port)

    def prepare(self) -> Prepared:
        """See `GangMember.prepare`."""
        return Prepared(lost=self._reason) if self._reason else self._member.prepare()

    def can_reach(self, address: str, port: int) -> str:
        """Return "" if this node reaches the first one there, else why not."""
        try:
            socket.create_connection((address, port), timeout=_REACH_S).close()
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def start(self) -> None:
        """See `GangMember.start`."""
        self._member.start()

    def news(self) -> News:
        """See `GangMember.news`."""
        return self._member.news()

    def stop(self) -> News:
        """See `GangMember.stop`."""
        return self._member.stop()

    def end(self) -> None:
        """See `GangMember.end`; the node's cache is kept within its limit."""
        self._member.end()
        bound_node(self._home)


@dataclass(slots=True)
class _RayMember:
    """A member as the first node reaches it."""

    name: str
    actor: Any
    preparing: Any

    def start(self) -> None:
        self.ask(self.actor.start.remote())

    def news(self) -> News:
        news: News = self.ask(self.actor.news.remote())
        return news

    def stop(self) -> News:
        news: News = self.ask(self.actor.stop.remote())
        return news

    def ask(self, ref: Any) -> Any:
        try:
            return ray.get(ref, timeout=_ANSWER_S)
        except RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise LostError(f"its ranks on {self.name}: {type(error).__name__}: {lines[-1][:300] if lines else ''}") from error


def _end_all(members: Sequence[_RayMember]) -> None:
    """End members in good order, all at once, else by force."""
    with contextlib.suppress(RayError):
        ends = [member.actor.end.remote() for member in members]
        ray.wait(ends, num_returns=len(ends), timeout=_END_S) if ends else None
    for member in members:
        with contextlib.suppress(RayError):
            ray.kill(member.actor)


@dataclass(slots=True)
class _RayGang:
    """The members of one probe; see `gang.Gang`."""

    job_id: str
    members: Sequence[_RayMember]
    place: tuple[str, int]
    warnings: list[str] = field(default_factory=list)

    def prepared(self) -> Generator[ExecutorEvent, None, Sequence[Member]]:
        """Wait until all members could start, however long an environment takes to be built."""
        yield ProbeProgress(self.job_id, "nodes")
        waiting = {member.preparing: member for member in self.members}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_LOOK_S)
            for ref in ready:
                member = waiting.pop(ref)
                self._take(member.ask(ref), member.name)
        self._meet()
        return self.members

    def _meet(self) -> None:
        """Have each member connect once to where the ranks will meet: what is in between must not look like their hang."""
        address, port = self.place
        with socket.create_server(("", port)):
            reaching = [(member, member.actor.can_reach.remote(address, port)) for member in self.members]
            for member, ref in reaching:
                if why := member.ask(ref):
                    raise LostError(f"{member.name} does not reach {address}:{port}, where the ranks meet: {why}")

    def _take(self, found: Prepared, name: str) -> None:
        if found.cannot_start:
            raise CannotStartError(found.cannot_start)
        if found.node_trouble:
            is_named = f" on {name}" in found.node_trouble
            raise NodeError(found.node_trouble if is_named else f"{found.node_trouble} on {name}")
        if found.lost:
            raise LostError(found.lost)
        self.warnings += [warning for warning in found.warnings if warning not in self.warnings]
