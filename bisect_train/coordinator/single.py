"""Single probes outside a search: for `probe` and `compare`. Always fresh, stored like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.observing import spec_of_request
from bisect_train.core.changes import Point
from bisect_train.core.errors import MachineError
from bisect_train.core.executor import Executor, ProbeFinished, ProbeLost, ProbeProgress
from bisect_train.core.probe import ProbeJob, ProbeResult, ProbeSpec, probe_key
from bisect_train.core.question import Question
from bisect_train.search.terms import Request
from bisect_train.store.contract import Store

MAX_TRIES = 3
WAIT_S = 0.5
GOOD_SIDE = Point(0)


@dataclass(frozen=True, slots=True)
class SingleProbe:
    """One variant to run: a point of its own space, with one seed index."""

    question: Question
    space: ChangeSpace
    seed_idx: int = 0
    point: Point = GOOD_SIDE


def run_singles(
    singles: Sequence[SingleProbe],
    *,
    executor: Executor,
    store: Store,
    bisection_id: str,
    listener: Callable[[ProbeProgress], None] = lambda progress: None,
) -> list[tuple[str, ProbeResult]]:
    """Run probes and return (key, result) in their order.

    Raises:
        UnbuildableError: a variant cannot be built.
        MachineError: a probe was lost three times.
    """
    facts = executor.facts()
    jobs: dict[str, ProbeJob] = {}
    specs: dict[str, dict[str, object]] = {}
    order = []
    for idx, single in enumerate(singles):
        variant = single.space.variant(single.point)
        spec = ProbeSpec(variant, single.question.rung, single.seed_idx)
        key = probe_key(spec, settings=single.question.settings, facts=facts, scope=f"{bisection_id}/{idx}")
        jobs[key] = ProbeJob(key, spec, single.question.settings, single.space.repo_key, single.space.packs(variant))
        specs[key] = spec_of_request(Request(single.point, single.seed_idx), variant, facts, single.question)
        order.append(key)
    results = _run_jobs(jobs, specs, executor=executor, store=store, bisection_id=bisection_id, listener=listener)
    return [(key, results[key]) for key in order]


def _elsewhere(job: ProbeJob, node: str) -> ProbeJob:
    """Return the job for another node than the one that lost it."""
    return replace(job, avoid=(*job.avoid, node)) if node else job


def _run_jobs(
    jobs: dict[str, ProbeJob],
    specs: dict[str, dict[str, object]],
    *,
    executor: Executor,
    store: Store,
    bisection_id: str,
    listener: Callable[[ProbeProgress], None],
) -> dict[str, ProbeResult]:
    results: dict[str, ProbeResult] = {}
    num_tries = dict.fromkeys(jobs, 1)
    for job in jobs.values():
        executor.submit(job)
    while len(results) < len(jobs):
        for event in executor.wait(WAIT_S):
            if isinstance(event, ProbeFinished):
                key = event.result.job_id
                store.save_result(bisection_id, key, event.result, spec=specs[key])
                results[key] = event.result
            elif isinstance(event, ProbeLost):
                if num_tries[event.job_id] >= MAX_TRIES:
                    raise MachineError(f"the probe was lost {MAX_TRIES} times: {event.reason}", hint="`bisect-train doctor`")
                num_tries[event.job_id] += 1
                jobs[event.job_id] = _elsewhere(jobs[event.job_id], event.node)
                executor.submit(jobs[event.job_id])
            else:
                listener(event)
    return results
