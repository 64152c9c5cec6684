"""One probe on a node, from its job to its result: objects, checkout, data, setup, run, judge.

It knows nothing of Ray. What happened to the user's program is data in the result; what happened to us is ProbeLost
(run it again) or NodeTrouble (this machine cannot).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeResult
from bisect_train_workers import command, environment
from bisect_train_workers.command import LOOPBACK, Share
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.gang import Gang
from bisect_train_workers.gitcmd import GitError
from bisect_train_workers.kept import NotKeptError, keep_probe
from bisect_train_workers.node import NodeError, node_name
from bisect_train_workers.paired import run_paired
from bisect_train_workers.ports import NoPortError, reserve_port
from bisect_train_workers.preparing import Workplace, lay_out, make_program, run_setup, whole_run
from bisect_train_workers.probe_packages import with_environment
from bisect_train_workers.probe_run import LostError, ProbeSteps, run_prepared
from bisect_train_workers.processes import sweep_orphans
from bisect_train_workers.program import SupervisorLostError
from bisect_train_workers.restart_run import run_restarted
from bisect_train_workers.workplaces import TaskContext, furnish, take_checkout


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """The node cannot run probes at all (full or read-only disk); becomes MachineError at the coordinator."""

    job_id: str
    message: str


def run_probe(job: ProbeJob, context: TaskContext) -> Iterator[ExecutorEvent | NodeTrouble]:
    """Run one probe; yields its progress and, last, exactly one ProbeFinished, ProbeLost or NodeTrouble.

    Closing the iterator early ends the program and all its processes.
    """
    started = time.monotonic()
    try:
        if job.reference is None:
            result = yield from _run_on_node(job.with_own_settings(), context)
        else:
            result = yield from run_paired(job, job.reference, lambda part: _run_on_node(part.with_own_settings(), context))
        yield ProbeFinished(dataclasses.replace(result, wall_s=time.monotonic() - started))
    except NodeError as error:
        yield NodeTrouble(job.id, str(error))
    except (LostError, NoPortError, SupervisorLostError, GitError) as error:
        yield ProbeLost(job.id, str(error))
    except Exception as error:  # the worker's edge: a bug of ours is no evidence about the user's program
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        yield ProbeLost(job.id, f"internal error at {place}: {type(error).__name__}: {error}")


def _run_on_node(job: ProbeJob, context: TaskContext) -> ProbeSteps:
    sweep_orphans()
    with contextlib.ExitStack() as held:
        if job.nodes > 1 and context.gather is None:
            raise LostError("its ranks are to run on several nodes, and it came to one")
        port = held.enter_context(reserve_port(context.home))
        gang = held.enter_context(context.gather(job, port)) if job.nodes > 1 and context.gather else None
        share = Share(nodes=job.nodes, address=context.address if job.nodes > 1 and context.address else LOOPBACK)
        taken, warnings = yield from take_checkout(held, job, context)
        with contextlib.ExitStack() as furnished:
            try:
                place, packages = yield from furnish(furnished, taken, port=port, share=share)
                result = yield from _run_at(place, taken.reset, gang)
                result = with_environment(result, packages)
            except (CannotStartError, command.CommandError) as error:
                result = _cannot_start(job, str(error))
        if job.settings.keep:
            result = _keep(result, taken.folders, context)
        told = (*warnings, *(gang.warnings if gang is not None else ()))
    return dataclasses.replace(result, warnings=(*told, *result.warnings))


def _run_at(place: Workplace, reset: Callable[[], list[str]], gang: Gang | None) -> ProbeSteps:
    if place.job.settings.restart is not None:
        return (yield from run_restarted(place, place.job.settings.restart, reset=reset))
    lay_out(place)
    probe = make_program(place, whole_run(place.job))
    yield from run_setup(probe)
    if gang is not None:
        probe = dataclasses.replace(probe, members=(yield from gang.prepared()))
    return (yield from run_prepared(probe))


def _keep(result: ProbeResult, folders: environment.ProbeFolders, context: TaskContext) -> ProbeResult:
    try:
        return dataclasses.replace(result, kept=str(keep_probe(context.home, result.job_id, folders)))
    except NotKeptError as error:
        return dataclasses.replace(result, warnings=(*result.warnings, str(error)))


def _cannot_start(job: ProbeJob, message: str) -> ProbeResult:
    fingerprint = Fingerprint(Ending(EndingKind.CANNOT_START, message=message))
    return ProbeResult(job.id, fingerprint, node=node_name())
