"""What a night does next, from the state of its watch. Pure; called after every step: a night can be cut short anywhere.

The order of a night:

    1  intended changes: open findings that they explain are labelled, and the last good commit moves behind them
    2  each open regression: is the newest commit still worse than the one before it?   ends only
       it is, and an intended change has come since: is that the reason? See `mending`  ends only, or bisected
    3  one is open: is there another behind it?                                         bisected
       none is open: is the newest commit worse than the last good one?                 bisected
    4  none is open: the newest commit against the pinned baseline                      bisected; ends only for an open drift
    5  the history of the nights drifts: its first night against the newest             bisected; ends only for an open drift
    6  the end: exit status and summary
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_train.core.errors import InputError
from bisect_train.nightly.concluding import close_held_back
from bisect_train.nightly.drift import find_drift
from bisect_train.nightly.finding import FindingKind
from bisect_train.nightly.labels import due_labels
from bisect_train.nightly.mending import comparisons_of_mending
from bisect_train.nightly.state import Night, Seen, WatchState
from bisect_train.nightly.terms import Comparison, Events, History, Kept, Role, Standing, Tonight, failure_of


@dataclass(frozen=True, slots=True)
class TakeFirst:
    """Nothing was good yet: see whether this commit repeats itself, and take it."""

    commit: str


@dataclass(frozen=True, slots=True)
class Note:
    """Events to append; nothing is run."""

    events: Events


@dataclass(frozen=True, slots=True)
class Finish:
    """The night is over."""

    exit_status: int
    summary: str


Step = TakeFirst | Comparison | Note | Finish


def next_step(state: WatchState, tonight: Tonight, history: History, *, now_s: float) -> Step:
    """Return what comes next; the newest night of the state is tonight's.

    Args:
        state: of the watch.
        tonight: what the night is about.
        history: of the commits.
        now_s: seconds since the epoch.
    Raises:
        InputError: there were good commits, and none of them lies behind the newest one.
    """
    night = state.night
    assert night is not None and night.commit == tonight.commit
    if labels := due_labels(state, tonight, history, now_s=now_s):
        return Note(labels)
    if closings := close_held_back(state, tonight, history, now_s=now_s):
        return Note(closings)
    good = last_good(state, tonight, history)
    if not good and state.goods:  # a commit of which nothing is known must not become the measure of those behind it
        message = f"none of the good commits of this watch lies behind {tonight.branch} at {tonight.commit[:12]}"
        raise InputError(message, hint="name one with --good REV; in a shallow clone: git fetch --unshallow")
    if not good:
        return TakeFirst(tonight.commit)
    for comparison in _comparisons(state, night, tonight, history, good):
        if _is_missing(night, comparison):
            return comparison
    return _finish(state, night, good)


def last_good(state: WatchState, tonight: Tonight, history: History) -> str:
    """Return the newest good commit that the newest commit is built on, "" without one: a branch may have been rewritten."""
    return next((commit for commit in reversed(state.goods) if history.is_ancestor(commit, tonight.commit)), "")


def _comparisons(state: WatchState, night: Night, tonight: Tonight, history: History, good: str) -> list[Comparison]:
    """Return what is to be compared, as far as it is known now; what was compared already leads to more."""
    commit = tonight.commit
    regressions = state.open(FindingKind.REGRESSION)
    earlier = [kept for kept in regressions if kept.night < night.number]
    asked = [_is_gone(kept, Role.FIXED, commit) for kept in earlier]
    if any(night.find(comparison) is None for comparison in asked):
        return asked
    for kept in earlier:
        seen = night.find(_is_gone(kept, Role.FIXED, commit))
        left = comparisons_of_mending(state, night, kept, history) if seen and seen.standing is Standing.WORSE else []
        if any(_is_missing(night, comparison) for comparison in left):
            return left
        asked += left
    if regressions:
        level_at = regressions[-1].level_at
        can_tell = not failure_of(regressions[-1].finding.report)  # a program that fails hides all else
        if level_at != commit and can_tell and history.is_ancestor(level_at, commit):
            asked.append(Comparison(Role.SECOND, level_at, commit))
        return asked
    if good != commit:
        newest = Comparison(Role.NEWEST, good, commit)
        seen = night.find(newest)
        if seen is None or seen.standing in (Standing.WORSE, Standing.UNTESTABLE):
            return [newest]
    asked = _pinned(state, night, tonight, history)
    if any((seen := night.find(comparison)) is None or _is_worse(seen) for comparison in asked):
        return asked
    return [*asked, *_drifting(state, tonight, history)]


def _is_gone(kept: Kept, role: Role, commit: str) -> Comparison:
    """Return the comparison that shows whether an open finding is fixed."""
    return Comparison(role, kept.before, commit, finding=kept.finding.id, is_ends_only=True)


def _is_missing(night: Night, comparison: Comparison) -> bool:
    """Return whether a comparison is to be made; what is asked of a measure is not known yet (see `mending`)."""
    return comparison.role is Role.MEASURE or night.find(comparison) is None


def _pinned(state: WatchState, night: Night, tonight: Tonight, history: History) -> list[Comparison]:
    is_due = night.number % tonight.pinned_every == 0
    open_ones = [kept for kept in state.open(FindingKind.DRIFT) if kept.role is Role.PINNED]
    if open_ones:
        return [_is_gone(kept, Role.PINNED, tonight.commit) for kept in open_ones if kept.night < night.number]
    reference = pinned_reference(state, tonight, history)
    if not is_due or reference in ("", tonight.commit) or night.find(Comparison(Role.NEWEST, reference, tonight.commit)):
        return []
    return [Comparison(Role.PINNED, reference, tonight.commit)]


def pinned_reference(state: WatchState, tonight: Tonight, history: History) -> str:
    """Return the commit that stands for the pinned baseline: the newest intended change behind it, if there is one."""
    found = tonight.pinned
    for commit in state.expected if found else ():
        if history.is_ancestor(found, commit) and history.is_ancestor(commit, tonight.commit):
            found = commit
    return found


def _drifting(state: WatchState, tonight: Tonight, history: History) -> list[Comparison]:
    open_ones = [kept for kept in state.open(FindingKind.DRIFT) if kept.role is Role.HISTORY]
    if open_ones:
        number = state.nights[-1].number
        return [_is_gone(kept, Role.HISTORY, tonight.commit) for kept in open_ones if kept.night < number]
    drift = find_drift(state.levels())
    if drift is None or not drift.is_alarm or drift.first == tonight.commit:
        return []
    if not history.is_ancestor(drift.first, tonight.commit):
        return []
    return [Comparison(Role.HISTORY, drift.first, tonight.commit)]


def _is_worse(seen: Seen) -> bool:
    return seen.standing is Standing.WORSE and not seen.is_intended


# ---- the end ------------------------------------------------------------------------------------------------------


def _finish(state: WatchState, night: Night, good: str) -> Finish:
    last = {_subject(seen): idx for idx, seen in enumerate(night.seen)}
    final = [seen for idx, seen in enumerate(night.seen) if last[_subject(seen)] == idx]
    counted = [seen for seen in final if seen.comparison.role is not Role.SECOND or _is_worse(seen)]
    main = [seen for seen in counted if seen.comparison.role in (Role.NEWEST, Role.FIXED)]
    if any(_is_worse(seen) for seen in counted):
        status = 5
    elif any(seen.standing is Standing.UNTESTABLE for seen in counted):
        status = 1
    elif any(seen.standing is Standing.UNCLEAR for seen in main) or state.open(FindingKind.DRIFT):
        status = 3
    else:
        status = 0
    return Finish(status, _say(night, good, counted))


def _subject(seen: Seen) -> Comparison:
    """Return what a comparison was about: of several that tell more and more of one thing the last one counts."""
    return replace(seen.comparison, is_ends_only=True, meant=())


def _say(night: Night, good: str, counted: list[Seen]) -> str:
    """Return the night in a sentence or two."""
    if not counted and night.level is not None:
        return f"{night.commit[:8]} repeats itself and is taken as the first good commit."
    if not counted:
        return f"Nothing new: {good[:8]} is the newest commit, and it is the last good one."
    order = {Standing.WORSE: 0, Standing.UNTESTABLE: 1, Standing.UNCLEAR: 2, Standing.SAME: 3}
    worst = min(counted, key=lambda seen: order[seen.standing] if not seen.is_intended else 3)
    return worst.summary
