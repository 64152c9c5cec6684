"""Probes that wait for room on a cluster: which of them has room now, and on which nodes.

They wait here and not at a node, so that each is begun on the node that is free first, and can be told where none ever will be.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from bisect_train.core.errors import MachineError
from bisect_train.core.probe import ProbeJob, split_nodes
from bisect_train_workers.cluster import ClusterNode, choose_nodes
from bisect_train_workers.cluster_nodes import ClusterNodes
from bisect_train_workers.placement import Resources, count_gangs, count_slots, wanted_of

ONCE_BACK = "`bisect-train resume` once they are back"


class ProbeQueue:
    """The jobs that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._jobs: dict[str, ProbeJob] = {}
        self._num_run: Counter[str] = Counter()
        self._no_room_t: float | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._jobs))

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def add(self, job: ProbeJob) -> None:
        """Let a job wait."""
        self._jobs[job.id] = job

    def drop(self, job_id: str) -> None:
        """Forget a job; unknown ids are ignored."""
        self._jobs.pop(job_id, None)

    def clear(self) -> None:
        """Forget all jobs."""
        self._jobs.clear()

    def place(
        self, cluster: ClusterNodes, taken: Callable[[], Mapping[str, Sequence[Resources]]]
    ) -> Iterator[tuple[ProbeJob, tuple[ClusterNode, ...]]]:
        """Yield each job that has room now, with its nodes; one that finds none does not hold up those behind it.

        Args:
            cluster: its nodes.
            taken: returns by a node's id what our probes take of it; asked anew for each job.
        """
        for job in list(self._jobs.values()):
            wanted = wanted_of(job.settings)
            nodes = choose_nodes(
                cluster.usable(),
                wanted,
                taken(),
                at_once=job.nodes,
                avoid={name for names in job.avoid for name in split_nodes(names)},
                busy=cluster.busy(wanted),
                shaky=cluster.shaky(),
                num_run=self._num_run,
            )
            if nodes:
                del self._jobs[job.id]
                self._num_run.update(node.id for node in nodes)
                yield job, nodes

    def refuse_stuck(self, cluster: ClusterNodes) -> None:
        """Raise MachineError where no node could ever hold what waits, and none has come for a while."""
        if all(_fits(job, cluster.usable()) for job in self._jobs.values()):
            self._no_room_t = None
            return
        now_t = time.monotonic()
        self._no_room_t = self._no_room_t or now_t
        if now_t - self._no_room_t > cluster.patience_s:
            waited = f"for {cluster.patience_s:g} s no node of the class has had room for a probe"
            raise MachineError(f"nodes are gone: {waited}", hint=ONCE_BACK)


def _fits(job: ProbeJob, nodes: Sequence[ClusterNode]) -> bool:
    """Return whether some nodes could ever hold a probe."""
    return count_gangs([count_slots(wanted_of(job.settings), node.has) for node in nodes], job.nodes) > 0
