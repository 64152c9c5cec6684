"""An executor whose probes are run by threads of this process, for machines without Ray; real in everything else."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings
from bisect_train_workers.node import NodeHome
from bisect_train_workers.node_facts import find_node_facts
from bisect_train_workers.probe_task import NodeTrouble, run_probe
from bisect_train_workers.workplaces import TaskContext


class ThreadExecutor:
    """See `bisect_train.core.executor.Executor`.

    Its threads live as long as it does: the supervisor of a probe ends with the thread that started it.

    Args:
        settings: how probes run.
        home: folder for checkouts.
        slots: threads.
    """

    def __init__(self, settings: RunSettings, home: Path, *, slots: int = 2) -> None:
        self._settings = settings
        self._home = NodeHome(home.absolute())
        self._slots = slots
        self._jobs: queue.Queue[ProbeJob | None] = queue.Queue()
        self._events: queue.Queue[ExecutorEvent] = queue.Queue()
        self._cancelled: set[str] = set()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(slots)]
        for thread in self._threads:
            thread.start()

    def facts(self) -> MachineFacts:
        """Return hardware, interpreter and slots."""
        found = find_node_facts(self._settings)
        return MachineFacts(found.hardware_class, found.interpreter, self._slots)

    def submit(self, job: ProbeJob) -> None:
        """Start a probe as soon as a thread is free."""
        self._cancelled.discard(job.id)
        self._jobs.put(job)

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Return the events that have come."""
        events: list[ExecutorEvent] = []
        deadline = time.monotonic() + timeout_s
        while not events and time.monotonic() < deadline:
            try:
                events.append(self._events.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return [event for event in events if _id_of(event) not in self._cancelled]

    def cancel(self, job_id: str) -> None:
        """Report no event of a probe any more, and stop it at its next sign of life."""
        self._cancelled.add(job_id)

    def adopt(self, settings: RunSettings) -> None:
        """Take other settings from now on."""
        self._settings = settings

    def close(self) -> None:
        """Let the threads end."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(60)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            packs = {pack.id: pack.data for pack in job.packs}
            running = run_probe(job, TaskContext(self._home, tuple(packs), packs.__getitem__))
            for event in running:
                if job.id in self._cancelled:
                    break
                if isinstance(event, NodeTrouble):
                    event = ProbeLost(job.id, event.message)
                self._events.put(event)
            running.close()  # type: ignore[attr-defined]


def _id_of(event: ExecutorEvent) -> str:
    return event.result.job_id if isinstance(event, ProbeFinished) else event.job_id
