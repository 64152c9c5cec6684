"""The executor that runs probes as Ray tasks, on this machine or on a cluster.

A probe is one task that is never retried by Ray. It streams its progress and, last, its result; everything that
happened to the user's program is data in it. A Ray exception therefore always means that the infrastructure failed.

On this machine Ray places the probes. On a cluster this executor does: only on nodes of one class (`cluster_nodes`), and each
probe on the node that is free and that the job does not avoid; what has no room yet waits here and not at a node. A probe whose
ranks are spread over several nodes gets a placement group, so that it has room on all of them or waits (`ray_gang`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings, join_nodes
from bisect_train_workers.cluster import ClusterNode, NodeClass
from bisect_train_workers.cluster_nodes import ClusterNodes, last_line, on_node
from bisect_train_workers.node import find_node_home
from bisect_train_workers.placement import Resources, count_gangs, count_slots, require_room, task_options, wanted_of
from bisect_train_workers.probe_folders import sweep_private_folders
from bisect_train_workers.probe_queue import ONCE_BACK, ProbeQueue
from bisect_train_workers.probe_task import NodeTrouble
from bisect_train_workers.processes import start_mark
from bisect_train_workers.program import Coordinator
from bisect_train_workers.ray_gang import GangPlan, give_back, in_bundle, reserve
from bisect_train_workers.ray_node import Planned
from bisect_train_workers.ray_session import RaySession
from bisect_train_workers.ray_task import find_facts_task, run_gang_task, run_probe_task
from bisect_train_workers.upkeep import bound_node

_FACTS_S = 120.0
_AT_ONCE_S = 0.0
_LOOK_S = 30.0
"""Time between two looks at what the nodes have, while no event comes, seconds."""
_CUT_OFF_S = 5.0
"""Time in which a probe on a node that is gone may still end with an error of Ray's, which says more."""
_TURN_S = 1.0
"""Time between two looks at the nodes of a cluster while something runs, seconds."""


@dataclass(slots=True)
class _Running:
    """A probe that Ray runs: its stream of events; on a cluster also where, and what it takes on each node.

    `group` reserves the room of a probe of several nodes.
    """

    job_id: str
    stream: Any
    nodes: tuple[ClusterNode, ...] = ()
    wanted: Resources = field(default_factory=dict)
    group: Any = None

    @property
    def node_name(self) -> str:
        """Where it runs, as in `ProbeResult.node`."""
        return join_nodes(node.name for node in self.nodes)


class RayExecutor:
    """Runs probes on Ray; see `bisect_train.core.executor.Executor`. Ray is started at the first use.

    Args:
        settings: how probes run; its python and its resources decide facts and slots.
        address: of a Ray cluster; "" starts a local Ray that ends with this process.
        temp_folder: where a local Ray keeps its files, if the path is short enough.
        node_home: cache folder of the probes on the coordinator's own node; None leaves it to the environment of the workers,
            as it is on the other nodes of a cluster.
        cpus: logical CPUs of a local Ray; None takes what this process may use.
        parallel: probes at a time for which a cluster that starts nodes by itself is asked for room; 0 takes it as it is.
    """

    def __init__(
        self,
        settings: RunSettings,
        *,
        address: str = "",
        temp_folder: Path | None = None,
        node_home: Path | None = None,
        cpus: int | None = None,
        parallel: int = 0,
    ) -> None:
        self._settings = settings
        self._address = address
        self._temp_folder = temp_folder
        self._node_home = str(node_home.absolute()) if node_home else ""
        self._cpus = cpus
        self._parallel = parallel
        self._session: RaySession | None = None
        self._facts: MachineFacts | None = None
        self._packs: dict[str, Any] = {}
        self._running: dict[str, _Running] = {}
        self._trouble: str = ""
        self._looked_t = time.monotonic()
        self._waiting: list[ExecutorEvent] = []
        self._cluster: ClusterNodes | None = None
        self._queue = ProbeQueue()

    def facts(self) -> MachineFacts:
        """Return hardware, interpreter and slots. Raises InputError where a probe fits on no node, MachineError."""
        if self._facts is None:
            self._start()
            if self._cluster is None:
                require_room(self._settings, _nodes())
                self._facts = self._ask_facts(_count_slots(self._settings))
        if self._cluster is not None:
            with _ray_errors("the cluster does not answer"):
                self._cluster.begin()
                self._cluster.look()
            self._facts = self._cluster.facts()
        assert self._facts is not None
        return self._facts

    def adopt(self, settings: RunSettings) -> None:
        """Take the resources of one probe from other settings from now on: `facts` counts the slots anew."""
        before, after = ((wanted_of(item), item.nodes) for item in (self._settings, settings))
        if self._facts is not None and before != after:
            if self._cluster is not None:
                self._cluster.adopt(settings)
            else:
                require_room(settings, _nodes())
                self._facts = dataclasses.replace(self._facts, slots=_count_slots(settings))
        self._settings = settings

    def submit(self, job: ProbeJob) -> None:
        """Start a probe.

        Raises:
            ValueError: a job with this id is running.
            InputError: no node has what it needs; Ray would wait for such a node for ever.
            MachineError: Ray does not start.
        """
        if job.id in self._running or job.id in self._queue:
            raise ValueError(f"a probe with id {job.id} is running already")
        self._start()
        if self._cluster is None:
            require_room(job.settings, _nodes())
            self._begin(job, ())
            return
        with _ray_errors("the cluster does not answer"):
            self._cluster.begin()
        self._cluster.require_room(job.settings)
        self._queue.add(job)
        self._place()

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Return the events that have come. Raises MachineError when a node's disk is full or read-only."""
        self._raise_trouble()
        deadline = time.monotonic() + timeout_s
        while (self._running or self._queue) and not self._waiting and not self._trouble:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                ready = self._look_around(left_s)
            except RayError as error:
                self._lose_all(f"{type(error).__name__}: {last_line(error)}")
                break
            if not ready and left_s == 0.0:
                self._look_for_room()
                break
            for running in ready:
                self._take_events(running)
        events, self._waiting = self._waiting, []
        if not events:
            self._raise_trouble()
        return events

    def cancel(self, job_id: str) -> None:
        """Stop a probe and all its processes; no event of it is reported afterwards. Unknown ids are ignored."""
        self._waiting = [event for event in self._waiting if _id_of(event) != job_id]
        self._queue.drop(job_id)
        running = self._running.pop(job_id, None)
        if running is not None:
            # force ends the worker; its supervisor notices and ends the program with all it started.
            _stop(running)

    def close(self) -> None:
        """Cancel everything, shut a local Ray down; can be called twice."""
        for job_id in list(self._running):
            self.cancel(job_id)
        self._waiting.clear()
        self._queue.clear()
        self._packs.clear()
        if self._session is not None:
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None
            self._session.close()
            self._session = None
            if not self._address:
                home = find_node_home(self._node_home)
                sweep_private_folders(home)
                bound_node(home)

    def _start(self) -> None:
        if self._session is None:
            self._session = RaySession(address=self._address, temp_folder=self._temp_folder, cpus=self._cpus)
            if self._address:
                known = self._facts
                chosen = NodeClass(known.hardware_class, known.interpreter) if known is not None else None
                self._cluster = ClusterNodes(self._settings, chosen, parallel=self._parallel, say=_say)

    def _coordinator(self) -> Coordinator | None:
        if self._address:
            return None
        return Coordinator(os.getpid(), start_mark(os.getpid()))

    def _ask_facts(self, slots: int) -> MachineFacts:
        task = ray.remote(find_facts_task).options(**task_options(self._settings))
        try:
            found = ray.get(task.remote(self._settings), timeout=_FACTS_S)
        except RayError as error:
            raise MachineError(f"no Ray worker answered: {last_line(error)}", hint="try `ray status`") from error
        if found.error:
            raise MachineError(found.error, hint="name another interpreter with --python")
        return MachineFacts(found.hardware_class, found.interpreter, slots)

    def _begin(self, job: ProbeJob, nodes: tuple[ClusterNode, ...]) -> None:
        """Have Ray run a probe; on a cluster on these nodes or not at all."""
        wanted, group = wanted_of(job.settings), None
        try:
            refs = {pack.id: [self._put_pack(pack.id, pack.data)] for pack in job.packs}
            bare = dataclasses.replace(job, packs=())
            options = task_options(job.settings) | {"num_returns": "streaming"}
            if len(nodes) > 1:
                group = reserve(nodes, wanted)
                task = ray.remote(run_gang_task).options(**options, scheduling_strategy=in_bundle(group, 0))
                stream = task.remote(bare, refs, GangPlan(group, self._planned(nodes)))
            elif nodes:
                (planned,) = self._planned(nodes)
                task = ray.remote(run_probe_task).options(**options, scheduling_strategy=on_node(planned.node_id))
                stream = task.remote(bare, refs, None, "", planned)
            else:
                stream = ray.remote(run_probe_task).options(**options).remote(bare, refs, self._coordinator(), self._node_home)
        except (RayError, OSError) as error:
            give_back(group)
            raise MachineError(f"Ray does not take the probe: {last_line(error)}", hint="is the disk full?") from error
        self._running[job.id] = _Running(job.id, stream, nodes, wanted, group)

    def _planned(self, nodes: Sequence[ClusterNode]) -> tuple[Planned, ...]:
        """Return where a probe is meant to run, in the words that its task is told."""
        assert self._cluster is not None and self._cluster.chosen is not None
        hardware, own = self._cluster.chosen.hardware, _own_node()
        return tuple(Planned(node.id, node.name, hardware, self._node_home if node.id == own else "") for node in nodes)

    def _place(self) -> None:
        """Begin what waits and has room now."""
        if self._cluster is not None:
            for job, nodes in self._queue.place(self._cluster, self._taken):
                self._begin(job, nodes)

    def _taken(self) -> dict[str, list[Resources]]:
        """Return by node what our probes take."""
        taken: dict[str, list[Resources]] = defaultdict(list)
        for running in self._running.values():
            for node in running.nodes:
                taken[node.id].append(running.wanted)
        return taken

    def _look_around(self, left_s: float) -> list[_Running]:
        """Wait for events, on a cluster a moment only; return the probes that have some. New and dead nodes are noticed."""
        if self._cluster is not None:
            self._cluster.look()
            self._lose_on_gone_nodes(self._cluster)
            self._place()
            left_s = min(left_s, _TURN_S)
        if not self._running:
            time.sleep(left_s)
            return []
        streams = {running.stream: running for running in self._running.values()}
        ready, _ = ray.wait(list(streams), num_returns=1, timeout=left_s, fetch_local=True)
        return [streams[stream] for stream in ready]

    def _put_pack(self, pack_id: str, data: bytes) -> Any:
        if pack_id not in self._packs:
            self._packs[pack_id] = ray.put(data)
        return self._packs[pack_id]

    def _take_events(self, running: _Running) -> None:
        """Take all events of a stream that are there."""
        while running.job_id in self._running:
            ready, _ = ray.wait([running.stream], timeout=_AT_ONCE_S, fetch_local=True)
            if not ready:
                return
            try:
                self._take(running.job_id, ray.get(next(running.stream)))
            except StopIteration:
                self._finish(ProbeLost(running.job_id, "the worker ended without a result"))
            except RayError as error:
                self._note_lost(running.nodes, "")
                self._finish(ProbeLost(running.job_id, f"{type(error).__name__}: {last_line(error)}"))

    def _take(self, job_id: str, event: ExecutorEvent | NodeTrouble) -> None:
        if isinstance(event, NodeTrouble):
            self._take_trouble(job_id, event.message)
        elif isinstance(event, (ProbeFinished, ProbeLost)):
            running = self._running[job_id]
            if running.group is not None:
                _let_end(running.stream)
                if isinstance(event, ProbeLost):
                    self._note_lost(running.nodes, event.reason)
            self._finish(event)
        else:
            self._waiting.append(event)

    def _note_lost(self, nodes: Sequence[ClusterNode], reason: str) -> None:
        """Take note that a worker was lost: of several nodes on the one that the reason names, else on any of them."""
        named = [node for node in nodes if f" on {node.name}:" in reason]
        for node in named or nodes:
            assert self._cluster is not None
            self._cluster.lose(node.id)

    def _take_trouble(self, job_id: str, message: str) -> None:
        """A node cannot run probes: on a cluster it is left out and the probe lost, as long as there are others."""
        running = self._running[job_id]
        node = _node_in_trouble(running.nodes, message)
        if self._cluster is not None and node is not None and self._cluster.put_aside(node.id, message):
            self._finish(ProbeLost(job_id, message))
        else:
            self._running.pop(job_id, None)
            give_back(running.group)
            self._trouble = message

    def _finish(self, event: ProbeFinished | ProbeLost) -> None:
        running = self._running.pop(_id_of(event), None)
        if running is not None:
            give_back(running.group)
            if isinstance(event, ProbeLost) and running.nodes:
                event = dataclasses.replace(event, node=running.node_name)
        self._waiting.append(event)

    def _lose_on_gone_nodes(self, cluster: ClusterNodes) -> None:
        """A node that was cut off sends no error: Ray would wait for its worker though it knows that the node is gone."""
        for job_id, running in list(self._running.items()):
            gone = [node.name for node in running.nodes if cluster.gone_s(node.id) > _CUT_OFF_S]
            if gone:
                _stop(running)
                which = "its node" if len(running.nodes) == 1 else gone[0]
                self._finish(ProbeLost(job_id, f"{which} is gone, or cut off from the others"))

    def _lose_all(self, reason: str) -> None:
        """Ray itself failed: every probe is lost, and the next submit starts or joins anew."""
        for job_id in [*self._running, *self._queue]:
            self._finish(ProbeLost(job_id, reason))
        events = self._waiting
        self.close()
        self._waiting = events

    def _look_for_room(self) -> None:
        """Raise MachineError where nodes have gone, and what is left can never run the probes: they would wait for ever."""
        if self._cluster is not None:
            self._queue.refuse_stuck(self._cluster)
            return
        if time.monotonic() - self._looked_t < _LOOK_S:
            return
        self._looked_t = time.monotonic()
        try:
            require_room(self._settings, _nodes())
        except InputError as error:
            raise MachineError(f"nodes are gone: {error.message}", hint=ONCE_BACK) from None

    def _raise_trouble(self) -> None:
        if self._trouble:
            message, self._trouble = self._trouble, ""
            raise MachineError(message, hint="free some space or set BISECT_TRAIN_NODE_HOME, then `bisect-train resume`")


def _nodes() -> list[dict[str, float]]:
    """Return the resources of each living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _own_node() -> str:
    """Return the id of the node that this process is on."""
    return str(ray.get_runtime_context().get_node_id())


def _count_slots(settings: RunSettings) -> int:
    """Return how many probes fit on the nodes at the same time."""
    wanted = wanted_of(settings)
    return count_gangs([count_slots(wanted, has) for has in _nodes()], settings.nodes)


def _let_end(stream: Any) -> None:
    """Let a task come to its end, which follows its last event at once: else its group would take the worker away before."""
    with contextlib.suppress(RayError, StopIteration):
        ready, _ = ray.wait([stream], timeout=_CUT_OFF_S, fetch_local=True)
        for _ in ready:
            next(stream)


def _stop(running: _Running) -> None:
    """Have Ray end a probe; force ends the worker, and its supervisor notices and ends the program with all it started."""
    with contextlib.suppress(RayError, ValueError):
        ray.cancel(running.stream, force=True)
    give_back(running.group)


def _node_in_trouble(nodes: Sequence[ClusterNode], message: str) -> ClusterNode | None:
    """Return the node that cannot run probes: of several the one that the message names, else the first."""
    named = [node for node in nodes if re.search(rf" on {re.escape(node.name)}(?![\w.-])", message)]
    return next(iter((*named, *nodes)), None)


@contextlib.contextmanager
def _ray_errors(what: str) -> Iterator[None]:
    """Turn Ray's errors into MachineError."""
    try:
        yield
    except RayError as error:
        raise MachineError(f"{what}: {last_line(error)}", hint="try `ray status`") from error


def _id_of(event: ExecutorEvent) -> str:
    return event.result.job_id if isinstance(event, ProbeFinished) else event.job_id
