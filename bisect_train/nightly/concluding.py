"""What a comparison means for its watch: events that close or open findings and move the last good commit. Pure.

The events of one comparison are appended together, so that a night that is killed has concluded a comparison wholly or not at
all: nothing is announced twice, and the last good commit never moves without its reason.
"""

from __future__ import annotations

from dataclasses import replace

from bisect_train.nightly.drift import Drift, find_drift
from bisect_train.nightly.finding import Finding, FindingKind, FindingState, finding_id
from bisect_train.nightly.labels import as_intended, intended_culprit
from bisect_train.nightly.state import WatchState
from bisect_train.nightly.terms import (
    Compared,
    Comparison,
    Events,
    History,
    Kept,
    Level,
    Role,
    Standing,
    Tonight,
    failure_of,
)

DRIFTING = (Role.PINNED, Role.HISTORY)


def conclude_first(tonight: Tonight, level: Level | None, summary: str, *, number: int) -> Events:
    """Return the events by which a commit that was seen to repeat itself becomes the first good one."""
    first = {"night": number, "commit": tonight.commit, "summary": summary, "level": level.to_json() if level else None}
    return [("first", first), ("good", {"commit": tonight.commit, "why": "first night"})]


def conclude(
    state: WatchState, comparison: Comparison, compared: Compared, tonight: Tonight, history: History, *, now_s: float
) -> Events:
    """Return the events that a comparison leads to.

    Args:
        state: before it.
        comparison: what was compared.
        compared: what it showed.
        tonight: for names; the comparison may be an earlier night's that was cut short.
        history: of the commits.
        now_s: seconds since the epoch.
    """
    is_left = comparison.role is Role.FIXED and not comparison.is_ends_only and compared.standing is Standing.WORSE
    if is_left and not compared.culprits:
        said = f"Better than it was, and still worse than {comparison.good[:8]}: the rest can be the change that was intended."
        compared = replace(compared, standing=Standing.UNCLEAR, summary=f"{said} {compared.summary}")
    intended = intended_culprit(compared.culprits, state.expected) if compared.standing is Standing.WORSE else ""
    events: Events = [
        (
            "compared",
            {
                "comparison": comparison.to_json(),
                "bisection": compared.bisection,
                "standing": compared.standing.value,
                "summary": compared.summary,
                "bound": compared.bound,
                "is_intended": bool(intended),
                "level": compared.level.to_json() if compared.level else None,
            },
        )
    ]
    maker = _Maker(state, comparison, compared, tonight, history, now_s)
    if compared.standing is not Standing.UNTESTABLE:
        events += maker.testable_again()
    if compared.standing is Standing.SAME:
        events += maker.close()
    elif is_left:
        events += maker.close() if intended else []
    elif compared.standing is Standing.WORSE and not comparison.is_ends_only:
        events += maker.open_intended(intended) if intended else maker.open_new()
    elif compared.standing is Standing.WORSE and comparison.role is Role.FIXED:
        events += maker.close_failure()
    elif compared.standing is Standing.UNTESTABLE:
        events += maker.untestable()
    elif comparison.role is Role.HISTORY and not comparison.is_ends_only:
        events += maker.open_new()
    return events


def close_held_back(state: WatchState, tonight: Tonight, history: History, *, now_s: float) -> Events:
    """Return the events that close a finding that tonight was seen to be gone, and was held back by one that is over now."""
    still_open = {kept.finding.id for kept in state.open(FindingKind.REGRESSION)}
    for seen in state.nights[-1].seen:
        comparison = seen.comparison
        if comparison.role is Role.FIXED and comparison.finding in still_open and seen.standing is Standing.SAME:
            compared = Compared(seen.bisection, seen.standing, seen.summary)
            if events := _Maker(state, comparison, compared, tonight, history, now_s).close():
                return events
    return []


def update(kept: Kept, compared: Compared, *, now_s: float) -> Events:
    """Return the events by which an open finding says more, [] where its bisection has proved nothing since."""
    if kept.finding.is_confirmed or not compared.is_confirmed:
        return []
    old = kept.finding
    finding = replace(
        old,
        revision=old.revision + 1,
        state=FindingState.UPDATED,
        summary=compared.summary,
        details=_details(None, compared),
        culprits=compared.culprits,
        candidates=compared.candidates,
        is_confirmed=True,
        report=compared.report,
        changed_s=now_s,
    )
    is_one = bool(compared.before) and old.kind is FindingKind.REGRESSION
    return [("finding", {"kept": replace(kept, finding=finding, before=compared.before if is_one else kept.before).to_json()})]


class _Maker:
    """Makes the events of one comparison."""

    def __init__(
        self, state: WatchState, comparison: Comparison, compared: Compared, tonight: Tonight, history: History, now_s: float
    ) -> None:
        self._state = state
        self._comparison = comparison
        self._compared = compared
        self._tonight = tonight
        self._history = history
        self._now_s = now_s
        self._number = state.night.number if state.night else 0

    # ---- over -----------------------------------------------------------------------------------------------------

    def close(self) -> Events:
        """The newest commit is no worse: what was open about it is over, and the last good commit moves on."""
        comparison, newest = self._comparison, self._comparison.bad
        moved: Events = [("good", {"commit": newest, "why": comparison.role.value})]
        if comparison.role is Role.NEWEST:
            return moved
        kept = self._state.findings.get(comparison.finding)
        if kept is None:
            return []
        others = [other for other in self._state.open(FindingKind.REGRESSION) if other.finding.id != comparison.finding]
        if any(self._may_hold(kept.before, other) for other in others):
            return []  # no worse than a commit that is bad itself: the other one may be what is gone
        closing: Events = [self._told(kept, FindingState.CLOSED, self._say_fixed(kept), fixed_by=newest)]
        if comparison.meant or self._compared.standing is Standing.WORSE:
            closing.append(("restart", {}))  # the nights before it had another level
        return [*closing, *(moved if comparison.role is Role.FIXED and not others else [])]

    def _may_hold(self, commit: str, other: Kept) -> bool:
        """Return whether a commit may have the damage of another finding."""
        finding, is_behind = other.finding, self._history.is_ancestor
        if finding.culprits and all(item.kind == "commit" for item in finding.culprits):
            return any(is_behind(item.id, commit) for item in finding.culprits)
        return finding.good != commit and is_behind(finding.good, commit)

    def close_failure(self) -> Events:
        """The program no longer fails in this way, and yet it is worse: that is another finding, for the next step."""
        kept = self._state.findings.get(self._comparison.finding)
        if kept is None or (was := failure_of(kept.finding.report)) in ("", failure_of(self._compared.report)):
            return []
        text = f"The {was} is gone in {self._comparison.bad[:8]}, which is worse than {kept.before[:8]} all the same."
        return [self._told(kept, FindingState.CLOSED, text, fixed_by=self._comparison.bad)]

    def _say_fixed(self, kept: Kept) -> str:
        """Return what closed a finding."""
        if self._compared.standing is Standing.WORSE:
            left = f"what is left is {intended_culprit(self._compared.culprits, self._state.expected)[:8]}, an intended change"
            return f"Fixed in {self._comparison.bad[:8]}: {left}. {self._compared.summary}"
        meant = " and ".join(commit[:8] for commit in self._comparison.meant)
        measure = f"{kept.before[:8]}{f' with the intended change {meant} on top' if meant else ''}"
        return f"Fixed in {self._comparison.bad[:8]}: {measure} is no better. {self._compared.summary}"

    def testable_again(self) -> Events:
        """What could not be tested can be again."""
        if self._comparison.role not in (Role.NEWEST, Role.FIXED):
            return []
        text = f"{self._comparison.bad[:8]} can be compared again. {self._compared.summary}"
        return [
            self._told(kept, FindingState.CLOSED, text, fixed_by=self._comparison.bad)
            for kept in self._state.open(FindingKind.UNTESTABLE)
        ]

    def _told(self, kept: Kept, state: FindingState, summary: str, *, fixed_by: str = "") -> tuple[str, dict[str, object]]:
        old = kept.finding
        finding = replace(
            old, revision=old.revision + 1, state=state, summary=summary, changed_s=self._now_s, fixed_by=fixed_by, details=()
        )
        return "finding", {"kept": replace(kept, finding=finding).to_json()}

    # ---- new ------------------------------------------------------------------------------------------------------

    def open_new(self) -> Events:
        """The newest commit is worse."""
        is_drift = self._comparison.role in DRIFTING
        kind = FindingKind.DRIFT if is_drift else FindingKind.REGRESSION
        return [("finding", {"kept": self._new(kind).to_json()})]

    def open_intended(self, commit: str) -> Events:
        """The newest commit is worse by an intended change: told as that, once; the last good commit moves behind it."""
        role = self._comparison.role
        new = self._new(FindingKind.DRIFT if role in DRIFTING else FindingKind.REGRESSION)
        labelled = as_intended(new, commit, self._state.expected[commit], now_s=self._now_s)
        labelled = replace(labelled, finding=replace(labelled.finding, revision=new.finding.revision))
        events: Events = [("finding", {"kept": labelled.to_json()})]
        if role is Role.NEWEST:
            events.append(("good", {"commit": commit, "why": "an intended change"}))
        if role is Role.SECOND:
            first = self._state.open(FindingKind.REGRESSION)[-1]
            events.append(("level_at", {"finding": first.finding.id, "commit": commit}))
        return events

    def untestable(self) -> Events:
        """The newest commit could not be compared; told once."""
        if self._comparison.role not in (Role.NEWEST, Role.FIXED) or self._state.open(FindingKind.UNTESTABLE):
            return []
        return [("finding", {"kept": self._new(FindingKind.UNTESTABLE).to_json()})]

    def _new(self, kind: FindingKind) -> Kept:
        """Return a finding as it is told for the first time, or again after it was over."""
        comparison, compared, tonight = self._comparison, self._compared, self._tonight
        about = [item.id for item in compared.culprits] or [comparison.good, comparison.bad]
        if kind is FindingKind.DRIFT:
            about = [comparison.good]
        name = finding_id(tonight.watch, kind, *sorted(about))
        before = self._state.findings.get(name)
        drift = find_drift(self._state.levels()) if comparison.role is Role.HISTORY else None
        finding = Finding(
            id=name,
            revision=before.finding.revision + 1 if before else 1,
            state=FindingState.OPEN,
            kind=kind,
            watch=tonight.watch,
            repo=tonight.repo,
            branch=tonight.branch,
            title=self._title(kind),
            summary=_say_drift(drift, compared) if drift else compared.summary,
            good=comparison.good,
            bad=comparison.bad,
            opened_s=self._now_s,
            changed_s=self._now_s,
            details=_details(drift, compared),
            culprits=compared.culprits,
            candidates=compared.candidates,
            is_confirmed=compared.is_confirmed,
            bisection=compared.bisection,
            report=compared.report,
            links=_links(tonight, finding=name, compared=compared, comparison=comparison),
        )
        is_one = bool(compared.before) and kind is FindingKind.REGRESSION
        return Kept(finding, comparison.role, compared.before if is_one else comparison.good, comparison.bad, self._number)

    def _title(self, kind: FindingKind) -> str:
        compared, branch = self._compared, self._tonight.branch
        if kind is FindingKind.UNTESTABLE:
            return f"{branch} cannot be compared at {self._comparison.bad[:8]}"
        what = _what_is_worse(compared)
        if len(compared.culprits) == 1:
            culprit = compared.culprits[0]
            since = culprit.id[:8] if culprit.kind == "commit" else f"{culprit.kind} {culprit.id}"
            return f"{what} on {branch} since {since}"
        ends = f"at {self._comparison.bad[:8]} than at {self._comparison.good[:8]}"
        return f"{what} on {branch} {ends}{', little by little' if kind is FindingKind.DRIFT else ''}"


def _links(tonight: Tonight, *, finding: str, compared: Compared, comparison: Comparison) -> tuple[tuple[str, str], ...]:
    filled = {"{bisection}": compared.bisection, "{commit}": comparison.bad, "{finding}": finding}
    links = []
    for words, address in tonight.links:
        for name, value in filled.items():
            address = address.replace(name, value)
        links.append((words, address))
    return tuple(links)


def _what_is_worse(compared: Compared) -> str:
    report = compared.report or {}
    words = {"crash": "the program fails", "hang": "the program hangs", "nan": "the metric is not finite"}
    if report.get("kind_of_change") in words:
        return words[report["kind_of_change"]]
    name = compared.level.metric if compared.level else report.get("ends", {}).get("bad", {}).get("metric", "the metric")
    return f"{name} is worse"


def _details(drift: Drift | None, compared: Compared) -> tuple[str, ...]:
    return (*([compared.summary] if drift else []), *compared.details)


def _say_drift(drift: Drift, compared: Compared) -> str:
    unit = f" {compared.level.unit}" if compared.level and compared.level.unit else ""
    where = f"after {drift.after[:8]}" if drift.after else "little by little"
    name = compared.level.metric if compared.level else "the metric"
    return (
        f"Over {drift.num_nights} nights {name} has become worse by {drift.size:.3g}{unit}, {where}: nights in random order "
        f"would show this in {100 * drift.p_value:.2g} % of cases."
    )
