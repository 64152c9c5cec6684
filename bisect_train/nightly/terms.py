"""The terms of a night: what is compared, what it showed, what is kept of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Protocol

from bisect_train.nightly.finding import Finding, FoundChange

Events = list[tuple[str, dict[str, Any]]]
"""Kind and data of events that are appended together."""


class History(Protocol):
    """What a night needs to know of the commits."""

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Return whether a commit is another one, or lies behind it.

        Raises:
            BisectTrainError: that cannot be said, as in a clone whose history is cut off.
        """


class Role(str, Enum):
    """Why two commits are compared."""

    NEWEST = "newest"  # the last good commit against the newest: is there a regression?
    FIXED = "fixed"  # the commit before an open finding against the newest: is it still there? Ends only, no search
    MEASURE = "measure"  # before and with an open finding, both with intended changes on top: does it show beside them?
    SECOND = "second"  # the newest commit that has the open finding against the newest: is there another one behind it?
    PINNED = "pinned"  # a pinned baseline against the newest: has it become worse in steps too small to be seen?
    HISTORY = "history"  # the first night of a history that drifts against the newest


class Standing(str, Enum):
    """What a comparison showed of the newest commit."""

    SAME = "same"  # no worse: bitwise equal, better, or the bound is below the smallest effect that counts
    WORSE = "worse"
    UNCLEAR = "unclear"  # it could still be worse by more than that
    UNTESTABLE = "untestable"  # an end could not be run, or shows nothing


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two commits to compare: 40 hex digits each.

    Attributes:
        role: why.
        good, bad: the ends; bad is the newest commit, of a measure the culprit.
        finding: id of the open finding that it is about, or "".
        is_ends_only: whether the ends are told apart, and nothing is searched.
        meant: intended changes that the good end has on top, in this order; of a measure the bad end, too.
    """

    role: Role
    good: str
    bad: str
    finding: str = ""
    is_ends_only: bool = False
    meant: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {**asdict(self), "role": self.role.value, "meant": list(self.meant)}

    @staticmethod
    def of_json(data: dict[str, Any]) -> Comparison:
        """Return what `to_json` wrote."""
        meant = tuple(data.get("meant", ()))
        return Comparison(Role(data["role"]), data["good"], data["bad"], data["finding"], bool(data["is_ends_only"]), meant)


@dataclass(frozen=True, slots=True)
class Level:
    """The metric of one commit.

    Attributes:
        commit: 40 hex digits.
        scale: what the values hold for (metric, rung, way of measuring, hardware, interpreter); others are never mixed in.
        metric: its name.
        unit: of the values.
        sign: 1 where larger is worse, -1 where smaller is.
        values: by seed index, in the metric's unit.
        bits: bitwise class by seed index; {} where nothing was recorded.
        min_effect: smallest worsening that counts, in the metric's unit.
    """

    commit: str
    scale: str
    metric: str
    unit: str
    sign: int
    values: dict[int, float]
    bits: dict[int, str]
    min_effect: float

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        data = asdict(self)
        return data | {name: {str(idx): item for idx, item in data[name].items()} for name in ("values", "bits")}

    @staticmethod
    def of_json(data: dict[str, Any]) -> Level:
        """Return what `to_json` wrote."""
        seeds = {name: {int(idx): item for idx, item in data[name].items()} for name in ("values", "bits")}
        return Level(**{**data, **seeds})


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison showed.

    Attributes:
        bisection: id of the stored bisection.
        standing: see Standing.
        summary: one sentence.
        bound: upper 95 % bound of the worsening in the metric's unit, or None.
        level: of the newest commit, None where it shows no value or values of other nights say nothing of it.
        culprits: proved changes.
        candidates: changes that could be it, where none is proved.
        is_confirmed: whether the proof has held.
        before: commit before the culprit, where that is one commit, else "".
        report: report.json, or None.
        details: further sentences.
    """

    bisection: str
    standing: Standing
    summary: str
    bound: float | None = None
    level: Level | None = None
    culprits: tuple[FoundChange, ...] = ()
    candidates: tuple[FoundChange, ...] = ()
    is_confirmed: bool = False
    before: str = ""
    report: dict[str, Any] | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """A finding at its last telling, with what the nights after it need.

    Attributes:
        finding: as it was told last.
        role: of the comparison that found it.
        before: commit that the newest one is compared with to see whether it is fixed.
        level_at: newest commit that is known to show this finding and no other.
        night: number of the night that found it.
    """

    finding: Finding
    role: Role
    before: str
    level_at: str
    night: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {**asdict(self), "finding": self.finding.to_json(), "role": self.role.value}

    @staticmethod
    def of_json(data: dict[str, Any]) -> Kept:
        """Return what `to_json` wrote."""
        return Kept(**{**data, "finding": Finding.of_json(data["finding"]), "role": Role(data["role"])})


@dataclass(frozen=True, slots=True)
class Tonight:
    """What a night is about.

    Attributes:
        watch: name.
        repo: for a person.
        branch: that is watched.
        commit: its newest commit.
        pinned: commit of the pinned baseline, or "".
        pinned_every: each how manieth night it is compared with.
        asked: digest of how probes run; another one is another question.
        links: (words, address) pairs for messages; {bisection}, {commit} and {finding} in an address are filled in.
    """

    watch: str
    repo: str
    branch: str
    commit: str
    pinned: str = ""
    pinned_every: int = 1
    asked: str = ""
    links: tuple[tuple[str, str], ...] = ()


FAILURES = ("crash", "hang", "nan")


def failure_of(report: dict[str, Any] | None) -> str:
    """Return how the bad end fails by its report.json, "" where it does not."""
    kind = str((report or {}).get("kind_of_change"))
    return kind if kind in FAILURES else ""
