"""What one probe recorded, per rank and per step, plus how it ended."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any

from bisect_train.core.reads import ReadSet


class EndingKind(str, Enum):
    """How the user's program ended."""

    STOPPED = "stopped"  # by the recorder after its last step
    FINISHED = "finished"  # by itself, exit status 0
    CRASHED = "crashed"  # exception or exit status other than 0
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"  # the probe's time limit; a hang if no step came for long
    KILLED = "killed"  # by a signal that was not ours
    CANNOT_START = "cannot_start"  # checkout, setup or command could not be started
    NO_RECORDER = "no_recorder"  # the program ran but the recorder was not loaded


HANG_SIGNATURE = "timeout: hang"
"""Signature of a run that hung until its time limit."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a probe ended.

    Attributes:
        kind: see EndingKind.
        signature: stable text of a failure (exception type, normalised message, innermost functions), "" without one.
        message: what a person should read: the exception's own message, the reason of CANNOT_START.
        exit_status: of the program, None when it was stopped by us or never ran.
        signal: number of the signal that ended it, or None.
        missing_module: name of the module of an ImportError, or "".
    """

    kind: EndingKind
    signature: str = ""
    message: str = ""
    exit_status: int | None = None
    signal: int | None = None
    missing_module: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether the program did what it was asked for."""
        return self.kind in (EndingKind.STOPPED, EndingKind.FINISHED)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step on one rank. Floats are as recorded, in full precision.

    Attributes:
        step: 0-based index of the optimizer step.
        loss: sum of the micro-batch losses that `backward` was called on, or None.
        micro: the losses of the micro-batches.
        grad_norm: norm of this rank's gradients when the optimizer stepped (after clipping), or None.
        clip_norm: the norm that the clipping function saw, or None without clipping.
        whole_grad_norm, whole_param_norm: norms over all ranks where each holds a piece of the model (ZeRO, FSDP, tensor or
            pipeline parallel), the same on each rank; None where the ranks hold the same, or it is not known.
        lr: learning rate of every parameter group.
        missing_grads: number of parameters without a gradient.
        param_norm, param_hash, rng_hash: at sampled steps only, else None.
        batch_hash: of the first forward's inputs, or None.
        step_s: wall time since the previous step, seconds.
        step_cpu_s: CPU time of all threads, and of worker processes, since the previous step, without the recorder's; seconds.
        step_cuda_s: time between the ends of two steps on the CUDA device's own clock, seconds.
        skipped: whether a gradient scaler skipped the step.
        dtypes: parameter, gradient and autocast types.
        rss_mib, cuda_mib: memory, MiB.
        self_s: time that the recorder itself took, seconds.
        data_s: time that the program waited for its data loader since the previous step, seconds.
        moved: share (0 to 1) of a sample of the weights whose bits differ from what they were before the first step; at
            sampled steps only.
        samples: a hash of each sample that the model was trained on, 8 hex digits each, joined in order.
        collectives: number and digest of the collective calls since the previous step, as `12:0a1b2c3d`.
    """

    step: int
    loss: float | None = None
    micro: tuple[float, ...] = ()
    grad_norm: float | None = None
    clip_norm: float | None = None
    lr: tuple[float, ...] = ()
    missing_grads: int = 0
    param_norm: float | None = None
    param_hash: str | None = None
    rng_hash: str | None = None
    batch_hash: str | None = None
    step_s: float | None = None
    step_cpu_s: float | None = None
    step_cuda_s: float | None = None
    skipped: bool = False
    dtypes: tuple[str, ...] = ()
    rss_mib: float | None = None
    cuda_mib: float | None = None
    self_s: float | None = None
    data_s: float | None = None
    moved: float | None = None
    samples: str | None = None
    collectives: str | None = None
    whole_grad_norm: float | None = None
    whole_param_norm: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on a rank: name (see the recorder), step or None, details."""

    name: str
    step: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankRecord:
    """All that one rank recorded, steps in order."""

    rank: int
    steps: tuple[StepRecord, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricOrigin:
    """Where a metric's values were read, and how finely they are written there.

    Attributes:
        source: one of `core.probe.METRIC_SOURCES`.
        file: path in the checkout, or `{out}/...`; "" for the log.
        decimals: digits after the point, at most; None where values are no text.
        digits: significant digits, at most; None where values are no text.
        bits: of the significand of binary values (24 for float32), None for text.
        is_redrawn: whether a progress bar shows it: how often it is drawn depends on the clock.
        note: why there is no value, or what else a reader should know; "" for nothing.
    """

    source: str = "log"
    file: str = ""
    decimals: int | None = None
    digits: int | None = None
    bits: int | None = None
    is_redrawn: bool = False
    note: str = ""

    def unit_at(self, value: float) -> float:
        """Return the distance between neighbouring values that can be told apart near a value; 0.0 where it is not known."""
        if value == 0.0 or not math.isfinite(value):
            return 0.0 if self.decimals is None else 10.0**-self.decimals
        if self.bits is not None:
            return math.ldexp(1.0, math.frexp(value)[1] - self.bits)
        if self.decimals is None or self.digits is None:
            return 0.0
        return 10.0 ** max(-self.decimals, math.floor(math.log10(abs(value))) + 1 - self.digits)


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A metric read from the log or a file: values in order of appearance; `steps` has one number each, or is empty."""

    name: str
    values: tuple[float, ...]
    steps: tuple[int, ...] = ()
    origin: MetricOrigin = MetricOrigin()


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """Exit status of the user's judging command and the tail of what it printed."""

    exit_status: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Why a run was stopped before its last step: what it had shown by then decides (`core.early`).

    Attributes:
        like: `good` or `bad`, the end that it is like.
        step: 0-based, the last one that was looked at.
        how: `bits` (bitwise that end's run on the same seed so far) or `curve` (a sequential test of the metric's curve).
        nats: of the curve, ln P(curve | BAD) - ln P(curve | GOOD), tempered.
        digest, value: of the bits, what that end's whole run showed.
    """

    like: str
    step: int
    how: str
    nats: float = 0.0
    digest: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """What the good end showed on the same worker right before or after a probe, where costs are compared by pairs.

    Attributes:
        ending: how it ended.
        ranks: its steps, with their times only.
        metrics: read from its log.
    """

    ending: Ending
    ranks: tuple[RankRecord, ...] = ()
    metrics: tuple[MetricSeries, ...] = ()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What one probe recorded.

    Attributes:
        ending: how it ended.
        ranks: one record per rank, by rank; empty without a recorder.
        metrics: read from the log.
        judge: result of the judging command, or None.
        facts: versions and settings seen from inside (python, torch, threads, recorder, channel).
        uninterrupted: of a run that was killed and resumed: what the same run recorded without that; `ranks` has the
            resumed one, whose steps go on where the first part stopped.
        early: why it was stopped before its last step, None for a whole run.
        reads: what the program read inside its checkout, None where nothing is known of it.
        reference: the run of the good end beside it, None where there was none.
    """

    ending: Ending
    ranks: tuple[RankRecord, ...] = ()
    metrics: tuple[MetricSeries, ...] = ()
    judge: JudgeResult | None = None
    facts: tuple[tuple[str, str], ...] = ()
    uninterrupted: tuple[RankRecord, ...] = ()
    early: EarlyStop | None = None
    reference: Reference | None = None
    reads: ReadSet | None = None

    @property
    def num_steps(self) -> int:
        """Number of steps that rank 0 recorded."""
        return len(self.ranks[0].steps) if self.ranks else 0

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict (NaN and Infinity stay as Python's json writes them)."""
        return asdict(self)

    @staticmethod
    def of_json(data: dict[str, Any]) -> Fingerprint:
        """Return the fingerprint that `to_json` wrote; keys that this version does not know are left out."""
        judge, early, reference = data.get("judge"), data.get("early"), data.get("reference")
        return Fingerprint(
            ending=_ending_of_json(data["ending"]),
            ranks=_ranks_of_json(data),
            metrics=_metrics_of_json(data),
            judge=JudgeResult(**_pick(JudgeResult, judge)) if judge else None,
            facts=tuple((str(key), str(value)) for key, value in data.get("facts", ())),
            uninterrupted=tuple(_rank_of_json(rank) for rank in data.get("uninterrupted", ())),
            early=EarlyStop(**_pick(EarlyStop, early)) if early else None,
            reference=_reference_of_json(reference) if reference else None,
            reads=ReadSet.of_json(data["reads"]) if data.get("reads") else None,
        )


@cache
def _names_of(cls: type) -> frozenset[str]:
    return frozenset(item.name for item in fields(cls))


def _pick(cls: type, data: dict[str, Any]) -> dict[str, Any]:
    known = _names_of(cls)
    return {key: value for key, value in data.items() if key in known}


def _ending_of_json(data: dict[str, Any]) -> Ending:
    ending = _pick(Ending, data)
    return Ending(**{**ending, "kind": EndingKind(ending["kind"])})


def _ranks_of_json(data: dict[str, Any]) -> tuple[RankRecord, ...]:
    return tuple(_rank_of_json(rank) for rank in data.get("ranks", ()))


def _metrics_of_json(data: dict[str, Any]) -> tuple[MetricSeries, ...]:
    return tuple(
        MetricSeries(
            item["name"],
            tuple(item["values"]),
            tuple(item.get("steps", ())),
            MetricOrigin(**_pick(MetricOrigin, item.get("origin", {}))),
        )
        for item in data.get("metrics", ())
    )


def _reference_of_json(data: dict[str, Any]) -> Reference:
    return Reference(_ending_of_json(data["ending"]), _ranks_of_json(data), _metrics_of_json(data))


def _rank_of_json(data: dict[str, Any]) -> RankRecord:
    steps = []
    for item in data.get("steps", ()):
        kept = _pick(StepRecord, item)
        for name in ("micro", "lr", "dtypes"):
            kept[name] = tuple(kept.get(name, ()))
        steps.append(StepRecord(**kept))
    events = tuple(Event(**_pick(Event, item)) for item in data.get("events", ()))
    return RankRecord(int(data["rank"]), tuple(steps), events)
