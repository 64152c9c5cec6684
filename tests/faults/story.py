"""One coordinator's life in a process of its own, with faults: real SQLite, real git, simulated nodes, a real SIGKILL.

The child notes what it was told (each probe once it is stored) and which faults met it, in a file outside of the home folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bisect_train.coordinator import CoordinatorEvent, ProbeDone
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeJob
from bisect_train.store import engine
from bisect_train.store.sql import SqlStore
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedNode, SimulatedRun
from tests.faults.places import Place, hold_lock
from tests.support.simulated_bisection import Lab, culprit_of, drive, fingerprint_of
from tests.support.simulated_cluster import shifted

TRACEBACK = 99  # exit status of a child that ended with an error that is not ours


@dataclass(frozen=True)
class NodePlan:
    """What a node of the story does: `kind` is honest, slow, lossy, dies, joins, wrong, wrong at times or stale."""

    name: str
    kind: str = "honest"
    time_s: float = 0.0


@dataclass(frozen=True)
class StoryPlan:
    """What is drawn for one bisection."""

    seed: int
    nodes: tuple[NodePlan, ...] = ()
    share_lost: float = 0.0
    is_noisy: bool = False


@dataclass(frozen=True)
class LifePlan:
    """What happens to one life of the coordinator: `fault` at its write number `at` (from 1), "" for nothing."""

    fault: str = ""
    at: int = 0
    is_after: bool = False


@dataclass
class Life:
    """The child's side of one life."""

    lab: Lab
    place: Place
    notes: Path
    story: StoryPlan
    plan: LifePlan
    num: int
    num_writes: int = 0
    tries: Counter[str] = field(default_factory=Counter)

    def run(self) -> int:
        """Run the coordinator; return the exit status of the process."""
        try:
            store = SqlStore(f"sqlite:///{self.place.database}", clock=lambda: time.time())
            self._watch_writes(store)
            names = [item.id for item in store.list()]
            name, ended = drive(
                self.lab, store, bisection_id=names[0] if names else "", executor=self._executor(), listener=self._listen
            )
            store.append(name, "finished", {"answer": {}})
            store.close()
            self.note("answer", status=ended.answer.status, culprits=culprit_of(self.lab, ended), reason=ended.answer.reason)
            return 0
        except BisectTrainError as error:
            self.note("error", text=str(error), name=type(error).__name__)
            return error.exit_status
        except BaseException:
            self.note("traceback", text=traceback.format_exc())
            return TRACEBACK

    def note(self, kind: str, **more: Any) -> None:
        """Add a line to the notes; it is there when this returns, whoever is killed then."""
        line = json.dumps({"kind": kind, "life": self.num, **more}) + "\n"
        handle = os.open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)

    # ---- faults at a write ----------------------------------------------------------------------------------------

    def _watch_writes(self, store: SqlStore) -> None:
        for method in ("append", "save_result"):
            setattr(store, method, self._watched(getattr(store, method)))

    def _watched(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.num_writes += 1
            is_due = self.num_writes == self.plan.at and bool(self.plan.fault)
            if is_due and not self.plan.is_after:
                self._strike()
            result = write(*arguments, **named)
            if is_due and self.plan.is_after:
                self._strike()
            return result

        return watched

    def _strike(self) -> None:
        fault = self.plan.fault
        self.note("fault", fault=fault)
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "disk full":
            self.place.fill()
        elif fault == "locked for a moment":
            hold_lock(self.place.database, hold_s=0.3)
        elif fault == "locked for long":
            self.note("locker", pid=hold_lock(self.place.database, hold_s=60.0))
        elif fault == "clock jump":
            shift_s = (-1) ** self.story.seed * 86_400.0 * 400
            real = time.time
            time.time = lambda: real() + shift_s

    # ---- nodes ----------------------------------------------------------------------------------------------------

    def _listen(self, event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeDone) and not event.is_reused:
            self.note("probe_done", key=event.key)

    def _executor(self) -> SimulatedExecutor:
        return SimulatedExecutor(self._script, slots=2, nodes=[self._node(plan) for plan in self.story.nodes])

    def _script(self, job: ProbeJob) -> SimulatedRun:
        self.tries[job.id] += 1
        if _draw(self.story.seed, self.num, _run_of(job), self.tries[job.id]) < self.story.share_lost:
            self.note("fault", fault="probe lost")
            return SimulatedRun(None, 0.5, reason="the worker died")
        salt = f"{_run_of(job)}/{len(self.tries)}" if self.story.is_noisy else ""
        fingerprint = fingerprint_of(self.lab.level_of(job), seed_idx=job.spec.seed_idx, salt=salt)
        return SimulatedRun(fingerprint, 1.0 + _draw(_run_of(job)))

    def _node(self, plan: NodePlan) -> SimulatedNode:
        node = SimulatedNode(plan.name)
        if plan.kind == "slow":
            return replace(node, slowness=8.0)
        if plan.kind == "lossy":
            return replace(node, loses=lambda job: _draw(plan.name, _run_of(job), self.tries[job.id]) < 0.9 and self._met(plan))
        if plan.kind == "dies":
            return replace(node, dies_at_s=plan.time_s)
        if plan.kind == "joins":
            return replace(node, joins_at_s=plan.time_s)
        if plan.kind == "honest":
            return node
        lies = {
            "wrong": shifted(1.0 if self.story.seed % 2 else -1.0),
            "wrong at times": self._lie_at_times,
            "stale": lambda job, true: fingerprint_of(1.0 + self.story.seed % 2, seed_idx=job.spec.seed_idx),
        }

        def distort(job: ProbeJob, true: Fingerprint) -> Fingerprint:
            told = lies[plan.kind](job, true)
            if told != true:
                self._met(plan)
            return told

        return replace(node, distorts=distort)

    def _lie_at_times(self, job: ProbeJob, true: Fingerprint) -> Fingerprint:
        drawn = _draw("lie", self.story.seed, _run_of(job))
        return shifted(0.5 + drawn)(job, true) if drawn < 0.5 else true

    def _met(self, plan: NodePlan) -> bool:
        self.note("met", node=plan.name, what=plan.kind)
        return True


def _run_of(job: ProbeJob) -> str:
    """Return what is run, without anything that differs between two campaigns of one seed."""
    return f"{job.spec.variant.id}/{job.spec.seed_idx}/{job.spec.repeat}"


def _draw(*key: object) -> float:
    """Return a number in 0..1 that belongs to the key."""
    return int(hashlib.sha256("/".join(map(str, key)).encode()).hexdigest()[:12], 16) / 16**12


def live(life: Life) -> int:
    """Let a coordinator live in a forked child; return its exit status, negative for a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = TRACEBACK
        try:
            if life.plan.fault == "locked for long":
                engine._BUSY_TIMEOUT_MS = 300
            status = life.run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
