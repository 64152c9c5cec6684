"""A bisection by what a step costs, on the simulated executor: every probe runs beside the good end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, MetricSeries, RankRecord, Reference, StepRecord
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Metric
from bisect_train.report import Cost, build_report
from bisect_train.store.memory import MemoryStore
from bisect_train.verdict.outcome import recorded_metric
from bisect_train_workers.simulated import SimulatedRun
from tests.support.simulated_bisection import Lab, assert_isolated, drive, limits, module_lab

lab = module_lab
STOPPED = Ending(EndingKind.STOPPED)


def times_of(level_s: float, rng: np.random.Generator) -> RankRecord:
    return RankRecord(0, tuple(StepRecord(idx, loss=1.0, step_cpu_s=float(level_s + 1e-4 * rng.random())) for idx in range(10)))


def script_of(lab: Lab, *, slower: float, noise: float, jobs: list[ProbeJob]) -> Callable[[ProbeJob], SimulatedRun]:
    """Return a script: the load of a machine grows all the time, and single runs of a pair are off by `noise`."""

    def run(job: ProbeJob) -> SimulatedRun:
        rng = np.random.default_rng(len(jobs))
        jobs.append(job)
        load = 0.01 * (1.0 + 0.02 * len(jobs))
        mine, beside = (load * np.exp(noise * rng.normal()) for _ in range(2))
        mine *= 1.0 + slower * (lab.culprit in lab.parts_of(job))
        reference = Reference(STOPPED, (times_of(beside, rng),)) if job.reference else None
        return SimulatedRun(Fingerprint(STOPPED, (times_of(mine, rng),), reference=reference), 1.0)

    return run


def test_culprit_of_slower_steps_is_isolated_by_pairs_though_the_load_grows(lab: Lab) -> None:
    question = replace(lab.question(), metric=recorded_metric("step_cpu_s"), limits=limits(parallel=1, reuse=False))
    jobs: list[ProbeJob] = []
    script = script_of(lab, slower=0.3, noise=0.01, jobs=jobs)
    _, ended = drive(lab, MemoryStore(), question=question, executor=lab.executor(script, slots=1))
    assert_isolated(lab, ended)
    good = lab.space(question).variant(Point(0))
    assert all(job.reference is not None and job.reference.variant == good for job in jobs)
    assert all(job.reference and job.reference.seed_idx == job.spec.seed_idx for job in jobs)
    assert ended.plan.ends.good is not None and abs(ended.plan.ends.good.mean) < 3.0


def test_noise_beyond_the_effect_is_said_and_nobody_is_named(lab: Lab) -> None:
    question = replace(lab.question(), metric=recorded_metric("step_cpu_s"), limits=limits(parallel=1, reuse=False))
    script = script_of(lab, slower=0.04, noise=0.2, jobs=[])
    _, ended = drive(lab, MemoryStore(), question=question, executor=lab.executor(script, slots=1))
    assert ended.answer.status == "not_reproduced" and not ended.answer.culprits
    assert "this machine is too noisy to tell" in ended.answer.reason and "pairs of runs spread by" in ended.answer.reason


def test_other_metrics_run_without_the_good_end_beside(lab: Lab) -> None:
    jobs: list[ProbeJob] = []

    def run(job: ProbeJob) -> SimulatedRun:
        jobs.append(job)
        return lab.run_of(job)

    drive(lab, MemoryStore(), executor=lab.executor(run))
    assert jobs and all(job.reference is None for job in jobs)


RATE = Metric("tok_per_s", better="higher", unit="%", is_paired=True)


def told_of_rate(lab: Lab, *, slower: float, metric: Metric = RATE, bad_rate: float = 50.0) -> str:
    """Return what a report says where the culprit changes the printed rate from 100, and makes a step longer by a share."""
    question = replace(lab.question(), metric=metric, limits=limits(parallel=1, reuse=False))
    inner = script_of(lab, slower=slower, noise=0.01, jobs=[])

    def run(job: ProbeJob) -> SimulatedRun:
        shown = inner(job).fingerprint
        assert shown is not None and shown.reference is not None
        rate = bad_rate if lab.culprit in lab.parts_of(job) else 100.0
        beside = replace(shown.reference, metrics=(MetricSeries(metric.name, (100.0,)),))
        wobble = 0.1 * shown.ranks[0].steps[0].step_cpu_s if shown.ranks[0].steps[0].step_cpu_s else 0.0
        return SimulatedRun(replace(shown, metrics=(MetricSeries(metric.name, (rate + wobble,)),), reference=beside), 1.0)

    store = MemoryStore()
    name, ended = drive(lab, store, question=question, executor=lab.executor(run, slots=1))
    assert_isolated(lab, ended)
    cost = Cost(ended.num_probes, 0, 0.0, 0.0)
    report = build_report(
        store.load(name), question, lab.space(question), ended.plan_with_answer, store.results(name), cost=cost
    )
    return " ".join(report.explanation)


def test_a_large_percentage_is_told_as_a_multiple_too(lab: Lab) -> None:
    waited = replace(RATE, name="wait_ms", better="lower")
    said = told_of_rate(lab, slower=0.0, metric=waited, bad_rate=1500.0)
    assert ", 15 times the good end's run beside it. It explains" in said
    assert "times the good end's run" not in told_of_rate(lab, slower=0.0, metric=waited, bad_rate=250.0)


def test_a_rate_that_is_printed_otherwise_is_told_from_a_step_that_takes_longer(lab: Lab) -> None:
    said = told_of_rate(lab, slower=0.0)
    assert "A step takes as long as before: CPU time of a step (step_cpu_s)" in said
    assert "What tok_per_s says has changed, not the speed." in said
    said = told_of_rate(lab, slower=0.5)
    assert "as long as before" not in said
    assert "Beside it, CPU time of a step (step_cpu_s): +" in said
