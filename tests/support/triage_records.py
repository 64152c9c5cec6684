"""Records of runs for the rules of triage: a healthy run of any number of ranks, and what to change in it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, MetricSeries, RankRecord, StepRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage import Asked, Finding, Triage, triage

Change = Callable[[int, int], dict[str, Any]]
"""(rank, step) -> fields of the step that are not as in a healthy run."""

SAMPLES_A_STEP = 4


def sample_text(*numbers: int) -> str:
    """Return the hashes of samples as the recorder joins them."""
    return "".join(f"{number:08x}" for number in numbers)


def own_samples(rank: int, step: int, num_ranks: int) -> tuple[int, ...]:
    """Return the samples of a rank at a step, none of which comes twice."""
    first = SAMPLES_A_STEP * (step * num_ranks + rank)
    return tuple(range(first, first + SAMPLES_A_STEP))


def healthy_step(rank: int, step: int, *, num_ranks: int, num_steps: int, seed: int) -> dict[str, Any]:
    """Return the fields of one step of a healthy data-parallel run: replicas, other batches on each rank."""
    own, shared = random.Random(f"{seed} {rank} {step}"), random.Random(f"{seed} {step}")
    loss = 1.0 + 2.0 * math.exp(-step / 15.0) + 0.05 * own.gauss(0.0, 1.0)
    is_sampled = step % 10 == 0 or step == num_steps - 1
    return {
        "loss": loss,
        "micro": (loss,),
        "grad_norm": 1.0 + 0.1 * shared.random(),
        "lr": (0.1,),
        "param_norm": 10.0 if is_sampled else None,
        "param_hash": f"h{seed}-{step}" if is_sampled else None,
        "batch_hash": f"b{seed}-{rank}-{step}",
        "step_s": 0.1 + 0.01 * own.random(),
        "dtypes": ("param:float32", "grad:float32"),
        "rss_mib": 500.0,
        "self_s": 0.001,
        "data_s": 0.002,
        "moved": 1.0 if is_sampled else None,
        "samples": sample_text(*own_samples(rank, step, num_ranks)),
        "collectives": "2:0a1b2c3d" if num_ranks > 1 else None,
    }


def healthy_events(rank: int, *, num_ranks: int, num_steps: int, seed: int) -> dict[str, list[Event]]:
    """Return the events of a rank of a healthy run, by name."""
    nothing_missing = {"missing": [], "zero": [], "num_missing": 0, "num_zero": 0, "num": 8}
    found = {
        "torch_imported": [Event("torch_imported", None, {"version": "2.5.0"})],
        "initial_params": [Event("initial_params", 0, {"param_hash": f"init{seed}", "param_norm": 10.0, "num_params": 1000})],
        "first_batch": [Event("first_batch", 0, {"num_params": 1000, "values": [["0", [float(rank), 1.0]]]})],
        "gradients": [Event("gradients", step, dict(nothing_missing)) for step in (0, num_steps - 1)],
        "still_params": [Event("still_params", num_steps - 1, {"names": [], "num": 0, "of": 8})],
        "exit": [Event("exit", None, {"exit": "atexit", "code": 0})],
    }
    if num_ranks > 1:
        data = {"backend": "gloo", "world_size": num_ranks, "rank": rank}
        found["process_group_begin"] = [Event("process_group_begin", None, {"backend": "gloo"})]
        found["process_group"] = [Event("process_group", None, data)]
        found["collective"] = [collective(idx, "all_reduce", [10]) for idx in range(4)]
    return found


def collective(idx: int, op: str, shape: list[int] | None = None, dtype: str = "float32", **more: Any) -> Event:
    """Return the event of a collective call."""
    return Event("collective", 0, {"idx": idx, "op": op, "shape": shape, "dtype": dtype, "async": False, **more})


def make_run(
    num_steps: int = 40,
    *,
    ranks: int = 1,
    seed: int = 0,
    change: Change | None = None,
    events: Callable[[int], dict[str, list[Event]]] | None = None,
    only: Iterable[int] | None = None,
    ending: Ending | None = None,
    metrics: tuple[MetricSeries, ...] = (),
    facts: dict[str, str] | None = None,
    stacks: tuple[tuple[str, str], ...] = (),
    log: str = "",
) -> ProbeResult:
    """Return a healthy run, but for what is changed.

    Args:
        num_steps, ranks, seed: of the run; seeds differ in their noise, parameters and data order.
        change: see Change.
        events: rank -> events by name that replace the healthy ones; an empty list takes them away.
        only: ranks that left a record, all by default.
        ending: STOPPED by default.
        metrics, facts, stacks, log: of the result.
    """
    records = []
    for rank in range(ranks) if only is None else only:
        told = healthy_events(rank, num_ranks=ranks, num_steps=num_steps, seed=seed)
        if ending is not None and ending.kind is EndingKind.TIMEOUT:
            del told["exit"]  # it was ended
        told.update(events(rank) if events else {})
        steps = []
        for step in range(num_steps):
            fields = healthy_step(rank, step, num_ranks=ranks, num_steps=num_steps, seed=seed)
            fields.update(change(rank, step) if change else {})
            if "loss" in fields and fields["loss"] is not None and change and "micro" not in change(rank, step):
                fields["micro"] = (fields["loss"],)
            steps.append(StepRecord(step, **fields))
        records.append(RankRecord(rank, tuple(steps), tuple(event for named in told.values() for event in named)))
    known = {"torch": "2.5.0", "python": "3.11.0", "world_size": str(ranks), **(facts or {})}
    fingerprint = Fingerprint(
        ending or Ending(EndingKind.STOPPED), tuple(records), metrics=metrics, facts=tuple(sorted(known.items()))
    )
    return ProbeResult("", fingerprint, stacks=stacks, log_tail=log)


def seeds(num: int = 3, **asked: Any) -> list[Fingerprint]:
    """Return healthy runs of other seeds."""
    return [make_run(seed=idx + 1, **asked).fingerprint for idx in range(num)]


def judge(run: ProbeResult, **asked: Any) -> Triage:
    """Return the triage of a run; the run is meant to have the steps and ranks that it has."""
    baseline, replicates = asked.pop("baseline", None), asked.pop("replicates", ())
    kept = {"ranks": max(1, len(run.fingerprint.ranks)), **asked}
    return triage(run, baseline=baseline, replicates=replicates, asked=Asked(**kept))


def told(run: ProbeResult, **asked: Any) -> list[str]:
    """Return the names of the symptoms that triage tells, in order."""
    return [finding.symptom for finding in judge(run, **asked).findings]


def finding_of(symptom: str, run: ProbeResult, **asked: Any) -> Finding:
    """Return the finding of a symptom, which must be there."""
    found = judge(run, **asked).findings
    return next(finding for finding in found if finding.symptom == symptom)
