"""Loss, gradients and parameters that are not finite; gradients that explode or vanish."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from bisect_train.core.fingerprint import StepRecord
from bisect_train.verdict.divergence import norm_before_clipping
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.failure_text import operation_of
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView, loss_of
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say, say_ranks

EXPLODING_NORM = 1e3  # before clipping; Source: FRAMEWORKS.md section 4
VANISHING_NORM = 1e-6  # Source: FRAMEWORKS.md section 4
EXPLODING_GROWTH = (
    100.0  # over the run's own earlier median; a loss that is a sum has norms of 1e4 all along. Chosen, not measured
)
EXPLODING_RATIO = 10.0  # over the baseline's largest norm; chosen, not measured
VANISHING_RATIO = 1e-3  # of the baseline's median; chosen, not measured
MIN_EARLIER_STEPS = 3  # before growth means anything; chosen, not measured
MIN_STUCK_STEPS = 5  # at the end of a run, skipped with a loss that is not finite; chosen, not measured
FIRST_STEPS = 10  # a converged run's gradient may vanish, one that begins may not; chosen, not measured
NORM_SOURCE = "FRAMEWORKS.md section 4"


def find_not_finite(look: Look) -> Iterator[Finding]:
    """Tell where loss, gradient or parameters are first not finite, the earliest first."""
    run = look.run
    readers: tuple[tuple[str, str, Callable[[StepRecord], float | None]], ...] = (
        ("nan_loss", "loss", _loss_reader(run)),
        ("nan_gradient", "gradient norm", _finite_gradient),
        ("nan_parameter", "parameter norm", lambda record: record.param_norm),
    )
    found = []
    for order, (symptom, what, read) in enumerate(readers):
        first = _first_not_finite(run, read)
        if first is not None:
            found.append((first.step, order, _not_finite(look, symptom, what, first)))
    if not any(finding.symptom == "nan_loss" for _, _, finding in found):
        yield from _nan_in_log(look)
    yield from (finding for _, _, finding in sorted(found, key=lambda item: item[:2]))


def _loss_reader(run: RunView) -> Callable[[StepRecord], float | None]:
    """Return what reads the loss of a step; where a gradient scaler skipped it, the loss was too large for the scale.

    Skipping that goes on to the end of the run heals nothing, and counts.
    """
    stuck = _stuck_from(run)
    return lambda record: None if record.skipped and record.step < stuck else loss_of(record)


def _stuck_from(run: RunView) -> float:
    """Return the first of the last steps that all were skipped with a loss that is not finite; infinity if they are few."""
    first, num = math.inf, 0
    for step, records in reversed(list(run.rows())):
        losses = [loss for record in records.values() if record.skipped and (loss := loss_of(record)) is not None]
        if not any(not math.isfinite(loss) for loss in losses):
            break
        first, num = step, num + 1
    return first if num >= MIN_STUCK_STEPS else math.inf


def _finite_gradient(record: StepRecord) -> float | None:
    """Return a gradient norm of a step that was taken: a gradient scaler skips steps with infinite gradients."""
    if record.skipped:
        return None
    values = [value for value in (record.clip_norm, record.grad_norm) if value is not None]
    return next((value for value in values if not math.isfinite(value)), values[0] if values else None)


@dataclass(frozen=True, slots=True)
class _Bad:
    """Values that are not finite: the first step with some, by rank; of how many steps that have a value so many have some."""

    step: int
    values: dict[int, float]
    num: int
    of: int
    is_lasting: bool  # every later step has some, too

    @property
    def when(self) -> str:
        if self.is_lasting:
            return f"from step {self.step} on" if self.num > 1 else f"at step {self.step}, the last one"
        return f"at step {self.step} ({self.num} of {self.of} steps)"


def _first_not_finite(run: RunView, read: Callable[[StepRecord], float | None]) -> _Bad | None:
    rows = []
    for step, records in run.rows():
        values = {rank: value for rank, record in records.items() if (value := read(record)) is not None}
        if values:
            rows.append((step, {rank: value for rank, value in values.items() if not math.isfinite(value)}))
    bad = [idx for idx, (_, values) in enumerate(rows) if values]
    if not bad:
        return None
    step, values = rows[bad[0]]
    return _Bad(step, values, num=len(bad), of=len(rows), is_lasting=len(bad) == len(rows) - bad[0])


def _not_finite(look: Look, symptom: str, what: str, first: _Bad) -> Finding:
    step, bad = first.step, first.values
    evidence = [Evidence(what, say(value), "a finite number", "definition", rank) for rank, value in bad.items()]
    evidence += _just_before(look.run, step, min(bad))
    operation = _operation(look)
    if operation:
        evidence.append(Evidence("operation whose backward gave the first NaN", operation))
    where = f" on {say_ranks(bad)}" if len(look.run.steps) > 1 else ""
    return find(symptom, f"the {what} is not finite {first.when}{where}", ranks=bad, step=step, evidence=evidence)


def _operation(look: Look) -> str:
    said = [event.data.get("message") for events in look.run.events("exception").values() for event in events]
    texts = [look.run.fingerprint.ending.message, *map(str, said), look.run.result.log_tail]
    return next((found[0] for text in texts if (found := operation_of(text))), "")


def _just_before(run: RunView, step: int, rank: int) -> list[Evidence]:
    """Return loss, norm and learning rate of the last step before, where it was made."""
    before = run.steps.get(rank, {}).get(step - 1)
    if before is None:
        return []
    shown = (
        ("loss", before.loss),
        ("gradient norm before clipping", norm_before_clipping(before)),
        ("learning rate", max(before.lr, default=None)),
    )
    return [Evidence(f"{name} at step {step - 1}", say(value), rank=rank) for name, value in shown if value is not None]


def _nan_in_log(look: Look) -> Iterator[Finding]:
    for series in look.run.fingerprint.metrics:
        idx = next((idx for idx, value in enumerate(series.values) if not math.isfinite(value)), None)
        if idx is not None and "loss" in series.name.lower():
            step = series.steps[idx] if len(series.steps) == len(series.values) else None
            evidence = [
                Evidence(f"{series.name} of the log, value {idx + 1}", say(series.values[idx]), "a finite number", "definition")
            ]
            yield find("nan_loss", f"{series.name} of the log is not finite", step=step, evidence=evidence)
            return


def find_exploding(look: Look) -> Iterator[Finding]:
    """Tell of norms above 1e3 that grew by far, in the run itself or over the baseline's largest."""
    norms = sorted(look.run.pre_clip_norms.items())
    if look.base is not None:
        theirs = [value for value in look.base.pre_clip_norms.values() if value > 0.0]
        limit = max(EXPLODING_NORM, EXPLODING_RATIO * max(theirs)) if theirs else math.inf
        source = f"{NORM_SOURCE}, and {EXPLODING_RATIO:g} times the baseline's largest norm"
        above = [(step, value) for step, value in norms if value > limit]
        if above:
            yield _exploding(above[0], max(value for _, value in above), limit, source, needs_baseline=True)
        return
    grown = [idx for idx, (_, value) in enumerate(norms) if value > EXPLODING_NORM and value > _own_limit(norms[:idx])]
    if len(grown) > 1 or grown == [len(norms) - 1]:
        first = grown[0]
        source = f"{NORM_SOURCE}, and {EXPLODING_GROWTH:g} times the median before"
        largest = max(norms[idx][1] for idx in grown)
        yield _exploding(norms[first], largest, _own_limit(norms[:first]), source, needs_baseline=False)


def _own_limit(earlier: list[tuple[int, float]]) -> float:
    if len(earlier) < MIN_EARLIER_STEPS:
        return math.inf
    return max(EXPLODING_NORM, EXPLODING_GROWTH * median(value for _, value in earlier))


def _exploding(first: tuple[int, float], largest: float, limit: float, source: str, *, needs_baseline: bool) -> Finding:
    step, value = first
    evidence = [
        Evidence(f"gradient norm before clipping at step {step}", say(value), f"at most {say(limit)}", source),
        Evidence("largest", say(largest)),
    ]
    summary = f"the gradient norm before clipping is {say(value)} at step {step}, above {say(limit)}"
    return find("exploding_gradient", summary, step=step, evidence=evidence, needs_baseline=needs_baseline)


def find_vanishing(look: Look) -> Iterator[Finding]:
    """Tell of norms below 1e-6 in the first steps, or far below those of the baseline at the same steps."""
    if look.base is None and look.run.events("checkpoint_loaded"):
        return  # it may go on where it had converged
    norms = look.run.pre_clip_norms
    first = [(step, norms[step]) for step in sorted(norms)[:FIRST_STEPS]]
    if len(first) < MIN_EARLIER_STEPS:
        return
    theirs = look.base.pre_clip_norms if look.base is not None else {}
    shared = [step for step, _ in first if step in theirs]
    if look.base is not None and len(shared) < MIN_EARLIER_STEPS:
        return
    level = median(value for _, value in first)
    if look.base is None:
        limit, source = VANISHING_NORM, NORM_SOURCE
    else:
        limit = VANISHING_RATIO * median(theirs[step] for step in shared)
        source = f"{VANISHING_RATIO:g} of the baseline's median, {CHOSEN}"
    if level < limit:
        step = first[0][0]
        evidence = [Evidence("median of the first gradient norms", say(level), f"at least {say(limit)}", source)]
        summary = f"the gradient norm is {say(level)} in the first {len(first)} steps, below {say(limit)}"
        yield find("vanishing_gradient", summary, step=step, evidence=evidence, needs_baseline=look.base is not None)
