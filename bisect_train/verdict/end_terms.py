"""The terms of the proof of the ends: what was asked, what is known, what is wanted next."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.stats import Summary


class EndsStatus(str, Enum):
    """What is known about the two ends."""

    OPEN = "open"  # more runs are needed, see `wanted`
    SEPARATED = "separated"
    SAME = "same"  # bitwise equal, or the bound on the effect is below the smallest that counts
    UNCLEAR = "unclear"  # not separated, and the effect could still be as large as the bound
    BETTER = "better"  # the bad end is better
    FLAKY = "flaky"  # the bad end fails in some runs only, too few to tell its rate from that of the good end
    GOOD_UNTESTABLE = "good_untestable"
    BAD_UNTESTABLE = "bad_untestable"
    NO_METRIC = "no_metric"  # neither end shows the metric, and neither fails


@dataclass(frozen=True, slots=True)
class EndRun:
    """A run that is wanted at an end."""

    is_bad: bool
    seed_idx: int
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """The state of the proof of the ends. Values are in the metric's unit, `gap` positive when the bad end is worse.

    Attributes:
        status: see EndsStatus.
        criterion: EXACT, STATISTICAL, SYMPTOM or JUDGE once it is known.
        repeats_bitwise: the same seed again gave the same bits at both ends; None while unknown.
        good, bad: summaries over seeds (copies do not count), or None.
        spread: pooled seed standard deviation, or the declared one when seeds change nothing.
        gap: how much worse the bad end is.
        min_effect: smallest worsening that counts.
        bound: upper 95 % bound of the worsening, or None.
        p_value: of the look that decided.
        signature: of the symptom.
        good_digests, bad_digests: bitwise class by seed index.
        good_values, bad_values: the metric by seed index, signed so that larger is worse.
        unit: distance between values of the metric that can be told apart as they are written; 0.0 where it is not known.
        are_seeds_inert: other seeds gave the same bits.
        seed_effects: where the same seed moves both ends alike: by how much, by seed index; runs are then compared by pairs.
        paired_spread: standard deviation of a run after its seed's effect is taken off; 0.0 without pairs.
        is_flaky: a failure comes and goes, so that rates are compared; then `gap` is the difference of the rates.
        good_counts, bad_counts: failures and passes of the ends where a failure decides by its rate.
        wanted: runs that are needed next, most urgent first.
        reason: one sentence.
    """

    status: EndsStatus
    criterion: Criterion = Criterion.AUTO
    repeats_bitwise: bool | None = None
    good: Summary | None = None
    bad: Summary | None = None
    spread: float = 0.0
    gap: float = 0.0
    min_effect: float = 0.0
    bound: float | None = None
    p_value: float | None = None
    signature: str = ""
    good_digests: dict[int, str] = field(default_factory=dict)
    bad_digests: dict[int, str] = field(default_factory=dict)
    good_values: dict[int, float] = field(default_factory=dict)
    bad_values: dict[int, float] = field(default_factory=dict)
    unit: float = 0.0
    are_seeds_inert: bool = False
    seed_effects: dict[int, float] = field(default_factory=dict)
    paired_spread: float = 0.0
    is_flaky: bool = False
    good_counts: tuple[int, int] = (0, 0)
    bad_counts: tuple[int, int] = (0, 0)
    wanted: tuple[EndRun, ...] = ()
    reason: str = ""

    @property
    def do_bits_repeat(self) -> bool:
        """Whether runs were seen to repeat bit by bit; a failure that always comes back says nothing of bits."""
        return self.repeats_bitwise is True and self.criterion in (Criterion.EXACT, Criterion.STATISTICAL)

    @property
    def are_paired(self) -> bool:
        """Whether runs on the same seed are compared by pairs."""
        return bool(self.seed_effects)


@dataclass(frozen=True, slots=True)
class EndRules:
    """What was asked: the metric, the criterion, whether any difference counts, the smallest effect, seeds per end.

    `repeats_known`: runs were seen to repeat bitwise by the bisection that this one is a part of; they are not repeated again.
    `symptom`: name of the symptom of triage that was asked about, or "".
    `level_share`: share of the error that this rung may spend; all rungs of a ladder together spend 1.
    """

    metric: Metric
    criterion: Criterion = Criterion.AUTO
    any_change: bool = False
    min_effect: float | None = None
    max_seeds: int = 8
    has_judge: bool = False
    repeats_known: bool = False
    symptom: str = ""
    level_share: float = 1.0
