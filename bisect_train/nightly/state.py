"""What the events of a watch say: last good commit, nights, findings, what is being asked. Pure; nothing else is remembered.

begun      {night, commit, asked, pinned}        a night begins with this newest commit
first      {night, commit, summary, level}       nothing was good yet: this commit repeats itself and is taken as good
asked      {night, comparison, bisection}        a bisection was stored for a comparison
abandoned  {bisection, reason}                   it cannot be gone on with
compared   {night, comparison, bisection, standing, summary, bound, level, is_intended}
restart    {}                                    the level of the branch is another one from this night on, and meant to be
good       {night, commit, why}                  the last good commit moves
finding    {kept}                                a finding is told, or told anew (`Kept`)
level_at   {finding, commit}                     behind an intended change, an open finding has another level
expected   {commit, reason}                      a person calls a change intended
ended      {night, commit, exit_status, summary}
channel    {to}, told {to, key, finding, receipt}     see `outbox`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bisect_train.core.errors import MISSHAPEN, damaged
from bisect_train.nightly.finding import FindingKind, FindingState
from bisect_train.nightly.terms import Comparison, Kept, Level, Role, Standing
from bisect_train.store.contract import StoredEvent

OVER = (FindingState.CLOSED, FindingState.INTENDED)


@dataclass(frozen=True, slots=True)
class Seen:
    """A comparison of a night with what it showed; `is_intended`: it is worse by an intended change only."""

    comparison: Comparison
    bisection: str
    standing: Standing
    summary: str
    bound: float | None
    is_intended: bool


@dataclass(frozen=True, slots=True)
class Night:
    """A night.

    Attributes:
        number: from 1.
        commit: newest one.
        asked: digest of how probes ran.
        pinned: commit of the pinned baseline, or "".
        begun_s: seconds since the epoch.
        seen: comparisons in order.
        level: of the commit, None where it shows no value.
        is_bad: whether a regression was open at its end, or it is worse: its level says nothing of a drift.
        findings: (id, state) of what was told.
        exit_status: None until it has ended.
        summary: one sentence or two, "" until it has ended.
        num_expected: intended changes that were known when it began.
    """

    number: int
    commit: str
    asked: str
    pinned: str
    begun_s: float
    seen: tuple[Seen, ...] = ()
    level: Level | None = None
    is_bad: bool = False
    findings: tuple[tuple[str, FindingState], ...] = ()
    exit_status: int | None = None
    summary: str = ""
    num_expected: int = 0

    def find(self, comparison: Comparison) -> Seen | None:
        """Return what a comparison showed in this night, None if it was not made."""
        return next((seen for seen in self.seen if seen.comparison == comparison), None)


@dataclass(frozen=True, slots=True)
class Asking:
    """A comparison whose bisection is stored and not over."""

    comparison: Comparison
    bisection: str


@dataclass(frozen=True, slots=True)
class WatchState:
    """What is known of a watch.

    Attributes:
        goods: commits that were the last good one, in order; the newest is the last.
        nights: all that have begun.
        findings: by id, as told last, in the order of their first telling.
        expected: reason of each intended change, by commit.
        asking: what is unfinished, or None.
        measured: what a measure showed, by digest of how probes ran and comparison: (night, standing).
        since_night: levels of nights before this one belong to another level that was meant, or was mended.
    """

    goods: tuple[str, ...] = ()
    nights: tuple[Night, ...] = ()
    findings: dict[str, Kept] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)
    asking: Asking | None = None
    measured: dict[tuple[str, Comparison], tuple[int, Standing]] = field(default_factory=dict)
    since_night: int = 0

    @property
    def num_expected(self) -> int:
        """How many changes are intended."""
        return len(self.expected)

    @property
    def night(self) -> Night | None:
        """The newest night."""
        return self.nights[-1] if self.nights else None

    def open(self, *kinds: FindingKind) -> list[Kept]:
        """Return the open findings of these kinds, the oldest first."""
        return [kept for kept in self.findings.values() if kept.finding.state not in OVER and kept.finding.kind in kinds]

    def levels(self) -> list[Level]:
        """Return the levels of the nights that tell of a drift: since the level last was what it should be, on one scale."""
        kept = [night.level for night in self.nights if night.number >= self.since_night and not night.is_bad and night.level]
        return [level for level in kept if level.scale == kept[-1].scale]


def read_state(events: Iterable[StoredEvent]) -> WatchState:
    """Return what the events of a watch say. Raises MachineError: one of them is none that a watch has written."""
    state = WatchState()
    for event in events:
        state = fold(state, event)
    return state


def fold(state: WatchState, event: StoredEvent) -> WatchState:
    """Return the state after one more event. Raises MachineError: it is none that a watch has written."""
    try:
        return _folded(state, event)
    except MISSHAPEN as error:
        raise damaged(f"event {event.seq} of a nightly history", f"{event.kind}, {type(error).__name__}: {error}") from error


def _folded(state: WatchState, event: StoredEvent) -> WatchState:
    data = event.data
    match event.kind:
        case "begun":
            night = Night(data["night"], data["commit"], data["asked"], data["pinned"], event.time_s)
            night = replace(night, num_expected=state.num_expected)
            return replace(state, nights=(*state.nights, night))
        case "first":
            return _with_night(state, level=_level_of(data))
        case "asked":
            return replace(state, asking=Asking(Comparison.of_json(data["comparison"]), data["bisection"]))
        case "abandoned":
            return replace(state, asking=None)
        case "compared":
            return _with_seen(replace(state, asking=None), data)
        case "good":
            return replace(state, goods=(*state.goods, data["commit"]))
        case "finding":
            return _with_finding(state, Kept.of_json(data["kept"]))
        case "level_at":
            kept = replace(state.findings[data["finding"]], level_at=data["commit"])
            return replace(state, findings={**state.findings, data["finding"]: kept})
        case "expected":
            return replace(state, expected={**state.expected, data["commit"]: data["reason"]})
        case "restart":
            return replace(state, since_night=state.nights[-1].number)
        case "ended":
            return _with_night(state, exit_status=data["exit_status"], summary=data["summary"])
        case "channel":  # this one and the next are for the outbox, which takes them as they are
            _require_texts(data, "to", "name")
        case "told":
            _require_texts(data, "to", "key", "finding")
            _require(isinstance(data["receipt"], dict), "'receipt' is no object")
    return state


def _require_texts(data: dict[str, Any], *names: str) -> None:
    for name in names:
        _require(isinstance(data[name], str), f"{name!r} is no text")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise TypeError(otherwise)


def _with_night(state: WatchState, **changed: Any) -> WatchState:
    """Return the state with values of its newest night changed."""
    return replace(state, nights=(*state.nights[:-1], replace(state.nights[-1], **changed)))


def _level_of(data: dict[str, Any]) -> Level | None:
    return Level.of_json(data["level"]) if data.get("level") else None


def _with_seen(state: WatchState, data: dict[str, Any]) -> WatchState:
    """Return the state with one more comparison; one of an earlier night's commit, ended late, belongs to no night."""
    comparison = Comparison.of_json(data["comparison"])
    night, standing = state.nights[-1], Standing(data["standing"])
    if comparison.role is Role.MEASURE:
        key = (night.asked, comparison)
        return replace(state, measured={**state.measured, key: (night.number, standing)})
    if comparison.bad != night.commit:
        return state
    seen = Seen(comparison, data["bisection"], standing, data["summary"], data["bound"], data["is_intended"])
    is_worse = standing is Standing.WORSE and not seen.is_intended and comparison.role is not Role.HISTORY
    level = night.level or _level_of(data)
    return _with_night(state, seen=(*night.seen, seen), level=level, is_bad=night.is_bad or is_worse)


def _with_finding(state: WatchState, kept: Kept) -> WatchState:
    finding = kept.finding
    state = replace(state, findings={**state.findings, finding.id: kept})
    told = (*state.nights[-1].findings, (finding.id, finding.state))
    is_restart = finding.state is FindingState.INTENDED or (
        finding.kind is FindingKind.DRIFT and finding.state is FindingState.CLOSED
    )
    since = state.nights[-1].number if is_restart else state.since_night
    return replace(_with_night(state, findings=told), since_night=since)
