"""From the record of a run, and of a baseline if there is one, to what a report says of the kind of its failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bisect_train.core.fingerprint import Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.report.sample_pairs import pair_samples
from bisect_train.report.stacks import list_stacks
from bisect_train.report.triage_parts import RankCurve, RankRow, SecondLook, TriagePart
from bisect_train.report.words import say_count, shorten
from bisect_train.verdict.divergence import Stage, norm_before_clipping
from bisect_train.verdict.triage import Asked, Evidence, Finding, triage, unsaved_step
from bisect_train.verdict.triage.costs import LONE_FACTOR
from bisect_train.verdict.triage.samples import split_samples
from bisect_train.verdict.triage.symptoms import say_ranks
from bisect_train.verdict.triage.waits import Wait, read_waits

NUM_RANKS, NUM_POINTS = 8, 200  # of a report's small curves, at most
DIGITS_OF_A_HASH = 12


def triage_run(
    run: ProbeResult,
    *,
    baseline: ProbeResult | None = None,
    replicates: Sequence[Fingerprint] = (),
    recorded: ProbeResult | None = None,
    asked: Asked,
    symptom: str = "",
    second: SecondLook | None = None,
) -> TriagePart:
    """Return what is to be said of one run.

    Args:
        run: the one that is looked at.
        baseline: a run that is known to be good, of the same seed.
        replicates: healthy runs of the baseline with other seeds.
        recorded: a healthy run of another machine, of which only the curves are known; in place of a baseline.
        asked: what the run was to do.
        symptom: name of the symptom that was asked about, which comes first; or "".
        second: what a closer look said.
    """
    said = triage(run, baseline=baseline, replicates=replicates, recorded=recorded, asked=asked)
    said = replace(said, findings=tuple(sorted(said.findings, key=lambda finding: finding.symptom != symptom)))
    findings, first = said.findings, next(iter(said.findings), None)
    stacks = list_stacks(run)
    return TriagePart(
        category=said.category.value if said.category else None,
        symptom=first.symptom if first else None,
        stage=first.stage.value if first else None,
        evidence=tuple(line for finding in findings for line in say_finding(finding)),
        look_first=tuple(dict.fromkeys(finding.look_at for finding in findings)),
        findings=findings,
        ranks=rank_rows(run.fingerprint, read_waits(run.stacks)),
        baseline_ranks=rank_rows(baseline.fingerprint) if baseline else (),
        curves=(*_curves("run", run.fingerprint), *(_curves("baseline", baseline.fingerprint) if baseline else ())),
        stacks=stacks,
        samples=pair_samples(baseline.fingerprint, run.fingerprint) if baseline else (),
        second=second,
        looked_at=_looked_at(run.fingerprint, has_baseline=baseline is not None),
        cannot_see=_cannot_see(run.fingerprint, asked, has_baseline=baseline is not None, num_replicates=len(replicates)),
    )


def say_finding(finding: Finding) -> tuple[str, ...]:
    """Return a finding in lines: its summary, then its numbers."""
    return (f"{finding.symptom}: {finding.summary}", *(say_evidence(item) for item in finding.evidence))


def say_evidence(item: Evidence) -> str:
    """Return `loss on rank 1: nan, expected a finite number (source)`."""
    where = "" if item.rank is None else f" on rank {item.rank}"
    expected = f", expected {item.expected}" if item.expected else ""
    source = f" ({item.source})" if item.source else ""
    return f"{item.name}{where}: {item.value}{expected}{source}"


def say_place(finding: Finding) -> str:
    """Return where a finding was seen: `forward, at step 3, on ranks 0, 1`."""
    step = "" if finding.step is None else f", at step {finding.step}"
    return f"{stage_name(finding.stage)}{step}{_on_ranks(finding.ranks)}"


def stage_name(stage: Stage) -> str:
    """Return a stage as a person reads it."""
    return stage.value.replace("_", " ")


def _on_ranks(ranks: Sequence[int]) -> str:
    """Return `, on ranks 0, 1`, "" where it is not a matter of single ranks."""
    more = ", ..." if len(ranks) > NUM_RANKS else ""
    return f", on {say_ranks(ranks[:NUM_RANKS])}{more}" if ranks else ""


# ---- rank by rank -------------------------------------------------------------------------------------------------


def rank_rows(fingerprint: Fingerprint, waits: Sequence[Wait] = ()) -> tuple[RankRow, ...]:
    """Return one row a rank."""
    places = {wait.rank: wait for wait in waits if not wait.is_launcher}
    return tuple(_row(record, places.get(record.rank)) for record in fingerprint.ranks)


def _row(record: RankRecord, wait: Wait | None) -> RankRow:
    losses = [step.loss for step in record.steps if step.loss is not None]
    last = record.steps[-1] if record.steps else StepRecord(0)
    hashes = [step.param_hash for step in record.steps if step.param_hash]
    samples = [sample for step in record.steps for sample in split_samples(step.samples)]
    return RankRow(
        rank=record.rank,
        steps=len(record.steps),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        grad_norm=norm_before_clipping(last),
        lr=last.lr,
        param_hash=hashes[-1][-DIGITS_OF_A_HASH:] if hashes else "",
        num_samples=len(samples) if samples else None,
        num_distinct=len(set(samples)) if samples else None,
        ending=_ending_of(record, wait),
    )


def _ending_of(record: RankRecord, wait: Wait | None) -> str:
    if wait is not None:
        return f"{'waits in' if wait.is_waiting else 'is in'} {wait.text}"
    by_name = {event.name: event.data for event in record.events}
    if raised := by_name.get("exception"):
        return shorten(f"raised {raised.get('exc_type', 'an exception')}: {raised.get('message', '')}", 120)
    if "stop" in by_name:
        return "stopped after its last step"
    return "left by itself" if "exit" in by_name else "no sign of its end"


def _curves(side: str, fingerprint: Fingerprint) -> tuple[RankCurve, ...]:
    curves = []
    for record in fingerprint.ranks[:NUM_RANKS]:
        every = max(1, math.ceil(len(record.steps) / NUM_POINTS))
        steps = record.steps[::every]
        losses, norms = tuple(step.loss for step in steps), tuple(map(norm_before_clipping, steps))
        curves.append(RankCurve(side, record.rank, tuple(step.step for step in steps), losses, norms))
    return tuple(curve for curve in curves if len(curve.steps) > 1)


# ---- what was looked at -------------------------------------------------------------------------------------------


def _looked_at(fingerprint: Fingerprint, *, has_baseline: bool) -> tuple[str, ...]:
    num_ranks = len(fingerprint.ranks)
    if not num_ranks:
        return ("how the program ended and what it printed: nothing was recorded from inside",)
    steps = f"{say_count(fingerprint.num_steps, 'step')} on {say_count(num_ranks, 'rank')}"
    said = [f"{steps}: start, ending, losses, gradients, learning rates, parameters, times and memory"]
    said += ["the ranks against each other: data, parameters, number formats, collective calls"] if num_ranks > 1 else []
    said += ["the same of the baseline, side by side"] if has_baseline else []
    return tuple(said)


def _cannot_see(fingerprint: Fingerprint, asked: Asked, *, has_baseline: bool, num_replicates: int) -> tuple[str, ...]:
    steps = [step for record in fingerprint.ranks for step in record.steps]
    hidden = []
    if asked.steps is not None:
        hidden.append(f"anything after step {asked.steps}, and how the program ends by itself (`--steps end`)")
    if len(fingerprint.ranks) < 2:
        hidden.append("what goes wrong between ranks: one rank ran (`--ranks 2`)")
    if not has_baseline:
        hidden.append("what only a comparison shows - other data, another schedule, slower, more memory (`--baseline REV`)")
    elif not num_replicates:
        hidden.append(
            f"a step less than {LONE_FACTOR:g} times slower: one healthy run alone does not say how widely times spread"
        )
    unsaved = unsaved_step(fingerprint)
    if unsaved is not None:
        hidden.append(f"whether it resumes as it should: nothing was saved at step {unsaved}, after which it was killed")
    if steps and all(step.samples is None for step in steps):
        hidden.append("which samples each rank trained on: none could be told apart")
    if steps and all(step.cuda_mib is None for step in steps):
        hidden.append("memory and kernels of a GPU: none was used")
    return tuple(hidden)
