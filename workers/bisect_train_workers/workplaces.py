"""A place for a probe on this node: mirror, checkout, private folder, packages and data, held as long as the probe runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent, ProbeProgress
from bisect_train.core.probe import ProbeJob
from bisect_train_workers import injection
from bisect_train_workers.checkout import Slot, switch_slot, take_slot
from bisect_train_workers.command import Share
from bisect_train_workers.environment import ProbeFolders
from bisect_train_workers.gang import Gather
from bisect_train_workers.gitcmd import GitError
from bisect_train_workers.mirror import Mirror, PackLoader
from bisect_train_workers.node import NodeHome
from bisect_train_workers.preparing import Workplace
from bisect_train_workers.probe_folders import take_private_folder
from bisect_train_workers.probe_packages import ProbePackages, hold_packages
from bisect_train_workers.program import Coordinator
from bisect_train_workers.remote_data import hold_data


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a probe task needs besides its job.

    Attributes:
        home: of this node.
        pack_ids: git packs of the variant.
        load_pack: fetches a pack that this node has not seen.
        coordinator: whose end ends the probe, when it runs on this machine.
        recorder: folder of the recorder that is injected.
        gather: calls the further nodes of a probe; None where there are none.
        address: where other nodes reach this one, "" where there are none.
    """

    home: NodeHome
    pack_ids: Sequence[str]
    load_pack: PackLoader
    coordinator: Coordinator | None = None
    recorder: Path = injection.RECORDER_FOLDER
    gather: Gather | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class TakenCheckout:
    """A checkout of the job's variant, with a private folder beside it.

    Attributes:
        job: whose it is.
        context: of the task.
        folders: of the probe.
        lock_fds: locks of checkout and folder.
        reset: brings the checkout back to the variant; returns what a reader of the report should know.
    """

    job: ProbeJob
    context: TaskContext
    folders: ProbeFolders
    lock_fds: tuple[int, ...]
    reset: Callable[[], list[str]]


def take_checkout(
    held: contextlib.ExitStack, job: ProbeJob, context: TaskContext
) -> Generator[ExecutorEvent, None, tuple[TakenCheckout, list[str]]]:
    """Return a checkout of the variant, held by `held`, and what a reader of the report should know.

    Raises:
        GitError, NodeError: there is none to be had.
    """
    repo = context.home.repo(job.repo)
    yield ProbeProgress(job.id, "checkout")
    mirror = Mirror(repo)
    mirror.add_packs(context.pack_ids, context.load_pack)
    slot = held.enter_context(take_slot(repo))

    def reset() -> list[str]:
        return _switch(slot, mirror, job, context)

    warnings = reset()
    private = held.enter_context(take_private_folder(context.home, job.id))
    folders = ProbeFolders(private.base, slot.path, private.tmp)
    return TakenCheckout(job, context, folders, (slot.lock.fd, private.lock_fd), reset), warnings


def furnish(
    held: contextlib.ExitStack, taken: TakenCheckout, *, port: int, share: Share
) -> Generator[ExecutorEvent, None, tuple[Workplace, ProbePackages]]:
    """Return the checkout with the packages and the data of the variant, held by `held`.

    Raises:
        CannotStartError, NodeError: they are not to be had.
    """
    job, context = taken.job, taken.context
    if job.spec.variant.packages:
        yield ProbeProgress(job.id, "packages")
    packages = held.enter_context(hold_packages(context.home, job, taken.folders.checkout))
    if any(link.is_remote for link in job.settings.links):
        yield ProbeProgress(job.id, "data")
    data = held.enter_context(hold_data(context.home, packages.job))
    place = Workplace(
        job=data.job,
        folders=taken.folders,
        lock_fds=(*taken.lock_fds, *packages.lock_fds, *data.lock_fds),
        overlay=packages.overlay,
        port=port,
        coordinator=context.coordinator,
        recorder=context.recorder,
        home=context.home,
        share=share,
    )
    return place, packages


def _switch(slot: Slot, mirror: Mirror, job: ProbeJob, context: TaskContext) -> list[str]:
    """Bring the slot to the variant; a mirror that lacks objects it should have is filled anew, once."""
    try:
        return switch_slot(slot, mirror, job.spec.variant)
    except GitError:
        mirror.throw_away()
        mirror.add_packs(context.pack_ids, context.load_pack)
        return switch_slot(slot, mirror, job.spec.variant)
