"""The executor that runs probes as Ray tasks, on this machine or on a cluster.

A probe is one task that is never retried by Ray. It streams its progress and, last, its result; everything that
happened to the user's program is data in it. A Ray exception therefore always means that the infrastructure failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings
from bisect_train_workers.node import find_node_home
from bisect_train_workers.probe_folders import sweep_private_folders
from bisect_train_workers.probe_task import NodeTrouble
from bisect_train_workers.processes import start_mark
from bisect_train_workers.program import Coordinator
from bisect_train_workers.ray_session import RaySession
from bisect_train_workers.ray_task import find_facts_task, run_probe_task
from bisect_train_workers.upkeep import bound_node

_FACTS_S = 120.0
_AT_ONCE_S = 0.0
_LOOK_S = 30.0
"""Time between two looks at what the nodes have, while no event comes, seconds."""


@dataclass(slots=True)
class _Running:
    """A probe that Ray runs: its stream of events."""

    job_id: str
    stream: Any


class RayExecutor:
    """Runs probes on Ray; see `bisect_train.core.executor.Executor`. Ray is started at the first use.

    Args:
        settings: how probes run; its python and its resources decide facts and slots.
        address: of a Ray cluster; "" starts a local Ray that ends with this process.
        temp_folder: where a local Ray keeps its files, if the path is short enough.
        node_home: cache folder of a local Ray's probes; None leaves it to the environment of the workers.
        cpus: logical CPUs of a local Ray; None takes what this process may use.
    """

    def __init__(
        self,
        settings: RunSettings,
        *,
        address: str = "",
        temp_folder: Path | None = None,
        node_home: Path | None = None,
        cpus: int | None = None,
    ) -> None:
        self._settings = settings
        self._address = address
        self._temp_folder = temp_folder
        self._node_home = str(node_home.absolute()) if node_home else ""
        self._cpus = cpus
        self._session: RaySession | None = None
        self._facts: MachineFacts | None = None
        self._packs: dict[str, Any] = {}
        self._running: dict[str, _Running] = {}
        self._trouble: str = ""
        self._looked_t = time.monotonic()
        self._waiting: list[ExecutorEvent] = []

    def facts(self) -> MachineFacts:
        """Return hardware, interpreter and slots. Raises InputError where a probe fits on no node, MachineError."""
        if self._facts is None:
            self._start()
            _require_room(self._settings)
            self._facts = self._ask_facts(_count_slots(self._settings))
        return self._facts

    def adopt(self, settings: RunSettings) -> None:
        """Take the resources of one probe from other settings from now on: `facts` counts the slots anew."""
        if (settings.cpus, settings.gpus) != (self._settings.cpus, self._settings.gpus) and self._facts is not None:
            _require_room(settings)
            self._facts = dataclasses.replace(self._facts, slots=_count_slots(settings))
        self._settings = settings

    def submit(self, job: ProbeJob) -> None:
        """Start a probe.

        Raises:
            ValueError: a job with this id is running.
            InputError: no node has what it needs; Ray would wait for such a node for ever.
            MachineError: Ray does not start.
        """
        if job.id in self._running:
            raise ValueError(f"a probe with id {job.id} is running already")
        self._start()
        _require_room(job.settings)
        options = _options(job.settings) | {"num_returns": "streaming"}
        try:
            refs = {pack.id: [self._put_pack(pack.id, pack.data)] for pack in job.packs}
            task = ray.remote(run_probe_task).options(**options)
            stream = task.remote(dataclasses.replace(job, packs=()), refs, self._coordinator(), self._node_home)
        except (RayError, OSError) as error:
            raise MachineError(f"Ray does not take the probe: {_last_line(error)}", hint="is the disk full?") from error
        self._running[job.id] = _Running(job.id, stream)

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Return the events that have come. Raises MachineError when a node's disk is full or read-only."""
        self._raise_trouble()
        deadline = time.monotonic() + timeout_s
        while self._running and not self._waiting and not self._trouble:
            streams = {running.stream: running for running in self._running.values()}
            left_s = max(0.0, deadline - time.monotonic())
            try:
                ready, _ = ray.wait(list(streams), num_returns=1, timeout=left_s, fetch_local=True)
            except RayError as error:
                self._lose_all(f"{type(error).__name__}: {_last_line(error)}")
                break
            if not ready:
                self._look_for_room()
                break
            for stream in ready:
                self._take_events(streams[stream])
        events, self._waiting = self._waiting, []
        if not events:
            self._raise_trouble()
        return events

    def cancel(self, job_id: str) -> None:
        """Stop a probe and all its processes; no event of it is reported afterwards. Unknown ids are ignored."""
        self._waiting = [event for event in self._waiting if _id_of(event) != job_id]
        running = self._running.pop(job_id, None)
        if running is not None:
            # force ends the worker; its supervisor notices and ends the program with all it started.
            with contextlib.suppress(RayError, ValueError):
                ray.cancel(running.stream, force=True)

    def close(self) -> None:
        """Cancel everything, shut a local Ray down; can be called twice."""
        for job_id in list(self._running):
            self.cancel(job_id)
        self._waiting.clear()
        self._packs.clear()
        if self._session is not None:
            self._session.close()
            self._session = None
            if not self._address:
                home = find_node_home(self._node_home)
                sweep_private_folders(home)
                bound_node(home)

    def _start(self) -> None:
        if self._session is None:
            self._session = RaySession(address=self._address, temp_folder=self._temp_folder, cpus=self._cpus)

    def _coordinator(self) -> Coordinator | None:
        if self._address:
            return None
        return Coordinator(os.getpid(), start_mark(os.getpid()))

    def _ask_facts(self, slots: int) -> MachineFacts:
        task = ray.remote(find_facts_task).options(**_options(self._settings))
        try:
            found = ray.get(task.remote(self._settings), timeout=_FACTS_S)
        except RayError as error:
            raise MachineError(f"no Ray worker answered: {_last_line(error)}", hint="try `ray status`") from error
        if found.error:
            raise MachineError(found.error, hint="name another interpreter with --python")
        return MachineFacts(found.hardware_class, found.interpreter, slots)

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
                self._finish(ProbeLost(running.job_id, f"{type(error).__name__}: {_last_line(error)}"))

    def _take(self, job_id: str, event: ExecutorEvent | NodeTrouble) -> None:
        if isinstance(event, NodeTrouble):
            self._running.pop(job_id, None)
            self._trouble = event.message
        elif isinstance(event, (ProbeFinished, ProbeLost)):
            self._finish(event)
        else:
            self._waiting.append(event)

    def _finish(self, event: ProbeFinished | ProbeLost) -> None:
        self._running.pop(_id_of(event), None)
        self._waiting.append(event)

    def _lose_all(self, reason: str) -> None:
        """Ray itself failed: every probe is lost, and the next submit starts or joins anew."""
        for job_id in list(self._running):
            self._finish(ProbeLost(job_id, reason))
        events = self._waiting
        self.close()
        self._waiting = events

    def _look_for_room(self) -> None:
        """Raise MachineError where nodes have gone, and what is left can never run the probes: they would wait for ever."""
        if time.monotonic() - self._looked_t < _LOOK_S:
            return
        self._looked_t = time.monotonic()
        try:
            _require_room(self._settings)
        except InputError as error:
            raise MachineError(f"nodes are gone: {error.message}", hint="`bisect-train resume` once they are back") from None

    def _raise_trouble(self) -> None:
        if self._trouble:
            message, self._trouble = self._trouble, ""
            raise MachineError(message, hint="free some space or set BISECT_TRAIN_NODE_HOME, then `bisect-train resume`")


def _nodes() -> list[dict[str, float]]:
    """Return the resources of each living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _count_slots(settings: RunSettings) -> int:
    """Return how many probes fit on the nodes at the same time."""
    wanted = {"CPU": settings.cpus, "GPU": settings.gpus}
    slots = 0
    for has in _nodes():
        counts = [int(has.get(name, 0.0) / amount + 1e-9) for name, amount in wanted.items() if amount > 0]
        slots += min(counts, default=int(has.get("CPU", 1.0)))
    return slots


def _require_room(settings: RunSettings) -> None:
    """Raise InputError where no node has the resources of one probe."""
    if _count_slots(settings) >= 1:
        return
    nodes = [(has.get("GPU", 0.0), has.get("CPU", 0.0)) for has in _nodes()]
    gpus, cpus = max(nodes, default=(0.0, 0.0))
    most_cpus = max((cpus for _, cpus in nodes), default=0.0)
    hint = "ask for less with --gpus or --ranks, or the recipe's `resources`"
    if settings.cpus > most_cpus and not settings.gpus:
        hint = f"take fewer --ranks, or let them share CPUs: `resources: {{cpus: {max(most_cpus, 1.0):g}}}` in the recipe"
    elif settings.gpus > gpus:
        hint = "ask for fewer with --gpus or the recipe's `resources`, or join a cluster that has them with --address"
    raise InputError(
        f"no node has the {settings.cpus:g} CPUs and {settings.gpus:g} GPUs of one probe; the largest of {len(nodes)} "
        f"has {cpus:g} CPUs and {gpus:g} GPUs",
        hint=hint,
    )


def _options(settings: RunSettings) -> dict[str, Any]:
    return {"num_cpus": settings.cpus, "num_gpus": settings.gpus, "max_retries": 0}


def _id_of(event: ExecutorEvent) -> str:
    return event.result.job_id if isinstance(event, ProbeFinished) else event.job_id


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
