"""First divergence: where two runs of the same seed first differ, and which stage of training that points to.

Steps are compared in order; within a step the signals in causal order, so that the first difference is the nearest to the cause
that was recorded:

    environment -> data -> initial parameters -> forward loss -> gradient -> clipping -> reduction across ranks -> learning rate
    -> updated parameters -> ending -> metrics of the log -> time and memory

Values are compared bitwise (NaN equals NaN). A signal that one of the runs did not record is not compared: a missing hash is no
difference. Initial parameters are compared once, by the hash that was taken before the first forward.
Wrappers reduce gradients inside the backward pass, so a norm is that of the reduced gradient. Where losses are equal it is a
matter of the reduction, and not of the backward pass, if the norm is W or 1/W times the other's on all W ranks, if the ranks
agree in one run only, or if the ranks called other collectives in that step.
What the program prints comes late: a printed speed differs in every run and must not hide what is nearer to a cause. A metric
that only one of the runs printed is no difference, but they are not equal either: `unequal_counts` names it.
Only time and memory are compared by size: they never repeat bitwise, and count only when everything else is equal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bisect_train.core.fingerprint import Fingerprint, MetricSeries, RankRecord, StepRecord
from bisect_train.core.secrets import mask_text

SLOWER_FACTOR = 1.5  # chosen, not measured: well above what a shared machine does to the median of equal steps
MEMORY_FACTOR = 1.2  # chosen, not measured
SAME_NORM_SHARE = 1e-5  # two ways to add up one norm in single precision agree to this share
RANKS_RATIO_SHARE = 1e-2  # of a ratio of norms that is the number of ranks; chosen, not measured
# of laid packages their effect tells
_UNCOMPARED_FACTS = frozenset({"executable", "channel", "recorder", "environment", "stubs"})


class Stage(str, Enum):
    """The stages of training, in causal order."""

    ENVIRONMENT = "environment"
    DATA = "data"
    INITIAL_PARAMETERS = "initial_parameters"
    FORWARD = "forward"
    GRADIENT = "gradient"
    CLIPPING = "clipping"
    REDUCTION = "reduction"  # of gradients across ranks
    LEARNING_RATE = "learning_rate"
    UPDATED_PARAMETERS = "updated_parameters"
    ENDING = "ending"
    METRIC = "metric"
    TIME_AND_MEMORY = "time_and_memory"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of two runs.

    Attributes:
        stage: of training.
        signal: name of the recorded value.
        step: 0-based optimizer step, for a metric of the log the step as printed; None where no step is meant.
        rank: rank that showed it.
        left, right: the two values, as text in full precision.
    """

    stage: Stage
    signal: str
    step: int | None
    rank: int
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of two runs side by side; None where a run did not record the value.

    Attributes:
        step: 0-based index.
        losses, grad_norms, clip_norms, lrs: (left, right); gradient norms after clipping, `clip_norms` before it, the learning
            rate of the first parameter group.
        loss_delta: right - left.
        has_equal_params, has_equal_batch: bitwise; None when one of the hashes is missing.
    """

    step: int
    losses: tuple[float | None, float | None]
    loss_delta: float | None
    grad_norms: tuple[float | None, float | None]
    clip_norms: tuple[float | None, float | None]
    lrs: tuple[float | None, float | None]
    has_equal_params: bool | None
    has_equal_batch: bool | None


_Signal = tuple[Stage, str, Callable[[StepRecord], object]]
_SIGNALS: tuple[_Signal, ...] = (
    (Stage.DATA, "batch_hash", lambda step: step.batch_hash),
    (Stage.DATA, "samples", lambda step: step.samples),
    (Stage.INITIAL_PARAMETERS, "dtypes", lambda step: step.dtypes or None),
    (Stage.FORWARD, "micro", lambda step: step.micro or None),
    (Stage.FORWARD, "loss", lambda step: step.loss),
    (Stage.GRADIENT, "missing_grads", lambda step: step.missing_grads),
    (Stage.GRADIENT, "clip_norm", lambda step: step.clip_norm),
    (Stage.CLIPPING, "grad_norm", lambda step: step.grad_norm),
    (Stage.GRADIENT, "skipped", lambda step: step.skipped),
    (Stage.REDUCTION, "collectives", lambda step: step.collectives),
    (Stage.LEARNING_RATE, "lr", lambda step: step.lr or None),
    (Stage.UPDATED_PARAMETERS, "param_hash", lambda step: step.param_hash),
    (Stage.UPDATED_PARAMETERS, "param_norm", lambda step: step.param_norm),
)


def first_divergence(left: Fingerprint, right: Fingerprint) -> Divergence | None:
    """Return the first difference of two runs of the same seed, or None if everything recorded by both is equal.

    Args:
        left, right: fingerprints; without a recorder only facts, endings and metrics of the log are compared.
    """
    for divergence in _differences(left, right):
        return divergence
    return None


def unequal_counts(left: Fingerprint, right: Fingerprint) -> tuple[tuple[str, int, int], ...]:
    """Return (name, values of the left run, of the right run) of each metric of the log that one run shows more often."""
    nums = [{series.name: len(series.values) for series in run.metrics} for run in (left, right)]
    names = sorted(nums[0].keys() | nums[1].keys())
    counts = ((name, nums[0].get(name, 0), nums[1].get(name, 0)) for name in names)
    return tuple((name, one, other) for name, one, other in counts if one != other)


def step_rows(left: Fingerprint, right: Fingerprint) -> tuple[StepRow, ...]:
    """Return rank 0's steps side by side, every step that either run has, in order."""
    sides = [{step.step: step for step in run.ranks[0].steps} if run.ranks else {} for run in (left, right)]
    return tuple(_row(idx, sides[0].get(idx), sides[1].get(idx)) for idx in sorted(sides[0].keys() | sides[1].keys()))


def _row(idx: int, left: StepRecord | None, right: StepRecord | None) -> StepRow:
    a, b = left or StepRecord(idx), right or StepRecord(idx)
    delta = b.loss - a.loss if a.loss is not None and b.loss is not None else None
    return StepRow(
        step=idx,
        losses=(a.loss, b.loss),
        loss_delta=delta,
        grad_norms=(a.grad_norm, b.grad_norm),
        clip_norms=(a.clip_norm, b.clip_norm),
        lrs=(a.lr[0] if a.lr else None, b.lr[0] if b.lr else None),
        has_equal_params=_equal_hash(a.param_hash, b.param_hash),
        has_equal_batch=_equal_hash(a.batch_hash, b.batch_hash),
    )


def _equal_hash(left: str | None, right: str | None) -> bool | None:
    return None if left is None or right is None else left == right


def _differences(left: Fingerprint, right: Fingerprint) -> Iterator[Divergence]:
    yield from _environment(left, right)
    pairs = list(zip(left.ranks, right.ranks, strict=False))
    yield from _first_events(pairs, (_INPUTS,), 0)
    yield from _steps(pairs)
    yield from _endings(left, right)
    yield from _metrics(left, right)
    yield from _costs(pairs)


def _environment(left: Fingerprint, right: Fingerprint) -> Iterator[Divergence]:
    facts = [dict(run.facts) for run in (left, right)]
    for name in sorted((facts[0].keys() & facts[1].keys()) - _UNCOMPARED_FACTS):
        if facts[0][name] != facts[1][name]:
            yield Divergence(Stage.ENVIRONMENT, name, None, 0, facts[0][name], facts[1][name])
    if left.ranks and right.ranks and len(left.ranks) != len(right.ranks):
        yield Divergence(Stage.ENVIRONMENT, "ranks", None, 0, str(len(left.ranks)), str(len(right.ranks)))


_Told = tuple[Stage, str, str]  # stage, name of an event, key of its data
_INPUTS: _Told = (Stage.DATA, "first_batch", "inputs")
_INITIAL: tuple[_Told, ...] = (
    (Stage.INITIAL_PARAMETERS, "first_batch", "num_params"),
    (Stage.INITIAL_PARAMETERS, "initial_params", "param_hash"),
)


def _first_events(pairs: list[tuple[RankRecord, RankRecord]], told: tuple[_Told, ...], step: int) -> Iterator[Divergence]:
    """Compare what first events tell: the shapes of the first batch, the size of the model, its initial parameters."""
    for stage, event, key in told:
        for left, right in pairs:
            a, b = (_first_data(rank, event).get(key) for rank in (left, right))
            if a is not None and b is not None and a != b:
                yield Divergence(stage, key, step, left.rank, str(a), str(b))


def _first_data(rank: RankRecord, name: str) -> dict[str, Any]:
    return next((event.data for event in rank.events if event.name == name and isinstance(event.data, dict)), {})


_Both = list[tuple[int, StepRecord, StepRecord]]  # rank, left, right


def _steps(pairs: list[tuple[RankRecord, RankRecord]]) -> Iterator[Divergence]:
    """Compare step by step; within a step signal by signal over all ranks, so that the order stays causal."""
    sides = [({step.step: step for step in a.steps}, {step.step: step for step in b.steps}) for a, b in pairs]
    shared = sorted(set().union(*(a.keys() & b.keys() for a, b in sides)))
    if not shared:
        yield from _first_events(pairs, _INITIAL, 0)
    for idx in shared:
        both = [(pairs[k][0].rank, a[idx], b[idx]) for k, (a, b) in enumerate(sides) if idx in a and idx in b]
        is_before = idx == shared[0]  # initial parameters come after the data of the first step
        for signal in _SIGNALS:
            if is_before and signal[0] is not Stage.DATA:
                yield from _first_events(pairs, _INITIAL, idx)
                is_before = False
            for place in range(len(both)):
                divergence = _compare(signal, idx, both, place)
                if divergence is not None:
                    yield divergence


def _compare(signal: _Signal, idx: int, both: _Both, place: int) -> Divergence | None:
    stage, name, read = signal
    rank, left, right = both[place]
    a, b = read(left), read(right)
    if name == "clip_norm" and (a is None) != (b is None):
        # only one side clips: compare its norm before clipping with the other's only norm, which other code added up
        a, b = (norm_before_clipping(step) for step in (left, right))
        if a is not None and b is not None and math.isclose(a, b, rel_tol=SAME_NORM_SHARE):
            return None
    if a is None or b is None or repr(a) == repr(b):
        return None
    if name == "lr":
        return Divergence(stage, _name_rates(left.lr, right.lr), idx, rank, repr(a), repr(b))
    if name == "grad_norm" and left.clip_norm is None and right.clip_norm is None:
        stage = Stage.GRADIENT
    if stage is Stage.GRADIENT and name in ("clip_norm", "grad_norm") and _is_reduction(both):
        stage = Stage.REDUCTION
    return Divergence(stage, name, idx, rank, repr(a), repr(b))


def _name_rates(left: tuple[float, ...], right: tuple[float, ...]) -> str:
    """Return `lr`, or with several parameter groups the indices of those that differ."""
    if len(left) != len(right) or len(left) == 1:
        return "lr"
    differing = [str(idx) for idx, (a, b) in enumerate(zip(left, right, strict=True)) if repr(a) != repr(b)]
    return f"lr of group{'s' if len(differing) > 1 else ''} {', '.join(differing)}"


def _is_reduction(both: _Both) -> bool:
    """Return whether norms differ because of the reduction across ranks; losses are equal, else they would differ first."""
    size = len(both)
    norms = [(norm_before_clipping(left), norm_before_clipping(right)) for _, left, right in both]
    known = [(a, b) for a, b in norms if a is not None and b is not None and a > 0.0 and b > 0.0]
    if size < 2 or len(known) < size or not all(is_same_batch(left, right) for _, left, right in both):
        return False
    if any(a.collectives and b.collectives and a.collectives != b.collectives for _, a, b in both):
        return True
    are_equal = [len(set(values)) == 1 for values in zip(*known, strict=True)]
    if are_equal[0] != are_equal[1]:
        return True
    ratios = [b / a for a, b in known]
    return any(all(math.isclose(ratio, factor, rel_tol=RANKS_RATIO_SHARE) for ratio in ratios) for factor in (size, 1.0 / size))


def is_same_batch(left: StepRecord, right: StepRecord) -> bool:
    """Return whether two steps took as many micro-batches, and where both batches are known the same first one."""
    is_other = left.batch_hash is not None and right.batch_hash is not None and left.batch_hash != right.batch_hash
    return len(left.micro) == len(right.micro) and not is_other


def norm_before_clipping(step: StepRecord) -> float | None:
    """Return the norm that the clipping saw, or without clipping the only one."""
    return step.clip_norm if step.clip_norm is not None else step.grad_norm


def _endings(left: Fingerprint, right: Fingerprint) -> Iterator[Divergence]:
    one, other = left.ending, right.ending
    if one.is_healthy != other.is_healthy or one.signature != other.signature:
        step = min(left.num_steps, right.num_steps)
        said = [mask_text(ending.message) or ending.signature or ending.kind.value for ending in (one, other)]
        yield Divergence(Stage.ENDING, "ending", step, 0, said[0], said[1])
    elif left.ranks and right.ranks and left.num_steps != right.num_steps:
        step = min(left.num_steps, right.num_steps)
        yield Divergence(Stage.ENDING, "num_steps", step, 0, str(left.num_steps), str(right.num_steps))


def _metrics(left: Fingerprint, right: Fingerprint) -> Iterator[Divergence]:
    """Compare what both logs show of the same metric, value by value."""
    of_right = {series.name: series for series in right.metrics}
    for one in left.metrics:
        other = of_right.get(one.name)
        if other is None:
            continue
        for idx, (a, b) in enumerate(zip(one.values, other.values, strict=False)):
            if repr(a) != repr(b):
                step = _step_of(one, other, idx)
                signal = one.name if step is not None else f"{one.name} (value {idx + 1})"
                yield Divergence(Stage.METRIC, signal, step, 0, repr(a), repr(b))
                break


def _step_of(left: MetricSeries, right: MetricSeries, idx: int) -> int | None:
    """Return the step that both logs print beside a value, None where they print none or not the same."""
    steps = [series.steps[idx] if len(series.steps) == len(series.values) else None for series in (left, right)]
    return steps[0] if steps[0] == steps[1] else None


def _costs(pairs: list[tuple[RankRecord, RankRecord]]) -> Iterator[Divergence]:
    """Compare the median step time (the first step warms up and is left out) and the largest memory."""
    for a, b in pairs:
        times = [[step.step_s for step in rank.steps[1:] if step.step_s is not None] for rank in (a, b)]
        if min(map(len, times)) >= 3:
            medians = [statistics.median(values) for values in times]
            if max(medians) > SLOWER_FACTOR * min(medians) > 0:
                yield Divergence(Stage.TIME_AND_MEMORY, "step_s", None, a.rank, f"{medians[0]:.4g} s", f"{medians[1]:.4g} s")
        for name in ("cuda_mib", "rss_mib"):
            peaks = [[value for step in rank.steps if (value := getattr(step, name)) is not None] for rank in (a, b)]
            if all(peaks) and max(map(max, peaks)) > MEMORY_FACTOR * min(map(max, peaks)) > 0:
                shown = [f"{max(values):.0f} MiB" for values in peaks]
                yield Divergence(Stage.TIME_AND_MEMORY, name, None, a.rank, shown[0], shown[1])
