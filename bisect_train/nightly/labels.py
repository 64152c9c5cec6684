"""Intended changes: what a person has called meant is labelled, and no longer blamed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bisect_train.nightly.finding import Finding, FindingKind, FindingState, FoundChange
from bisect_train.nightly.state import WatchState
from bisect_train.nightly.terms import Events, History, Kept, Tonight


def due_labels(state: WatchState, tonight: Tonight, history: History, *, now_s: float) -> Events:
    """Return the events by which open findings become intended ones, [] if none does."""
    events: Events = []
    for kept in state.open(FindingKind.REGRESSION, FindingKind.DRIFT):
        if commit := explained_by(kept.finding, state.expected, tonight, history):
            events += label(state, kept, commit, tonight, history, now_s=now_s)
    return events


def explained_by(finding: Finding, expected: Mapping[str, str], tonight: Tonight, history: History) -> str:
    """Return the intended commit that explains a finding, "" without one.

    A proved commit explains it if it is intended. Where none is proved, the person knows better: the newest intended commit
    between the ends does.
    """
    if finding.culprits:
        return intended_culprit(finding.culprits, expected)
    found = ""
    for commit in expected:
        is_inside = history.is_ancestor(commit, finding.bad) and not history.is_ancestor(commit, finding.good)
        if is_inside and history.is_ancestor(commit, tonight.commit) and (not found or history.is_ancestor(found, commit)):
            found = commit
    return found


def intended_culprit(culprits: Iterable[FoundChange], expected: Mapping[str, str]) -> str:
    """Return the one proved commit if it is intended, "" otherwise: beside a change that is not, nothing is explained."""
    named = tuple(culprits)
    is_intended = len(named) == 1 and named[0].kind == "commit" and named[0].id in expected
    return named[0].id if is_intended else ""


def label(state: WatchState, kept: Kept, commit: str, tonight: Tonight, history: History, *, now_s: float) -> Events:
    """Return the events by which a finding becomes an intended one; the last good commit moves behind a regression."""
    events: Events = [("finding", {"kept": as_intended(kept, commit, state.expected[commit], now_s=now_s).to_json()})]
    newest = next((good for good in reversed(state.goods) if history.is_ancestor(good, tonight.commit)), "")
    if kept.finding.kind is FindingKind.REGRESSION and (not newest or history.is_ancestor(newest, commit)):
        events.append(("good", {"commit": commit, "why": "an intended change"}))
    return events


def as_intended(kept: Kept, commit: str, reason: str, *, now_s: float) -> Kept:
    """Return a finding that an intended change explains, as it is told next."""
    old = kept.finding
    why = f": {reason}" if reason else ""
    finding = replace(
        old,
        revision=old.revision + 1,
        state=FindingState.INTENDED,
        summary=f"{commit[:8]} is an intended change{why}. {old.summary}",
        changed_s=now_s,
    )
    return replace(kept, finding=finding)
