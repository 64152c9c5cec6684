"""One probe on a node, from its job to its result: objects, checkout, data, setup, run, judge.

It knows nothing of Ray. What happened to the user's program is data in the result; what happened to us is ProbeLost
(run it again) or NodeTrouble (this machine cannot).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent, ProbeFinished, ProbeLost, ProbeProgress
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeResult
from bisect_train_workers import command, environment, injection
from bisect_train_workers.checkout import Slot, switch_slot, take_slot
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.gitcmd import GitError
from bisect_train_workers.kept import NotKeptError, keep_probe
from bisect_train_workers.mirror import Mirror, PackLoader
from bisect_train_workers.node import NodeError, NodeHome, node_name
from bisect_train_workers.paired import run_paired
from bisect_train_workers.ports import NoPortError, reserve_port
from bisect_train_workers.preparing import Workplace, lay_out, make_program, run_setup, whole_run
from bisect_train_workers.probe_folders import take_private_folder
from bisect_train_workers.probe_packages import hold_packages, with_environment
from bisect_train_workers.probe_run import LostError, ProbeSteps, run_prepared
from bisect_train_workers.processes import sweep_orphans
from bisect_train_workers.program import Coordinator, SupervisorLostError
from bisect_train_workers.remote_data import hold_data
from bisect_train_workers.restart_run import run_restarted


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """The node cannot run probes at all (full or read-only disk); becomes MachineError at the coordinator."""

    job_id: str
    message: str


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a probe task needs besides its job.

    Attributes:
        home: of this node.
        pack_ids: git packs of the variant.
        load_pack: fetches a pack that this node has not seen.
        coordinator: whose end ends the probe, when it runs on this machine.
        recorder: folder of the recorder that is injected.
    """

    home: NodeHome
    pack_ids: Sequence[str]
    load_pack: PackLoader
    coordinator: Coordinator | None = None
    recorder: Path = injection.RECORDER_FOLDER


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
    repo = context.home.repo(job.repo)
    yield ProbeProgress(job.id, "checkout")
    mirror = Mirror(repo)
    mirror.add_packs(context.pack_ids, context.load_pack)
    with take_slot(repo) as slot, reserve_port(context.home) as port:

        def reset() -> list[str]:
            return _switch(slot, mirror, job, context)

        warnings = reset()
        with take_private_folder(context.home, job.id) as private:
            folders = environment.ProbeFolders(private.base, slot.path, private.tmp)
            locks = (slot.lock.fd, private.lock_fd)
            result = yield from _run_in(folders, job, locks, port=port, context=context, reset=reset)
            if job.settings.keep:
                result = _keep(result, folders, context)
    return dataclasses.replace(result, warnings=(*warnings, *result.warnings))


def _run_in(
    folders: environment.ProbeFolders,
    job: ProbeJob,
    locks: tuple[int, ...],
    *,
    port: int,
    context: TaskContext,
    reset: Callable[[], list[str]],
) -> ProbeSteps:
    with contextlib.ExitStack() as held:
        try:
            yield from _tell_packages(job)
            packages = held.enter_context(hold_packages(context.home, job, folders.checkout))
            yield from _tell_data(job)
            data = held.enter_context(hold_data(context.home, packages.job))
            place = Workplace(
                job=data.job,
                folders=folders,
                lock_fds=(*locks, *packages.lock_fds, *data.lock_fds),
                overlay=packages.overlay,
                port=port,
                coordinator=context.coordinator,
                recorder=context.recorder,
                home=context.home,
            )
            result = yield from _run_at(place, reset)
        except (CannotStartError, command.CommandError) as error:
            return _cannot_start(job, str(error))
        return with_environment(result, packages)


def _run_at(place: Workplace, reset: Callable[[], list[str]]) -> ProbeSteps:
    if place.job.settings.restart is not None:
        return (yield from run_restarted(place, place.job.settings.restart, reset=reset))
    lay_out(place)
    probe = make_program(place, whole_run(place.job))
    yield from run_setup(probe)
    return (yield from run_prepared(probe))


def _tell_packages(job: ProbeJob) -> Generator[ExecutorEvent, None, None]:
    if job.spec.variant.packages:
        yield ProbeProgress(job.id, "packages")


def _tell_data(job: ProbeJob) -> Generator[ExecutorEvent, None, None]:
    if any(link.is_remote for link in job.settings.links):
        yield ProbeProgress(job.id, "data")


def _keep(result: ProbeResult, folders: environment.ProbeFolders, context: TaskContext) -> ProbeResult:
    try:
        return dataclasses.replace(result, kept=str(keep_probe(context.home, result.job_id, folders)))
    except NotKeptError as error:
        return dataclasses.replace(result, warnings=(*result.warnings, str(error)))


def _switch(slot: Slot, mirror: Mirror, job: ProbeJob, context: TaskContext) -> list[str]:
    """Bring the slot to the variant; a mirror that lacks objects it should have is filled anew, once."""
    try:
        return switch_slot(slot, mirror, job.spec.variant)
    except GitError:
        mirror.throw_away()
        mirror.add_packs(context.pack_ids, context.load_pack)
        return switch_slot(slot, mirror, job.spec.variant)


def _cannot_start(job: ProbeJob, message: str) -> ProbeResult:
    fingerprint = Fingerprint(Ending(EndingKind.CANNOT_START, message=message))
    return ProbeResult(job.id, fingerprint, node=node_name())
