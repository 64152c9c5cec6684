"""What a report says, as values: the single source of the terminal, HTML and JSON. Nothing is computed here or in a renderer.

Numbers are in the metric's unit unless their name says otherwise; standard deviations are over seeds, n - 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from bisect_train.coordinator.node_events import NodeHistory
from bisect_train.report.triage_parts import TriagePart
from bisect_train.verdict.divergence import Divergence


@dataclass(frozen=True, slots=True)
class Cost:
    """What a bisection cost, as its coordinator counted it.

    Attributes:
        probes: runs made for it.
        cached: results that earlier bisections had.
        wall_s: time from start to end, seconds.
        gpu_s: GPUs times seconds that the probes held them.
        rounds: the longest chain of probes that each began after the one before had ended.
        pruned: changes that needed no run, since the program reads nothing of them.
        early: probes of the search that were stopped because they had shown which end they are like.
        saved_steps: steps that these did not make.
    """

    probes: int
    cached: int
    wall_s: float
    gpu_s: float
    rounds: int = 0
    pruned: int = 0
    early: int = 0
    saved_steps: int = 0


@dataclass(frozen=True, slots=True)
class ChangePart:
    """A change, or something inside one: kind of report.json, id, one line for a person."""

    kind: str
    id: str
    title: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MetricPart:
    """The metric that decided: its name, how a run's values become one number (in words), which way is better, unit."""

    name: str
    reduce: str
    better: str
    unit: str


@dataclass(frozen=True, slots=True)
class EndPart:
    """One end.

    Attributes:
        name: good or bad.
        revision: 40 hex digits.
        config: path of its config file, "" when the config travels with the commit.
        mean, sd, num: of the metric over seeds; None and 0 without values.
        repeats_bitwise: the same seed gave the same bits again; None while unknown.
        ending: how its runs ended, in words.
    """

    name: str
    revision: str
    config: str
    mean: float | None
    sd: float | None
    num: int
    repeats_bitwise: bool | None
    ending: str


@dataclass(frozen=True, slots=True)
class EffectPart:
    """How big a culprit's effect is, by the proof's fresh runs: its parent (good) against itself (bad).

    Attributes:
        share: of the gap between the ends that this change explains; None if the gap is not known.
        share_low, share_high: 95 % confidence interval, None if there are too few runs for one.
        spread_from: where the standard deviations come from: fresh runs, or the ends' seeds.
    """

    metric: str
    unit: str
    good: float
    bad: float
    good_sd: float | None
    bad_sd: float | None
    num_good: int
    num_bad: int
    share: float | None
    share_low: float | None
    share_high: float | None
    spread_from: str


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """One claim of the proof in words.

    Attributes:
        kind: parent, heals or breaks.
        text: the claim as a sentence.
        status: held, failed, open or could not be run.
        how: `bitwise equal`, `p = 0.0003` ...
        healthy, sick: what was compared.
        num_healthy, num_sick: fresh runs of each.
        jump: sick - healthy, positive when worse, or None.
        reason: one sentence or "".
    """

    kind: str
    text: str
    status: str
    how: str
    healthy: str
    sick: str
    num_healthy: int
    num_sick: int
    jump: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class DescentPart:
    """What is known of the inside of a change that was named as a whole.

    Attributes:
        kind: merge, commit, package, release or submodule.
        opened: id of the change.
        bisection: id of the one that looked inside, "" if none did.
        status: of its report, `unfinished`, or "" if there is none.
        found: what it proved, the merge itself for what its author changed beyond merging.
        files: what the first of these holds in turn, or the files that it touches.
        clause: the answer as a part of a sentence, or "".
        summary: of its report.
        searched: what there was to search, such as `60 hunks`.
        num_steps: training steps of its probes.
        cost: of looking inside, None if none did.
        reason: why none looked inside, a clause, or "".
        by_hand: the command that looks inside, or "".
        patch: the smallest patch that was found to do it, onto the commit's parent; "" where no commit was split.
        place: the change's short name, such as `merge 1a2b3c4d`; "" where kind and id give it.
    """

    kind: str
    opened: str
    bisection: str
    status: str
    found: tuple[ChangePart, ...] = ()
    files: tuple[ChangePart, ...] = ()
    clause: str = ""
    summary: str = ""
    searched: str = ""
    num_steps: int = 0
    cost: Cost | None = None
    reason: str = ""
    by_hand: str = ""
    patch: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class CulpritPart:
    """A culprit: one change, or a pair that acts together only; `descent` if it has an inside that was asked about."""

    changes: tuple[ChangePart, ...]
    probability: float
    effect: EffectPart | None
    necessary: bool | None
    sufficient: bool | None
    conditions: tuple[str, ...]
    inside: tuple[ChangePart, ...]
    descent: DescentPart | None = None


@dataclass(frozen=True, slots=True)
class CandidatePart:
    """A change that could be the one, with the probability that it is."""

    change: ChangePart
    probability: float


@dataclass(frozen=True, slots=True)
class StripPart:
    """One change in the posterior strip.

    Attributes:
        number: from 1, oldest first.
        label: what it is.
        probability: that it is the one.
        is_culprit: whether it is named.
        is_unread: whether the program reads nothing of it, so that it needed no run.
    """

    number: int
    label: str
    probability: float
    is_culprit: bool
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class CoveragePart:
    """What a probe was, and what it can and cannot see, in words; `tried`: the rungs that were left for this one, and why."""

    steps: int
    ranks: int
    rung: str
    covers: tuple[str, ...]
    cannot_see: tuple[str, ...]
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbePart:
    """One row of the probe table.

    Attributes:
        key: identity.
        what: what ran, in words.
        subject: title of the last change of a version, "" otherwise.
        purpose: ends, search, or proof n.
        ending: how it ended, in words; `outcome` is the same in one or two.
        value: of the metric, or None.
        verdict: in words: good, bad, unlike both ends, untestable, undecided, or what an end's run showed; failed or passed
            where a failure comes and goes.
        rate: then, how often its variant has failed up to this run: `3 of 7 fail`; "" otherwise.
        log_tail: last lines of its output when it failed.
    """

    key: str
    point: str
    what: str
    subject: str
    purpose: str
    seed_idx: int
    repeat: int
    ending: str
    outcome: str
    steps: int
    value: float | None
    verdict: str
    wall_s: float
    log_tail: str = ""
    rate: str = ""

    @property
    def said(self) -> str:
        """The verdict with the rate behind it."""
        return f"{self.verdict}, {self.rate}" if self.rate else self.verdict


@dataclass(frozen=True, slots=True)
class CurvePart:
    """Values of one run; `role` is good, bad, parent or culprit; `metric` is the loss where the deciding one has one value."""

    role: str
    label: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    metric: str = "loss"


@dataclass(frozen=True, slots=True)
class ReproducePart:
    """Commands that make and run one state by hand: a title and the lines of a shell."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """The verdict in words: a few, one sentence, further sentences."""

    headline: str
    summary: str
    explanation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellPart:
    """One state of a pair.

    Attributes:
        name: what it holds.
        mean, sd: of the metric; None without a value.
        num_runs: runs that it rests on.
        num_failed: of them, that failed.
    """

    name: str
    mean: float | None
    sd: float | None
    num_runs: int
    num_failed: int


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that a report says.

    Attributes:
        id: of the bisection.
        kind: run or check.
        title: the question in one line.
        status: of report.json.
        exit_status: of DESIGN's table.
        is_finished: false when the bisection has no answer yet.
        headline: the verdict in a few words.
        summary: the verdict in one sentence.
        explanation: further sentences: what was compared, how sure, what would help.
        kind_of_change: of report.json.
        metric: that decided.
        ends: good, bad.
        ends_story: how the ends were told apart, in sentences.
        gap, spread, min_effect, bound: of the ends; None where unknown.
        num_changes: by kind.
        null_probability: that ends which do not differ would look like this; None if unknown.
        log_tail: the last lines of an end that could not be run.
        patch: the culprit as a patch onto the commit's parent, where a commit was split; else "".
        needed: changes that a culprit needs to run and that are no cause themselves.
        pair: the four states of a pair that is the culprit: neither, each alone, both; () otherwise.
        nodes: of the cluster that ran it; () on one machine.
    """

    id: str
    kind: str
    title: str
    status: str
    exit_status: int
    is_finished: bool
    headline: str
    summary: str
    explanation: tuple[str, ...]
    kind_of_change: str | None
    metric: MetricPart
    ends: tuple[EndPart, EndPart]
    ends_story: tuple[str, ...]
    gap: float | None
    spread: float | None
    min_effect: float | None
    bound: float | None
    num_changes: dict[str, int]
    culprits: tuple[CulpritPart, ...]
    candidates: tuple[CandidatePart, ...]
    null_probability: float | None
    claims: tuple[ClaimPart, ...]
    strip: tuple[StripPart, ...]
    triage: TriagePart
    coverage: CoveragePart
    cost: Cost
    num_steps: int
    probes: tuple[ProbePart, ...]
    curves: tuple[CurvePart, ...]
    divergence: Divergence | None
    divergence_text: str
    reproduce: tuple[ReproducePart, ...]
    warnings: tuple[str, ...]
    log_tail: str = ""
    patch: str = ""
    needed: tuple[ChangePart, ...] = ()
    pair: tuple[CellPart, ...] = ()
    nodes: tuple[NodeHistory, ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether the question has its answer: a culprit, or no regression where that was asked."""
        return self.status in ("isolated", "several") or self.exit_status == 0
