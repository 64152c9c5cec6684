"""An open finding that was fixed though an intended change keeps the branch worse: how that is seen. Pure.

The commit before the finding is no measure then: the newest one is worse than it, and is meant to be. What it should be like is
the commit before the culprit *with the intended changes on top*, a state that nobody committed. Two comparisons, ends only:

    measure  that state against the culprit with the same changes on top: it must be worse. Otherwise the state shows nothing of
             the finding (the changes hide it, or do not work there), and nothing may be closed by it
    fixed    that state against the newest commit: if it is no worse, what was found is gone, and what is left is meant

Where that state cannot be built (a conflict), or no commit is proved, a search may say that what is left is an intended change.
"""

from __future__ import annotations

from dataclasses import replace

from bisect_train.nightly.state import Night, WatchState
from bisect_train.nightly.terms import Comparison, History, Kept, Level, Role, Standing

_SETTLED = (Standing.SAME, Standing.WORSE)


def comparisons_of_mending(state: WatchState, night: Night, kept: Kept, history: History) -> list[Comparison]:
    """Return what shows whether what is left of a finding is meant, as far as it is known now.

    Args:
        state: of the watch.
        night: the newest one; its commit is worse than the commit before the finding.
        kept: the open finding.
        history: of the commits.
    """
    ends_only = Comparison(Role.FIXED, kept.before, night.commit, finding=kept.finding.id, is_ends_only=True)
    search = [replace(ends_only, is_ends_only=False)] if may_be_mended(state, kept, history) else []
    meant = meant_since(state, kept, night.commit, history)
    culprit = culprit_of(kept)
    if not meant or not culprit:
        return search
    measure = replace(ends_only, role=Role.MEASURE, bad=culprit, meant=meant)
    number, standing = state.measured.get((night.asked, measure), (0, None))
    if standing is None or (standing not in _SETTLED and number != night.number):
        return [measure]
    if standing is not Standing.WORSE:
        return search
    fixed = replace(ends_only, meant=meant)
    seen = night.find(fixed)
    return [fixed] if seen is None or seen.standing in _SETTLED else [fixed, *search]


def culprit_of(kept: Kept) -> str:
    """Return the one commit that a finding is proved to be, "" without one."""
    named = kept.finding.culprits
    return named[0].id if len(named) == 1 and named[0].kind == "commit" and kept.finding.is_confirmed else ""


def meant_since(state: WatchState, kept: Kept, newest: str, history: History) -> tuple[str, ...]:
    """Return the intended changes that the newest commit has and the commit before a finding has not, in their order."""
    found: list[str] = []
    for commit in state.expected:
        is_since = history.is_ancestor(commit, newest) and not history.is_ancestor(commit, kept.before)
        if is_since and all(commit != item.id for item in kept.finding.culprits):
            later = next((idx for idx, other in enumerate(found) if history.is_ancestor(commit, other)), len(found))
            found.insert(later, commit)
    return tuple(found)


def may_be_mended(state: WatchState, kept: Kept, history: History) -> bool:
    """Return whether a search can show that what is left of a finding is the worsening of an intended change.

    Such a change must have come since the commit before the finding, and the newest commit must be better than a commit of an
    earlier night that had the finding.
    """
    night = state.nights[-1]
    is_behind = any(
        commit != kept.before and history.is_ancestor(kept.before, commit) and history.is_ancestor(commit, night.commit)
        for commit in state.expected
    )
    since = [item.level for item in state.nights[:-1] if item.number >= kept.night and item.level]
    return is_behind and night.level is not None and any(_is_better(night.level, level) for level in since)


def _is_better(new: Level, old: Level) -> bool:
    """Return whether a level is better on each seed that both have, by the smallest effect that counts on average."""
    gains = [new.sign * (old.values[idx] - value) for idx, value in new.values.items() if idx in old.values]
    if new.scale != old.scale or not gains:
        return False
    return min(gains) > 0.0 and sum(gains) / len(gains) >= max(new.min_effect, old.min_effect)
