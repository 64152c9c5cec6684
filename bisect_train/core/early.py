"""Early verdicts: when a run of the search has shown enough to be stopped. Values that travel with a job, and the pure watch.

Two rules, either or both. By bits: the steps of the run are bitwise those of one end's run on the same seed, through the step
by which the two ends are clearly apart. By the curve: a sequential test on the whitened curve of the metric,

    u_t = y_t - (good_t + bad_t) / 2,   e_t = u_t - rho u_(t-1) ~ N((f - 1/2) h_t, sd_t^2),   f = 0 good, 1 bad
    S = sum h e / sd^2,   V = sum h^2 / sd^2,   nats = TEMPER S / (1 + V offset^2)

with the whitened shift h between the ends. `offset` is the spread of f that a variant may have of its own: no run, however
long, tells more than 1 / (2 offset^2). rho = 1 is a random walk. The run is stopped at +-ln 99; where that never comes, or the
curve fits neither end, it goes on and is judged as ever. Workers and the simulated executor run this very code.

Source: sequential test, Wald 1945. Measured with a shift that is estimated from 3 + 3 runs, d' about 9, a random walk
(`tests/benchmarks/bench_early.py`): tempered by 0.5, 0.6, 0.7 and 1 it saves 47, 51, 54 and 59 % of the steps, and in the worst
of seven kinds of noise and shift 0.4, 0.65, 0.85 and 2.9 % of the runs are stopped for the wrong end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bisect_train.core.changes import digest_of
from bisect_train.core.fingerprint import EarlyStop, RankRecord, StepRecord

PER_STEP_METRICS = ("loss", "grad_norm", "param_norm")
"""Metrics that the recorder shows while a program runs, and that do not depend on the machine's load."""

TEMPER = 0.6
BOUND_NATS = math.log(99.0)
CLIP_SD = 3.0  # one step beyond what both ends show counts no more than this
MAX_MEAN_SQUARE = 2.0  # of the steps about the nearer end, in units of the noise: above, the curve is unlike both ends
MIN_SHARE, MAX_SHARE = -1.0, 2.0  # of the shift: a run beyond goes on to its end
MIN_CURVE_STEPS = 5  # before the curve may stop a run


@dataclass(frozen=True, slots=True)
class Shown:
    """What an end's whole run showed: its bitwise class, and the metric as the program reports it."""

    digest: str
    value: float


@dataclass(frozen=True, slots=True)
class BitRule:
    """The bits of both ends' runs on one seed: a digest per step, through the decisive step; they differ in at least one.

    Attributes:
        good, bad: digests, one for each of the first `EarlyRules.steps`.
        good_run, bad_run: what the two whole runs showed.
    """

    good: tuple[str, ...]
    bad: tuple[str, ...]
    good_run: Shown
    bad_run: Shown


@dataclass(frozen=True, slots=True)
class CurveRule:
    """The curves of both ends' runs over seeds; each series has one number for each of `EarlyRules.steps`.

    Attributes:
        middle: mean of the two ends' mean curves, unit of the metric.
        shift: whitened shift from good to bad, smoothed; the first one is not used.
        sd: standard deviation of the whitened noise, > 0.
        rho: 0 to 1, how much of a step's noise the next one keeps; 1 is a random walk.
        offset: standard deviation of a variant's own offset, as a share of the shift.
    """

    middle: tuple[float, ...]
    shift: tuple[float, ...]
    sd: tuple[float, ...]
    rho: float
    offset: float


@dataclass(frozen=True, slots=True)
class EarlyRules:
    """When a run may be stopped.

    Attributes:
        metric: one of PER_STEP_METRICS.
        num_ranks: ranks that the ends' runs had; a run with others is never stopped.
        steps: 0-based steps that the ends' runs recorded, in order.
        bits: see BitRule, or None.
        curve: see CurveRule, or None.
    """

    metric: str
    num_ranks: int
    steps: tuple[int, ...]
    bits: BitRule | None = None
    curve: CurveRule | None = None


def signals_of(step: StepRecord) -> list[object]:
    """Return what is compared bitwise of one step of one rank; times, memory and RNG states do not count."""
    return [
        repr(step.loss),
        step.micro,
        repr(step.grad_norm),
        repr(step.clip_norm),
        step.lr,
        step.missing_grads,
        step.param_hash,
    ]


def has_signals(steps: Iterable[StepRecord]) -> bool:
    """Return whether there is anything to compare bitwise."""
    return any(step.loss is not None or step.grad_norm is not None or step.param_hash for step in steps)


def digest_step(records: Sequence[StepRecord]) -> str:
    """Return the bitwise class of one step, given the records of all ranks in order; "" where nothing was recorded."""
    return digest_of([signals_of(step) for step in records]) if has_signals(records) else ""


def value_of_step(records: Sequence[StepRecord], metric: str) -> float | None:
    """Return the value of one of PER_STEP_METRICS at one step: mean over the ranks that show it, NaN if one is not finite."""
    known = [value for step in records if (value := _value_of_rank(step, metric)) is not None]
    if not known:
        return None
    return math.fsum(known) / len(known) if all(map(math.isfinite, known)) else math.nan


def _value_of_rank(step: StepRecord, metric: str) -> float | None:
    return step.loss if metric == "loss" else norm_of_step(step, metric)


def norm_of_step(step: StepRecord, name: str) -> float | None:
    """Return the gradient norm before clipping (`grad_norm`) or the parameters' norm, of the whole model if it is known."""
    if name == "param_norm":
        return step.whole_param_norm if step.whole_param_norm is not None else step.param_norm
    if step.clip_norm is not None:
        return step.clip_norm
    return step.whole_grad_norm if step.whole_grad_norm is not None else step.grad_norm


def steps_of(ranks: Sequence[RankRecord]) -> dict[int, list[StepRecord]]:
    """Return the records of each step that all ranks have, ranks in order."""
    by_rank = [{step.step: step for step in rank.steps} for rank in sorted(ranks, key=lambda rank: rank.rank)]
    shared = set.intersection(*(set(steps) for steps in by_rank)) if by_rank else set()
    return {step: [steps[step] for steps in by_rank] for step in sorted(shared)}


class EarlyWatch:
    """Is fed a run's steps in order, and says when it may be stopped. The same steps always give the same answer."""

    def __init__(self, rules: EarlyRules) -> None:
        self._rules = rules
        self._idx = 0
        self._bits = _BitWatch(rules.bits) if rules.bits is not None else None
        self._curve = CurveWatch(rules.curve) if rules.curve is not None else None

    @property
    def wanted(self) -> int | None:
        """The step (0-based) that is to be fed next; None when nothing more can be said."""
        is_open = self._bits is not None or self._curve is not None
        # whoever is at the last step is at the end: nothing is saved
        return self._rules.steps[self._idx] if is_open and self._idx + 1 < len(self._rules.steps) else None

    def give_up(self) -> None:
        """Say no more: the run lacks a step."""
        self._bits = self._curve = None

    def take(self, records: Mapping[int, StepRecord]) -> EarlyStop | None:
        """Take the wanted step as each rank recorded it, by rank; return the verdict once there is one."""
        if self.wanted is None:
            return None
        if sorted(records) != list(range(self._rules.num_ranks)):
            self.give_up()
            return None
        step, ordered = self._rules.steps[self._idx], [records[rank] for rank in sorted(records)]
        self._idx += 1
        if self._bits is not None:
            like = self._bits.take(digest_step(ordered))
            if like:
                shown = self._bits.shown(like)
                return EarlyStop(like, step, "bits", digest=shown.digest, value=shown.value)
            if self._bits.is_over:
                self._bits = None
        if self._curve is not None:
            nats = self._curve.take(value_of_step(ordered, self._rules.metric))
            # as long as the bits are those of an end, the curve has nothing to add: it is one run seen again
            if nats and self._bits is None:
                return EarlyStop("bad" if nats > 0 else "good", step, "curve", nats=nats)
            if self._curve.is_over:
                self._curve = None
        return None


class _BitWatch:
    """Follows whether a run's steps are still those of the good end, of the bad end."""

    def __init__(self, rule: BitRule) -> None:
        self._rule = rule
        self._idx = 0
        self._is_good = self._is_bad = True

    @property
    def is_over(self) -> bool:
        """Whether the run's bits can say no more: unlike both ends, or like both through the decisive step."""
        return not (self._is_good or self._is_bad) or self._idx >= len(self._rule.good)

    def take(self, digest: str) -> str:
        """Take the digest of the next step; return `good` or `bad` at the decisive step, else ""."""
        self._is_good &= bool(digest) and digest == self._rule.good[self._idx]
        self._is_bad &= bool(digest) and digest == self._rule.bad[self._idx]
        self._idx += 1
        if self._idx < len(self._rule.good) or self._is_good == self._is_bad:
            return ""
        return "good" if self._is_good else "bad"

    def shown(self, like: str) -> Shown:
        """Return what the end's whole run showed."""
        return self._rule.good_run if like == "good" else self._rule.bad_run


class CurveWatch:
    """The sequential test of one run's curve; see the module."""

    def __init__(self, rule: CurveRule) -> None:
        self._rule = rule
        self._idx = 0
        self._previous: float | None = None
        self._sum = self._information = 0.0
        self._squares = {"good": 0.0, "bad": 0.0}
        self.is_over = False

    def take(self, value: float | None) -> float:
        """Take the metric at the next step; return the nats for BAD where the run may be stopped, else 0."""
        rule, idx = self._rule, self._idx
        self._idx += 1
        if self.is_over or value is None or not math.isfinite(value) or idx >= len(rule.middle):
            self.is_over = True
            return 0.0
        level = value - rule.middle[idx]
        previous, self._previous = self._previous, level
        if previous is None:
            return 0.0
        shift, sd, noise = rule.shift[idx], rule.sd[idx], level - rule.rho * previous
        self._squares["good"] += ((noise + shift / 2.0) / sd) ** 2
        self._squares["bad"] += ((noise - shift / 2.0) / sd) ** 2
        reach = CLIP_SD * sd + abs(shift) / 2.0
        self._sum += shift * max(-reach, min(reach, noise)) / (sd * sd)
        self._information += shift * shift / (sd * sd)
        return self._decide()

    def _decide(self) -> float:
        nats = TEMPER * self._sum / (1.0 + self._information * self._rule.offset**2)
        num = self._idx - 1
        if abs(nats) < BOUND_NATS or num < MIN_CURVE_STEPS:
            return 0.0
        share = self._sum / self._information + 0.5
        mean_square = self._squares["bad" if nats > 0 else "good"] / num
        return nats if MIN_SHARE <= share <= MAX_SHARE and mean_square <= MAX_MEAN_SQUARE else 0.0


def watch_ranks(rules: EarlyRules, ranks: Sequence[RankRecord]) -> EarlyStop | None:
    """Return where a recorded run would have been stopped, None where it would not."""
    watch = EarlyWatch(rules)
    by_rank = {rank.rank: {step.step: step for step in rank.steps} for rank in ranks}
    while (wanted := watch.wanted) is not None:
        records = {rank: steps[wanted] for rank, steps in by_rank.items() if wanted in steps}
        if not records:
            return None
        if stop := watch.take(records):
            return stop
    return None
