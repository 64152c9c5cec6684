"""What a probe covers and cannot see, in words: a probe that hides a bug must be known to."""

from __future__ import annotations

from bisect_train.core.verdict import Criterion
from bisect_train.report.case import Case
from bisect_train.report.parts import CoveragePart
from bisect_train.report.remarks import say_unseen_stretch
from bisect_train.report.sources import say_origin
from bisect_train.report.stand_ins import say_covered, say_unseen
from bisect_train.report.words import say_count
from bisect_train.verdict.outcome import COST_METRICS

VALIDATION_WORDS = ("val", "eval", "test", "accuracy", "perplexity", "ppl")


def describe_coverage(case: Case) -> CoveragePart:
    """Return what the probes of a bisection were."""
    rung = case.question.rung
    most_steps = max((run.fingerprint.num_steps for run in case.runs), default=0)
    return CoveragePart(
        steps=rung.steps if rung.steps is not None else most_steps,
        ranks=rung.ranks,
        rung=rung.name,
        covers=_covers(case),
        cannot_see=_cannot_see(case),
        tried=tuple(f"{left.name}, {say_count(left.num_probes, 'run')}: {left.reason}" for left in case.rungs),
    )


def _covers(case: Case) -> tuple[str, ...]:
    question, rung = case.question, case.question.rung
    covered = ["the whole run" if rung.steps is None else f"the first {say_count(rung.steps, 'optimizer step')} of the run"]
    covered.append("one rank" if rung.ranks == 1 else f"{rung.ranks} ranks started together")
    if rung.overrides:
        covered.append(f"scaled by the recipe, in every version alike: {' '.join(rung.overrides)}")
    if case.ends.criterion is Criterion.JUDGE:
        covered.append("what the judging command looks at")
    else:
        covered.append(f"{question.metric.name}{say_origin(case)}, values that are not finite, crashes, hangs, time limits")
    if question.metric.is_paired:
        covered.append(_say_pairs(case))
    seeds = {run.seen.seed_idx for run in case.runs}
    if len(seeds) > 1:
        covered.append(f"the program's own seeds and {say_count(len(seeds) - 1, 'shifted one')}")
    hardware = sorted({str(run.probe.spec.get("hardware_class", "")) for run in case.runs} - {""})
    covered += [f"hardware: {name}" for name in hardware]
    covered += say_covered(case)
    return tuple(covered)


def _say_pairs(case: Case) -> str:
    """Return how the runs of a paired metric were taken."""
    at_once = "one pair at a time" if case.question.limits.parallel == 1 else "several pairs at a time, which widens them"
    return f"each run is compared with a run of the good end right before or after it on the same worker, {at_once}"


def _cannot_see(case: Case) -> tuple[str, ...]:
    question, rung = case.question, case.question.rung
    hidden = []
    if rung.steps is not None:
        later = "slow drifts, rare spikes, saving or loading later, the end of the program"
        hidden.append(f"anything after step {rung.steps}: {later}")
    if rung.ranks == 1:
        hidden.append("bugs between ranks (reduction, sharding, collectives): it ran on one")
    most = max((item.ranks for item in question.ladder), default=rung.ranks)
    if most > max(1, rung.ranks):
        hidden.append(f"what takes more than {say_count(rung.ranks, 'rank')}, where the recipe goes up to {most}")
    if rung.overrides:
        hidden.append(f"what depends on the size of the run that the recipe has scaled ({' '.join(rung.overrides)})")
    nums = {len(step.micro) for run in case.runs for record in run.fingerprint.ranks for step in record.steps if step.micro}
    if nums == {1}:
        hidden.append("gradient accumulation: every step took one micro-batch")
    names = [question.metric.name, *(pattern.name for pattern in question.settings.patterns)]
    has_validation = any(word in name.lower() for name in names for word in VALIDATION_WORDS)
    if case.ends.criterion is not Criterion.JUDGE and not has_validation:
        hidden.append(f"validation loss: no metric was given for it, {question.metric.name} decides")
    if not question.settings.gpus:
        hidden.append("what needs a GPU (its kernels, its number formats, its memory): it ran on CPU")
    if question.metric.name not in COST_METRICS and not question.metric.is_paired:
        hidden.append("speed: probes share the machine, only a time limit is seen")
    hidden += say_unseen(case)
    unseen = say_unseen_stretch(case)
    return (*hidden, unseen) if unseen else tuple(hidden)
