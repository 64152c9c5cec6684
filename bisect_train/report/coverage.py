"""What a probe covers and cannot see, in words: a probe that hides a bug must be known to."""

from __future__ import annotations

from bisect_train.core.verdict import Criterion
from bisect_train.report.case import Case
from bisect_train.report.parts import CoveragePart
from bisect_train.report.remarks import say_unseen_stretch
from bisect_train.report.words import say_count

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
    )


def _covers(case: Case) -> tuple[str, ...]:
    question, rung = case.question, case.question.rung
    covered = ["the whole run" if rung.steps is None else f"the first {say_count(rung.steps, 'optimizer step')} of the run"]
    covered.append("one rank" if rung.ranks == 1 else f"{rung.ranks} ranks started together")
    if case.ends.criterion is Criterion.JUDGE:
        covered.append("what the judging command looks at")
    else:
        covered.append(f"{question.metric.name}, values that are not finite, crashes, hangs, time limits")
    seeds = {run.seen.seed_idx for run in case.runs}
    if len(seeds) > 1:
        covered.append(f"the program's own seeds and {say_count(len(seeds) - 1, 'shifted one')}")
    hardware = sorted({str(run.probe.spec.get("hardware_class", "")) for run in case.runs} - {""})
    covered += [f"hardware: {name}" for name in hardware]
    return tuple(covered)


def _cannot_see(case: Case) -> tuple[str, ...]:
    question, rung = case.question, case.question.rung
    hidden = []
    if rung.steps is not None:
        later = "slow drifts, rare spikes, saving or loading later, the end of the program"
        hidden.append(f"anything after step {rung.steps}: {later}")
    if rung.ranks == 1:
        hidden.append("bugs between ranks (reduction, sharding, collectives): it ran on one")
    names = [question.metric.name, *(pattern.name for pattern in question.settings.patterns)]
    has_validation = any(word in name.lower() for name in names for word in VALIDATION_WORDS)
    if case.ends.criterion is not Criterion.JUDGE and not has_validation:
        hidden.append(f"validation loss: no metric was given for it, {question.metric.name} decides")
    if not question.settings.gpus:
        hidden.append("what needs a GPU (its kernels, its number formats, its memory): it ran on CPU")
    if question.metric.name not in ("rss_mib", "cuda_mib", "step_s"):
        hidden.append("speed: probes share the machine, only a time limit is seen")
    unseen = say_unseen_stretch(case)
    return (*hidden, unseen) if unseen else tuple(hidden)
