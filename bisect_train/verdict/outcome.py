"""One probe's fingerprint, reduced to what the search needs: a value, a bitwise class, or a failure's signature.

Crash, out-of-memory, timeout and a non-finite metric are outcomes with a signature; whether they speak for BAD is decided
against the ends (`verdict.ends`), never here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from bisect_train.core.changes import Point, digest_of
from bisect_train.core.fingerprint import EndingKind, Fingerprint, StepRecord
from bisect_train.core.question import Metric
from bisect_train.verdict.triage import DERIVED_METRICS as DERIVED_METRICS
from bisect_train.verdict.triage import SYMPTOMS, Category, derived_metric, hard_symptoms, unsaved_step

JUDGE_UNTESTABLE = 125
JUDGE_LOST = 128  # and above: the judge was killed or timed out
MIN_PRINTED_VALUES = 4
SYMPTOM_PREFIX = "triage: "  # of the signature of a run that shows the symptom that was asked about
NEEDS_SAMPLES = ("same_data", "overlapping_samples", "missing_samples")
NEEDS_NO_SENDS = ("same_data", "overlapping_samples", "collectives_differ", "rank_skips_branch")  # right between stages, rings
NEEDS_NO_OTHER_RANK = ("stale_weights", "restart_differs")  # of the symptoms of silent_distributed


class OutcomeKind(str, Enum):
    """MEASURED has a finite value; FAILED has a signature; NO_METRIC ran well but showed no value; UNSEEN had no recorder."""

    MEASURED = "measured"
    FAILED = "failed"
    NO_METRIC = "no_metric"
    UNSEEN = "unseen"
    UNTESTABLE = "untestable"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe showed.

    Attributes:
        kind: see OutcomeKind.
        value: the primary metric as the program reports it (unit of the metric), or None.
        digest: equal for two probes exactly if everything compared is bitwise equal; "" when nothing was recorded.
        signature: of a failure, "" otherwise.
        judge: exit status of the judging command, or None.
        reason: for a person.
    """

    kind: OutcomeKind
    value: float | None = None
    digest: str = ""
    signature: str = ""
    judge: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished probe in the terms of the search.

    Attributes:
        point: the set of changes that ran.
        seed_idx, repeat: of the probe.
        attempt: 0 for ends and search, n for the n-th attempt to prove an answer.
        proof_of: index of the change that the attempt was about, -1 outside a proof.
        outcome: what it showed.
        part: 0 for the whole range, else the number of the part of it that was searched by itself.
    """

    point: Point
    seed_idx: int
    repeat: int
    attempt: int
    proof_of: int
    outcome: Outcome
    part: int = 0


def judge_outcome(fingerprint: Fingerprint, metric: Metric, *, has_judge: bool = False, symptom: str = "") -> Outcome:
    """Return what a probe showed for the metric that decides.

    Args:
        fingerprint: what was recorded.
        metric: the primary metric.
        has_judge: whether a judging command decides in place of the metric.
        symptom: name of the symptom of triage that makes a run fail, or "".
    """
    ending = fingerprint.ending
    if ending.kind in (EndingKind.CANNOT_START, EndingKind.NO_RECORDER):
        kind = OutcomeKind.UNSEEN if ending.kind is EndingKind.NO_RECORDER else OutcomeKind.UNTESTABLE
        return Outcome(kind, reason=ending.message or ending.kind.value)
    if has_judge:
        return _outcome_of_judge(fingerprint)
    if symptom and (said := _outcome_of_symptom(fingerprint, metric, symptom)):
        return said
    if not ending.is_healthy:
        signature = ending.signature or f"{ending.kind.value}:{ending.exit_status or ending.signal or ''}"
        return Outcome(OutcomeKind.FAILED, signature=signature, reason=_say_failure(fingerprint))
    values = metric_values(fingerprint, metric.name)
    digest = digest_fingerprint(fingerprint, metric.name)
    if not values:
        return Outcome(OutcomeKind.NO_METRIC, digest=digest, reason=f"no value of {metric.name} was seen")
    if not all(math.isfinite(value) for value in values):
        first = next(idx for idx, value in enumerate(values) if not math.isfinite(value))
        reason = f"{metric.name} is not finite from value {first} on"
        return Outcome(OutcomeKind.FAILED, signature=f"nonfinite:{metric.name}", digest=digest, reason=reason)
    return Outcome(OutcomeKind.MEASURED, value=reduce_values(values, metric.reduce), digest=digest)


def signature_of_symptom(symptom: str) -> str:
    """Return the signature of a run that shows a symptom of triage."""
    return f"{SYMPTOM_PREFIX}{symptom}"


def _outcome_of_symptom(fingerprint: Fingerprint, metric: Metric, symptom: str) -> Outcome | None:
    """Return the outcome of a run that shows the symptom, or that could not have shown it; None where it does not."""
    if symptom in hard_symptoms(fingerprint):
        reason = f"{symptom}: {SYMPTOMS[symptom].description}"
        signature, digest = signature_of_symptom(symptom), digest_fingerprint(fingerprint, metric.name)
        return Outcome(OutcomeKind.FAILED, signature=signature, digest=digest, reason=reason)
    if not fingerprint.ending.is_healthy:
        return None
    reason = why_unseen(fingerprint, symptom)
    return Outcome(OutcomeKind.UNTESTABLE, reason=reason) if reason else None


def why_unseen(fingerprint: Fingerprint, symptom: str) -> str:
    """Return why a run could not have shown a symptom, "" if it could."""
    is_between_ranks = SYMPTOMS[symptom].category is Category.SILENT_DISTRIBUTED and symptom not in NEEDS_NO_OTHER_RANK
    if is_between_ranks and len(fingerprint.ranks) < 2:
        return f"{symptom} shows between ranks, and one rank was recorded: more with `--ranks 2`"
    has_samples = any(step.samples for rank in fingerprint.ranks for step in rank.steps)
    if symptom in NEEDS_SAMPLES and not has_samples:
        return f"{symptom} shows in the samples that each rank trains on, and none could be told apart in this run"
    has_sends = any(event.name == "point_to_point" for rank in fingerprint.ranks for event in rank.events)
    if symptom in NEEDS_NO_SENDS and has_sends:
        return f"ranks send to each other, so that {symptom} may be right: `probe --baseline REV` tells what is new"
    if symptom in NEEDS_NO_OTHER_RANK:
        return _why_no_restart(fingerprint, symptom)
    return ""


def _why_no_restart(fingerprint: Fingerprint, symptom: str) -> str:
    if not fingerprint.uninterrupted:
        return f"{symptom} shows in a run that is killed and resumed, and this one was not: `restart:` in the recipe says how"
    step = unsaved_step(fingerprint)
    return "" if step is None else f"nothing was saved at step {step}, after which the run was killed: it went on elsewhere"


def _outcome_of_judge(fingerprint: Fingerprint) -> Outcome:
    judge = fingerprint.judge
    if judge is None:
        return Outcome(OutcomeKind.UNTESTABLE, reason="the judging command did not run")
    status = judge.exit_status
    if status == JUDGE_UNTESTABLE or status >= JUDGE_LOST:
        return Outcome(OutcomeKind.UNTESTABLE, judge=status, reason=f"the judging command ended with status {status}")
    kind = OutcomeKind.MEASURED if status == 0 else OutcomeKind.FAILED
    signature = "" if status == 0 else "judged bad"
    reason = f"the judging command ended with status {status}"
    return Outcome(kind, digest="judge:bad" if status else "judge:good", signature=signature, judge=status, reason=reason)


def _say_failure(fingerprint: Fingerprint) -> str:
    ending = fingerprint.ending
    names = {
        EndingKind.TIMEOUT: "it hit its time limit",
        EndingKind.OUT_OF_MEMORY: "it ran out of memory",
        EndingKind.KILLED: f"it was killed by signal {ending.signal}",
    }
    text = names.get(ending.kind, f"it ended with status {ending.exit_status}")
    return f"{text}: {ending.message}" if ending.message else text


def metric_values(fingerprint: Fingerprint, name: str) -> tuple[float, ...]:
    """Return the values of a metric in order: one per step (mean over ranks) for the recorder's, else the log's."""
    for series in fingerprint.metrics:
        if series.name == name:
            return series.values
    if not fingerprint.ranks:
        return ()
    if name in DERIVED_METRICS:
        return _derived_values(fingerprint, name)
    num_steps = min(len(rank.steps) for rank in fingerprint.ranks)
    values = []
    for idx in range(num_steps):
        step_values = [_value_of_step(rank.steps[idx], name) for rank in fingerprint.ranks]
        known = [value for value in step_values if value is not None]
        if known:
            values.append(math.fsum(known) / len(known) if all(map(math.isfinite, known)) else math.nan)
    return tuple(values)


COST_METRICS = ("rss_mib", "cuda_mib", "step_s")
RECORDED_METRICS = ("loss", "grad_norm", "param_norm", "lr", *COST_METRICS)


def _derived_values(fingerprint: Fingerprint, name: str) -> tuple[float, ...]:
    value = derived_metric(fingerprint, name)
    return () if value is None else (float(value),)


def recorded_metric(name: str) -> Metric:
    """Return one of RECORDED_METRICS or DERIVED_METRICS as it is best judged: time by the fastest step, memory by its peak."""
    if name in DERIVED_METRICS:
        return DERIVED_METRICS[name]
    if name == "step_s":
        return Metric(name, reduce="min", unit="s")
    return Metric(name, reduce="max", unit="MiB") if name in ("rss_mib", "cuda_mib") else Metric(name)


def _value_of_step(step: StepRecord, name: str) -> float | None:
    if name == "grad_norm":
        return step.clip_norm if step.clip_norm is not None else step.grad_norm
    if name == "lr":
        return step.lr[0] if step.lr else None
    value = getattr(step, name, None) if name in RECORDED_METRICS else None
    return float(value) if value is not None else None


def reduce_values(values: tuple[float, ...], how: str) -> float:
    """Return one number for a series: first, last, min, max, mean, or tail (mean of the last quarter, at least one)."""
    if how == "tail":
        kept = values[-max(1, len(values) // 4) :]
        return math.fsum(kept) / len(kept)
    if how == "mean":
        return math.fsum(values) / len(values)
    picks = {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
    return picks[how]


def digest_fingerprint(fingerprint: Fingerprint, metric_name: str) -> str:
    """Return the bitwise class of a run: equal exactly if training signals and the primary metric are bitwise equal.

    Times, memory, RNG states and other log metrics do not count unless they are the primary metric. A few printed numbers
    alone are no bits: an accuracy of 0.8 comes twice by chance, so without recorded signals it takes MIN_PRINTED_VALUES
    different ones.
    """
    steps = [step for rank in fingerprint.ranks for step in rank.steps]
    rows = [
        [
            repr(step.loss),
            step.micro,
            repr(step.grad_norm),
            repr(step.clip_norm),
            step.lr,
            step.missing_grads,
            step.param_hash,
        ]
        for step in steps
    ]
    values = metric_values(fingerprint, metric_name)
    has_signals = any(step.loss is not None or step.grad_norm is not None or step.param_hash for step in steps)
    return digest_of([rows, values]) if has_signals or len(set(values)) >= MIN_PRINTED_VALUES else ""
