"""One coordinator of a service: runs a stored bisection on the Ray that several share, and reports through its pipe."""

from __future__ import annotations

import math
from dataclasses import replace

from bisect_train.cli.asked import Output
from bisect_train.cli.coordinator_pipes import Reporter, Share
from bisect_train.cli.desk import Desk, find_bisection
from bisect_train.cli.driving import drive_bisection
from bisect_train.cli.reopening import respaced
from bisect_train.coordinator.limits import question_in_force
from bisect_train.core.executor import Executor, ExecutorEvent, ProbeFinished, ProbeProgress
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings


class SharedExecutor:
    """An executor that uses a share of the slots and reports what runs; see `core.executor.Executor`.

    Args:
        executor: runs the probes.
        share: of the slots.
        report: takes one message.
    """

    def __init__(self, executor: Executor, share: Share, report: Reporter) -> None:
        self._executor = executor
        self._share = share
        self._report = report

    def facts(self) -> MachineFacts:
        """Return the facts, with our share of the slots."""
        facts = self._executor.facts()
        return replace(facts, slots=self._share.of(facts.slots))

    def adopt(self, settings: RunSettings) -> None:
        """See `Executor`."""
        self._executor.adopt(settings)

    def submit(self, job: ProbeJob) -> None:
        """See `Executor`."""
        self._executor.submit(job)
        self._report({"kind": "started", "key": job.id, "seed_idx": job.spec.seed_idx, "repeat": job.spec.repeat})

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """See `Executor`; of several steps of a probe the last one is reported."""
        events = self._executor.wait(timeout_s)
        moved = {event.job_id: event for event in events if isinstance(event, ProbeProgress)}
        for event in moved.values():
            loss = event.loss if event.loss is not None and math.isfinite(event.loss) else None
            self._report({"kind": "moved", "key": event.job_id, "phase": event.phase, "step": event.step, "loss": loss})
        for ended in events:
            if not isinstance(ended, ProbeProgress):
                key = ended.result.job_id if isinstance(ended, ProbeFinished) else ended.job_id
                self._report({"kind": "gone", "key": key})
        return events

    def cancel(self, job_id: str) -> None:
        """See `Executor`."""
        self._executor.cancel(job_id)
        self._report({"kind": "gone", "key": job_id})

    def close(self) -> None:
        """See `Executor`."""
        self._executor.close()


def coordinate(desk: Desk, bisection_id: str, *, address: str, report: Reporter, share: Share) -> int:
    """Run a stored bisection to its answer; return the exit status of its report.

    What comes after an intended change is not asked here: the service puts it into the queue, where it has its turn.

    Args:
        desk: home and store.
        bisection_id: what is run.
        address: of the Ray that is shared.
        report: takes what runs.
        share: of the slots.
    Raises:
        BisectTrainError: as `bisect-train resume`.
    """
    from bisect_train_workers.ray_executor import RayExecutor

    stored = find_bisection(desk.store, bisection_id)
    question = question_in_force(desk.store, stored)
    space = respaced(question, home=desk.home)
    output = Output(quiet=True, no_color=True)
    ray = RayExecutor(question.settings, address=address, temp_folder=desk.home / "ray", node_home=desk.home / "node")
    executor = SharedExecutor(ray, share, report)
    try:
        return drive_bisection(desk, stored.id, question, space, output=output, executor=executor)
    finally:
        executor.close()
