"""A probe and the good end beside it: which runs first, and what becomes of the two results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.changes import Variant
from bisect_train.core.executor import ProbeProgress
from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeJob, ProbeResult, ProbeSpec, Rung, RunSettings
from bisect_train_workers.paired import run_paired
from bisect_train_workers.probe_run import LostError, ProbeSteps

GOOD, BAD = Variant("0" * 40, "a" * 40, ("x",)), Variant("1" * 40, "b" * 40, ("x",))
STOPPED = Ending(EndingKind.STOPPED)
SETTINGS = RunSettings("python", judge=("judge",), keep=True)


def job_of(seed_idx: int) -> ProbeJob:
    spec = ProbeSpec(BAD, Rung(3), seed_idx)
    return ProbeJob("id", spec, SETTINGS, "repo", reference=replace(spec, variant=GOOD))


def run_both(job: ProbeJob, *, ending: Ending = STOPPED) -> tuple[list[ProbeJob], ProbeResult]:
    """Return the jobs in the order in which they ran, and the result; the good end ends with `ending`."""
    ran: list[ProbeJob] = []

    def run(part: ProbeJob) -> ProbeSteps:
        ran.append(part)
        yield ProbeProgress(part.id, "run")
        is_good = part.spec.variant == GOOD
        step = StepRecord(0, loss=1.0, step_s=0.1 if is_good else 0.2, step_cpu_s=0.3, self_s=0.01, param_hash="f")
        record = RankRecord(0, (step,), (Event("start"),))
        fingerprint = Fingerprint(ending if is_good else STOPPED, (record,))
        return ProbeResult(part.id, fingerprint, warnings=("both",))

    assert job.reference is not None
    steps = run_paired(job, job.reference, run)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return ran, end.value


@pytest.mark.parametrize(("seed_idx", "order"), [(0, [GOOD, BAD]), (1, [BAD, GOOD]), (102, [GOOD, BAD])])
def test_good_end_runs_first_on_even_seeds_and_last_on_odd_ones(seed_idx: int, order: list[Variant]) -> None:
    ran, _ = run_both(job_of(seed_idx))
    assert [part.spec.variant for part in ran] == order
    assert all(part.reference is None and part.spec.seed_idx == seed_idx for part in ran)


def test_good_end_beside_is_neither_judged_nor_kept() -> None:
    ran, _ = run_both(job_of(0))
    assert (ran[0].settings.judge, ran[0].settings.keep) == ((), False)
    assert ran[1].settings == SETTINGS


def test_result_is_the_probes_with_the_times_of_the_good_end() -> None:
    _, result = run_both(job_of(0))
    assert result.fingerprint.ranks[0].steps[0].step_s == 0.2 and result.warnings == ("both",)
    beside = result.fingerprint.reference
    assert beside is not None and beside.ending.is_healthy
    assert beside.ranks == (RankRecord(0, (StepRecord(0, step_s=0.1, step_cpu_s=0.3, self_s=0.01),)),)
    assert Fingerprint.of_json(result.fingerprint.to_json()) == result.fingerprint


def test_good_end_that_is_killed_loses_the_probe_and_one_that_crashes_is_told() -> None:
    with pytest.raises(LostError, match="good end beside it was killed by signal 9"):
        run_both(job_of(1), ending=Ending(EndingKind.KILLED, signal=9))
    _, result = run_both(job_of(0), ending=Ending(EndingKind.CRASHED, message="boom", exit_status=1))
    assert result.fingerprint.ending.is_healthy
    assert result.fingerprint.reference is not None and result.fingerprint.reference.ending.message == "boom"
