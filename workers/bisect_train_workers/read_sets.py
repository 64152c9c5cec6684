"""From the records of a probe's processes to what its program read; see `core.reads`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bisect_train.core.probe import ProbeJob, ProbeSpec, RunSettings
from bisect_train.core.reads import ReadSet, read_set_of_events
from bisect_train_workers.records import ProcessRecord

_STARTERS = re.compile(r"(.*/)?(python(3(\.\d+)?)?|torchrun)")


def find_reads(
    processes: Sequence[ProcessRecord], ranks: Mapping[int, ProcessRecord], job: ProbeJob, *, is_early: bool = False
) -> ReadSet:
    """Return what all recorded processes read, ranks, launcher and helpers; a rank that is missing is a doubt.

    Args:
        processes: records of all processes.
        ranks: each rank's own.
        job: what was asked for.
        is_early: whether the run was stopped by what it had shown: then what was told before its last step is what led to that.
    """
    doubts = list(doubts_of_job(job.spec, job.settings))
    if len(ranks) < max((process.world_size for process in ranks.values()), default=1):
        doubts.append("a rank has left no record")
    return read_set_of_events([_told_by(process, is_early=is_early) for process in processes], doubts=doubts)


def _told_by(process: ProcessRecord, *, is_early: bool) -> Mapping[str, Any] | None:
    told = [line.get("data", {}) for line in process.events_named("files_read")]
    if process.num_starts > 1:  # what the first one read, it has not told
        return None
    return next((data for data in reversed(told) if is_early or not data.get("so_far")), None)


def doubts_of_job(spec: ProbeSpec, settings: RunSettings) -> tuple[str, ...]:
    """Return why others than the recorded program may read files of a checkout in such a probe."""
    first = spec.variant.command[0] if spec.variant.command else ""
    is_python = first == settings.python or _STARTERS.fullmatch(first)
    found = {
        "setup commands run in the checkout": bool(settings.setup),
        "a judging command runs in the checkout": bool(settings.judge),
        "the run is killed and resumed": settings.restart is not None,
        "packages follow the commit's requirement files": bool(settings.environment.files),
        "a launcher stands before the command": bool(spec.variant.launcher),
        "the command is not python": not is_python,
    }
    return tuple(reason for reason, applies in found.items() if applies)
