"""Nodes of a simulated cluster with faults: some lose probes, some are slow, die, or give other numbers than the program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import MachineFacts, ProbeJob
from bisect_train.store.contract import Store
from bisect_train_workers.simulated import SIMULATED_FACTS, SimulatedExecutor, SimulatedNode
from tests.support.simulated_bisection import Lab

Distortion = Callable[[ProbeJob, Fingerprint], Fingerprint]
NOTES = ("the node old is left out: it has another CPU",)


def shifted(by: float) -> Distortion:
    """Return the distortion of a node whose losses all lie off by so much; the same run gives the same there."""

    def distort(job: ProbeJob, true: Fingerprint) -> Fingerprint:
        return _with_losses(true, by=by, salt=f"{by}")

    return distort


def now_and_then(by: float, *, share: float, seed: int = 0) -> Distortion:
    """Return the distortion of a node that computes some of its probes wrongly, each in its own way."""

    def distort(job: ProbeJob, true: Fingerprint) -> Fingerprint:
        what = f"{job.spec.variant.id}/{job.spec.seed_idx}/{job.spec.repeat}"  # a job's id is another in each bisection
        drawn = int(hashlib.sha256(f"{seed}/{what}".encode()).hexdigest()[:8], 16) / 16**8
        return _with_losses(true, by=by * (0.5 + drawn), salt=what) if drawn < share else true

    return distort


def _with_losses(true: Fingerprint, *, by: float, salt: str) -> Fingerprint:
    ranks = tuple(
        replace(
            rank,
            steps=tuple(
                replace(step, loss=None if step.loss is None else step.loss + by, param_hash=f"{step.param_hash}/{salt}")
                for step in rank.steps
            ),
        )
        for rank in true.ranks
    )
    return replace(true, ranks=ranks)


def cluster(lab: Lab, nodes: Sequence[SimulatedNode], *, facts: MachineFacts = SIMULATED_FACTS) -> SimulatedExecutor:
    """Return an executor of these nodes that runs a lab's probes."""
    return SimulatedExecutor(lab.run_of, facts=facts, nodes=nodes)


def honest(*names: str, slots: int = 1) -> list[SimulatedNode]:
    """Return nodes that do as they are told."""
    return [SimulatedNode(name, slots) for name in names]


def suspects(store: Store, bisection_id: str) -> dict[str, str]:
    """Return why each node was called suspect."""
    events = (event for event in store.events(bisection_id) if event.kind == "node_suspect")
    return {event.data["node"]: event.data["why"] for event in events}
