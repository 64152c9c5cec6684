"""A cluster of Ray on this machine: several nodes, each with a name, a cache folder and variables of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from ray.cluster_utils import Cluster

from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.ray_executor import RayExecutor
from tests.support.probes import job_of, make_settings

JOIN = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Variables of whoever starts or joins the cluster."""
SHORT = "import time\ntime.sleep(0.2)\nprint('done')\n"
SETTINGS = make_settings(needs_recorder=False, timeout_s=100.0)
_STORE_BYTES = 80 * 2**20


class RayNodes:
    """Nodes by name; the first one added is the head, and holds what the cluster knows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temp = tempfile.mkdtemp(prefix="bt-c-", dir="/tmp")  # sockets lie in it: the path must be short
        self._cluster = Cluster(shutdown_at_exit=False)
        self._nodes: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """Where to join."""
        return str(self._cluster.address)

    def home(self, name: str) -> Path:
        """The cache folder of a node."""
        return self._folder / f"home-{name}"

    def add(self, name: str, *, env: Mapping[str, str] | None = None, **has: Any) -> None:
        """Start a node with one CPU, unless `has` says more; `env` is added to its environment."""
        own = {"BISECT_TRAIN_NODE_HOME": str(self.home(name)), **(env or {})}
        given = {"num_cpus": 1, "object_store_memory": _STORE_BYTES, "include_dashboard": False, **has}
        with mock.patch.dict(os.environ, {**JOIN, "RAY_TMPDIR": self._temp, **own}):
            self._nodes[name] = self._cluster.add_node(node_name=name, **given)

    def kill(self, name: str) -> None:
        """Kill a node: Ray's processes on it, its workers, and what they started, all at once."""
        family = self.processes(name)
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with mock.patch.dict(os.environ, JOIN):
            self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)
        psutil.wait_procs(family, timeout=10)

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the processes of a node."""
        return self._with(f"BISECT_TRAIN_NODE_HOME={self.home(name)}")

    def _with(self, variable: str) -> list[psutil.Process]:
        """Return the processes that have a variable with this value."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if variable.encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process)
        return found

    def close(self) -> None:
        """End all nodes and remove what Ray wrote."""
        with mock.patch.dict(os.environ, {**JOIN, "RAY_TMPDIR": self._temp}):
            self._cluster.shutdown()
        for process in self._with(f"RAY_TMPDIR={self._temp}"):  # of a node that did not start
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self._temp, ignore_errors=True)


@contextlib.contextmanager
def ray_nodes(folder: Path) -> Iterator[RayNodes]:
    """Give a cluster without nodes, and end whatever was added."""
    nodes = RayNodes(folder)
    try:
        yield nodes
    finally:
        nodes.close()


def ends_of(executor: RayExecutor, jobs: list[ProbeJob], *, limit_s: float = 90.0) -> list[ExecutorEvent]:
    """Run jobs and return their ends."""
    for job in jobs:
        executor.submit(job)
    ends: list[ExecutorEvent] = []
    deadline = time.monotonic() + limit_s
    while len(ends) < len(jobs):
        assert time.monotonic() < deadline, ends
        ends += [event for event in executor.wait(1.0) if isinstance(event, (ProbeFinished, ProbeLost))]
    return ends


def nodes_of(ends: list[ExecutorEvent]) -> list[str]:
    """Return where probes ran; all must have finished."""
    assert all(isinstance(event, ProbeFinished) for event in ends), ends
    return sorted(event.result.node for event in ends if isinstance(event, ProbeFinished))


def jobs_of(folder: Path, num: int, program: str = SHORT, **more: Any) -> list[ProbeJob]:
    """Return jobs of one program; `settings` are changes to SETTINGS."""
    settings = replace(SETTINGS, **more.pop("settings", {}))
    job = job_of(folder / "r", program, settings=settings)
    return [replace(job, id=f"{folder.name}-{idx}", **more) for idx in range(num)]
