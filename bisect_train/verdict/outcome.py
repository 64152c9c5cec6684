"""One probe's fingerprint, reduced to what the search needs: a value, a bitwise class, or a failure's signature.

Crash, out-of-memory, timeout and a non-finite metric are outcomes with a signature; whether they speak for BAD is decided
against the ends (`verdict.ends`), never here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from statistics import median

from bisect_train.core.changes import Point, digest_of
from bisect_train.core.early import has_signals, norm_of_step, signals_of
from bisect_train.core.fingerprint import EarlyStop, EndingKind, Fingerprint, MetricOrigin, StepRecord
from bisect_train.core.question import Metric
from bisect_train.core.secrets import mask_text
from bisect_train.verdict.step_costs import TIME_METRICS, percent_above, step_times
from bisect_train.verdict.triage import DERIVED_METRICS as DERIVED_METRICS
from bisect_train.verdict.triage import SYMPTOMS, Category, derived_metric, hard_symptoms, unsaved_step

JUDGE_UNTESTABLE = 125
JUDGE_LOST = 128  # and above: the judge was killed or timed out
MIN_PRINTED_VALUES = 4
MIN_PRINTED_LEVELS = 100  # between the least and the greatest of them: 2.31 to 2.28 are four; chosen, not measured
NON_FINITE = "nonfinite:"  # begins the signature of a metric that is not finite
SYMPTOM_PREFIX = "triage: "  # of the signature of a run that shows the symptom that was asked about
NEEDS_SAMPLES = ("same_data", "overlapping_samples", "missing_samples")
NEEDS_NO_SENDS = ("same_data", "overlapping_samples", "collectives_differ", "rank_skips_branch")  # right between stages, rings
NEEDS_NO_OTHER_RANK = ("stale_weights", "restart_differs")  # of the symptoms of silent_distributed


class OutcomeKind(str, Enum):
    """MEASURED has a finite value; FAILED has a signature; NO_METRIC ran well but showed no value; UNSEEN had no recorder.

    EARLY was stopped by the test of its curve: it has nats and no value.
    """

    MEASURED = "measured"
    EARLY = "early"
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
        nats: of EARLY, ln P(curve | BAD) - ln P(curve | GOOD).
        is_early: whether the run was stopped before its last step; value and digest are then those of the end it is like.
        unit: distance between values that can be told apart as they are written (0.01 for 2.31); 0.0 where it is not known.
    """

    kind: OutcomeKind
    value: float | None = None
    digest: str = ""
    signature: str = ""
    judge: int | None = None
    reason: str = ""
    nats: float = 0.0
    is_early: bool = False
    unit: float = 0.0


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
        return Outcome(kind, reason=mask_text(ending.message) or ending.kind.value)
    if fingerprint.early is not None:
        return _outcome_of_early(fingerprint.early)
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
        note = metric_origin(fingerprint, metric.name).note
        reason = f"no value of {metric.name} was seen{f': {note}' if note else ''}"
        return Outcome(OutcomeKind.NO_METRIC, digest=digest, reason=reason)
    if not all(math.isfinite(value) for value in values):
        first = next(idx for idx, value in enumerate(values) if not math.isfinite(value))
        reason = f"{metric.name} is not finite from value {first} on"
        return Outcome(OutcomeKind.FAILED, signature=f"{NON_FINITE}{metric.name}", digest=digest, reason=reason)
    if metric.is_paired:
        return _outcome_of_pair(fingerprint, metric, values, digest)
    value = reduce_values(values, metric.reduce)
    return Outcome(OutcomeKind.MEASURED, value, digest, unit=metric_origin(fingerprint, metric.name).unit_at(value))


def is_blind(outcome: Outcome, signature: str) -> bool:
    """Return whether a run could not have shown a failure: a metric that is not seen may have been infinite."""
    return outcome.kind is OutcomeKind.NO_METRIC and signature.startswith(NON_FINITE)


def _outcome_of_pair(fingerprint: Fingerprint, metric: Metric, values: tuple[float, ...], digest: str) -> Outcome:
    """Return by how many percent a run is above the good end's run beside it; no verdict where that one shows nothing."""
    beside = fingerprint.reference
    if beside is None:
        return Outcome(OutcomeKind.UNTESTABLE, reason=f"no run of the good end beside it, which {metric.name} is compared with")
    known = metric_values(Fingerprint(beside.ending, beside.ranks, beside.metrics), metric.name)
    if beside.ending.is_healthy and known and all(map(math.isfinite, known)):
        value = percent_above(reduce_values(values, metric.reduce), reduce_values(known, metric.reduce))
        if value is not None:
            return Outcome(OutcomeKind.MEASURED, value=value, digest=digest)
    said = mask_text(beside.ending.message) or f"it ended with status {beside.ending.exit_status}"
    reason = f"no {metric.name} above 0 was seen" if beside.ending.is_healthy else said
    return Outcome(OutcomeKind.UNTESTABLE, reason=f"the run of the good end beside it: {reason}")


def say_early(stop: EarlyStop) -> str:
    """Return why a run was stopped before its last step, for a person."""
    if stop.how == "bits":
        return f"stopped early at step {stop.step}: bitwise the {stop.like} end so far"
    return f"stopped early at step {stop.step}: its curve is the {stop.like} end's"


def _outcome_of_early(stop: EarlyStop) -> Outcome:
    reason = say_early(stop)
    if stop.how == "bits":
        return Outcome(OutcomeKind.MEASURED, value=stop.value, digest=stop.digest, reason=reason, is_early=True)
    return Outcome(OutcomeKind.EARLY, reason=reason, nats=stop.nats, is_early=True)


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
    return f"{text}: {mask_text(ending.message)}" if ending.message else text


def metric_values(fingerprint: Fingerprint, name: str) -> tuple[float, ...]:
    """Return the values of a metric in order: one per step (mean over ranks) for the recorder's, else the log's."""
    for series in fingerprint.metrics:
        if series.name == name:
            return series.values
    if not fingerprint.ranks:
        return ()
    if name in DERIVED_METRICS:
        return _derived_values(fingerprint, name)
    if name in TIME_METRICS:
        return step_times(fingerprint.ranks, name)
    num_steps = min(len(rank.steps) for rank in fingerprint.ranks)
    values = []
    for idx in range(num_steps):
        step_values = [_value_of_step(rank.steps[idx], name) for rank in fingerprint.ranks]
        known = [value for value in step_values if value is not None]
        if known:
            values.append(math.fsum(known) / len(known) if all(map(math.isfinite, known)) else math.nan)
    return tuple(values)


def metric_origin(fingerprint: Fingerprint, name: str) -> MetricOrigin:
    """Return where a metric was read; of one of the recorder's an origin that knows no rounding."""
    return next((series.origin for series in fingerprint.metrics if series.name == name), MetricOrigin("recorder"))


COST_METRICS = ("rss_mib", "cuda_mib", *TIME_METRICS)
RECORDED_METRICS = ("loss", "grad_norm", "param_norm", "lr", *COST_METRICS)


def _derived_values(fingerprint: Fingerprint, name: str) -> tuple[float, ...]:
    value = derived_metric(fingerprint, name)
    return () if value is None else (float(value),)


def recorded_metric(name: str) -> Metric:
    """Return one of RECORDED_METRICS or DERIVED_METRICS as it is best judged: times by `step_costs`, memory by its peak."""
    if name in DERIVED_METRICS:
        return DERIVED_METRICS[name]
    if name in TIME_METRICS:
        return TIME_METRICS[name]
    return Metric(name, reduce="max", unit="MiB") if name in ("rss_mib", "cuda_mib") else Metric(name)


def _value_of_step(step: StepRecord, name: str) -> float | None:
    if name in ("grad_norm", "param_norm"):
        return norm_of_step(step, name)
    if name == "lr":
        return step.lr[0] if step.lr else None
    value = getattr(step, name, None) if name in RECORDED_METRICS else None
    return float(value) if value is not None else None


def reduce_values(values: tuple[float, ...], how: str) -> float:
    """Return one number for a series: first, last, min, max, mean, median, or tail (mean of the last quarter, at least one)."""
    if how == "tail":
        kept = values[-max(1, len(values) // 4) :]
        return math.fsum(kept) / len(kept)
    if how == "mean":
        return math.fsum(values) / len(values)
    if how == "median":
        return median(values)
    picks = {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
    return picks[how]


def _num_levels(values: tuple[float, ...], origin: MetricOrigin) -> float:
    """Return how many values could be written between the least and the greatest; infinite where the precision is unknown."""
    finite = [value for value in values if math.isfinite(value)]
    unit = max((origin.unit_at(value) for value in finite), default=0.0)
    return (max(finite) - min(finite)) / unit if unit else math.inf


def digest_fingerprint(fingerprint: Fingerprint, metric_name: str) -> str:
    """Return the bitwise class of a run: equal exactly if training signals and the primary metric are bitwise equal.

    Times, memory, RNG states and other log metrics do not count unless they are the primary metric. A few printed numbers
    alone are no bits: an accuracy of 0.8 comes twice by chance, so without recorded signals it takes MIN_PRINTED_VALUES
    different ones, MIN_PRINTED_LEVELS apart where their precision is known. How many states of a progress bar are seen
    depends on the clock, so these do not count.
    """
    steps = [step for rank in fingerprint.ranks for step in rank.steps]
    origin = metric_origin(fingerprint, metric_name)
    values = () if origin.is_redrawn else metric_values(fingerprint, metric_name)
    is_fine = len(set(values)) >= MIN_PRINTED_VALUES and _num_levels(values, origin) >= MIN_PRINTED_LEVELS
    has_bits = has_signals(steps) or is_fine
    return digest_of([[signals_of(step) for step in steps], values]) if has_bits else ""
