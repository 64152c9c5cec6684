"""An open finding that was fixed though an intended change keeps the branch worse: when it is worth a search. Pure."""

from __future__ import annotations

from bisect_train.nightly.state import WatchState
from bisect_train.nightly.terms import History, Kept, Level


def may_be_mended(state: WatchState, kept: Kept, history: History) -> bool:
    """Return whether what is left of a finding can be the worsening of an intended change.

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
