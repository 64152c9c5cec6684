"""What a report says of the kind of a failure, as values: findings, one row a rank, small curves, stacks, samples."""

from __future__ import annotations

from dataclasses import dataclass

from bisect_train.verdict.triage.finding import Finding, SecondRun


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank of one run.

    Attributes:
        rank: 0-based.
        steps: optimizer steps that it recorded.
        first_loss, last_loss: of its first and last step, None without one.
        grad_norm: of its last step, before clipping where there is clipping.
        lr: learning rates of the parameter groups at its last step.
        param_hash: of its parameters when they were last hashed, or "".
        num_samples, num_distinct: samples that it trained on, and how many of them are different; None where unknown.
        ending: what it did last, in words.
    """

    rank: int
    steps: int
    first_loss: float | None
    last_loss: float | None
    grad_norm: float | None
    lr: tuple[float, ...]
    param_hash: str
    num_samples: int | None
    num_distinct: int | None
    ending: str


@dataclass(frozen=True, slots=True)
class RankCurve:
    """Loss and gradient norm of one rank, step by step; `side` is run or baseline."""

    side: str
    rank: int
    steps: tuple[int, ...]
    losses: tuple[float | None, ...]
    grad_norms: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class StackPart:
    """The stacks of one process that did not answer: name, its rank if known, where its main thread waits, all of it."""

    name: str
    rank: int | None
    waits_at: str
    text: str


@dataclass(frozen=True, slots=True)
class SamplePair:
    """The first values that one rank was trained on, in the baseline and in the run.

    Attributes:
        rank: 0-based.
        step: 0-based optimizer step at which the two first differ, 0 for the first batch.
        baseline, run: the values as text, of the first row.
    """

    rank: int
    step: int
    baseline: tuple[str, ...]
    run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecondLook:
    """What a second run with torch's own checks on said.

    Attributes:
        kind: see SecondRun.
        said: in sentences; () if it said nothing that the first did not.
        key: of the probe, "" if it was not run.
        reason: why it was not run, or "".
    """

    kind: SecondRun
    said: tuple[str, ...] = ()
    key: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TriagePart:
    """What kind of failure it is, with the evidence.

    Attributes:
        category, symptom, stage: of report.json; None where nothing was seen.
        evidence: in sentences.
        look_first: what to look at first, in order.
        findings: of triage, the most telling first.
        ranks, baseline_ranks: one row a rank.
        curves: of the ranks.
        stacks: of a run that hangs.
        samples: where the data of the two runs differ.
        second: the closer look, None where none was needed.
        looked_at: what was looked at, in sentences.
        cannot_see: what could not be seen in such a run, in sentences.
    """

    category: str | None = None
    symptom: str | None = None
    stage: str | None = None
    evidence: tuple[str, ...] = ()
    look_first: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    ranks: tuple[RankRow, ...] = ()
    baseline_ranks: tuple[RankRow, ...] = ()
    curves: tuple[RankCurve, ...] = ()
    stacks: tuple[StackPart, ...] = ()
    samples: tuple[SamplePair, ...] = ()
    second: SecondLook | None = None
    looked_at: tuple[str, ...] = ()
    cannot_see: tuple[str, ...] = ()
