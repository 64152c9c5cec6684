"""A probe and the good end beside it: two runs on one worker, one right after the other, for what a step costs.

Even seed indices run the good end first, odd ones last, so that what grows or falls while they run (another job, heat) does not
always fall on the same side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from bisect_train.core.fingerprint import EndingKind, RankRecord, Reference, StepRecord
from bisect_train.core.probe import ProbeJob, ProbeResult, ProbeSpec
from bisect_train_workers.probe_run import LostError, ProbeSteps


def run_paired(job: ProbeJob, reference: ProbeSpec, run: Callable[[ProbeJob], ProbeSteps]) -> ProbeSteps:
    """Run a probe and its reference; yields the progress of both and returns the probe's result with what the other showed.

    Args:
        job: of the probe.
        reference: the good end.
        run: runs one job.
    Raises:
        LostError: the reference was killed from outside, so that nothing is there to compare with.
    """
    own = dataclasses.replace(job, reference=None)
    settings = dataclasses.replace(job.settings, judge=(), keep=False)
    other = dataclasses.replace(own, spec=reference, settings=settings)
    jobs = (other, own) if job.spec.seed_idx % 2 == 0 else (own, other)
    results: dict[bool, ProbeResult] = {}
    for part in jobs:
        results[part is own] = yield from run(part)
    beside, result = results[False], results[True]
    ending = beside.fingerprint.ending
    if ending.kind is EndingKind.KILLED:
        raise LostError(f"the run of the good end beside it was killed by signal {ending.signal}")
    kept = Reference(ending, tuple(map(_times_of, beside.fingerprint.ranks)), beside.fingerprint.metrics)
    warnings = tuple(dict.fromkeys((*result.warnings, *beside.warnings)))
    fingerprint = dataclasses.replace(result.fingerprint, reference=kept)
    return dataclasses.replace(result, fingerprint=fingerprint, warnings=warnings)


def _times_of(record: RankRecord) -> RankRecord:
    return RankRecord(record.rank, tuple(_only_times(record.steps)))


def _only_times(steps: Iterable[StepRecord]) -> Iterable[StepRecord]:
    for step in steps:
        yield StepRecord(
            step.step,
            step_s=step.step_s,
            step_cpu_s=step.step_cpu_s,
            step_cuda_s=step.step_cuda_s,
            self_s=step.self_s,
            rss_mib=step.rss_mib,
            cuda_mib=step.cuda_mib,
        )
