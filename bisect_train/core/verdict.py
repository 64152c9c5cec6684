"""Verdicts: what a probe or a variant says about the question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class VerdictKind(str, Enum):
    """GOOD and BAD are measured; OTHER is unlike both ends; the last two say nothing about the culprit."""

    GOOD = "good"
    BAD = "bad"
    OTHER = "other"
    UNTESTABLE = "untestable"
    INCONCLUSIVE = "inconclusive"


class Criterion(str, Enum):
    """How a probe is judged."""

    AUTO = "auto"
    EXACT = "exact"
    STATISTICAL = "statistical"
    SYMPTOM = "symptom"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all runs of one variant say.

    Attributes:
        verdict: summary for a person.
        nats: ln P(runs | BAD) - ln P(runs | GOOD); positive speaks for BAD.
        num_runs: runs that it rests on.
        reason: one sentence.
    """

    verdict: VerdictKind
    nats: float = 0.0
    num_runs: int = 0
    reason: str = ""
