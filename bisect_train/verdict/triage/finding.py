"""What triage says of one run: findings, each with its stage, ranks, numbers, and where to look first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bisect_train.verdict.divergence import Stage


class Category(str, Enum):
    """What kind of failure it is, in the order in which they are looked at: did it ever step?"""

    WONT_START = "wont_start"
    STOPPED = "stopped"
    WONT_CONVERGE = "wont_converge"
    SILENT_DISTRIBUTED = "silent_distributed"
    SLOW = "slow"


class SecondRun(str, Enum):
    """A second run that looks closer."""

    ANOMALY = "anomaly"  # torch.autograd's anomaly detection names the operation that gave the first NaN
    DETAIL = "detail"  # TORCH_DISTRIBUTED_DEBUG=DETAIL names collectives that do not match
    PROFILE = "profile"  # torch.profiler names the operations that take longer; of both sides of a culprit


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number or text behind a finding.

    Attributes:
        name: what it is.
        value: what this run shows, with its unit.
        expected: the threshold, or what the baseline shows, with its unit; "" where there is none.
        source: where the threshold comes from; "" where there is none.
        rank: that shows it, None for all.
    """

    name: str
    value: str
    expected: str = ""
    source: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One symptom of one run.

    Attributes:
        category: see Category.
        symptom: stable name, such as `nan_loss` (SYMPTOMS has them all).
        stage: of training that it points to.
        summary: one sentence with its numbers.
        look_at: what to look at first.
        ranks: that show it; () where it is not a matter of single ranks.
        step: 0-based optimizer step at which it is first seen, None where no step is meant.
        evidence: the numbers.
        needs_baseline: whether it rests on a comparison with another run.
    """

    category: Category
    symptom: str
    stage: Stage
    summary: str
    look_at: str
    ranks: tuple[int, ...] = ()
    step: int | None = None
    evidence: tuple[Evidence, ...] = ()
    needs_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Triage:
    """All that triage says of a run, the most telling finding first; no finding means that nothing was seen.

    Attributes:
        findings: see Finding.
        second_run: the run that would tell more, None if none would.
    """

    findings: tuple[Finding, ...] = ()
    second_run: SecondRun | None = None

    @property
    def category(self) -> Category | None:
        """Category of the first finding."""
        return self.findings[0].category if self.findings else None
