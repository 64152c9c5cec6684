"""The nightly log as the first page shows it: one state a night, the metric of its newest commit, what was said."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bisect_train.changes.plumbing import decode
from bisect_train.changes.repository import Repository
from bisect_train.core.errors import BisectTrainError
from bisect_train.nightly.finding import FindingKind, FindingState
from bisect_train.nightly.state import OVER, Night, WatchState, read_state
from bisect_train.nightly.terms import Kept, Level, Standing
from bisect_train.service.pages import contract
from bisect_train.store.nightly_contract import NightlyLog, StoredWatch

MAX_NIGHTS = 400
FRESH_S = 5.0
_KINDS = {
    FindingKind.REGRESSION: "regression",
    FindingKind.DRIFT: "drift",
    FindingKind.UNTESTABLE: "untestable",
}
_ENDED = {0: "clean", 1: "untestable", 3: "unclear", 5: "regression"}


class Branches:
    """The watched branches, read at most every few seconds for all who look; thread-safe.

    Args:
        log: of the nights.
        home: folder for state.
    """

    def __init__(self, log: NightlyLog, *, home: Path) -> None:
        self._log = log
        self._home = home
        self._guard = threading.Lock()
        self._read_t: float | None = None
        self._branches: tuple[contract.WatchedBranch, ...] = ()

    def __call__(self) -> Sequence[contract.WatchedBranch]:
        """Return all watched branches."""
        with self._guard:
            if self._read_t is None or time.monotonic() - self._read_t > FRESH_S:
                self._branches = read_branches(self._log, home=self._home)
                self._read_t = time.monotonic()
            return self._branches


def read_branches(log: NightlyLog, *, home: Path) -> tuple[contract.WatchedBranch, ...]:
    """Return all watched branches with their newest nights."""
    return tuple(read_branch(watch, read_state(log.events(watch.name)), home=home) for watch in log.watches())


def read_branch(watch: StoredWatch, state: WatchState, *, home: Path) -> contract.WatchedBranch:
    """Return one watched branch; subjects of commits are read where its repository is still there."""
    nights = state.nights[-MAX_NIGHTS:]
    repo = str(watch.about.get("root", ""))
    subjects = _read_subjects(repo, [night.commit for night in nights], home=home)
    level = next((night.level for night in reversed(nights) if night.level), None)
    return contract.WatchedBranch(
        name=watch.name,
        repo=repo,
        branch=str(watch.about.get("branch", "")),
        metric=level.metric if level else "metric",
        unit=level.unit if level else "",
        better="higher" if level and level.sign < 0 else "lower",
        last_good=state.goods[-1] if state.goods else "",
        nights=tuple(_read_night(night, state, subjects, level) for night in nights),
        open_findings=tuple(f"{kept.finding.title}: {kept.finding.summary}" for kept in _open(state)),
    )


def _open(state: WatchState) -> list[Kept]:
    return [kept for kept in state.findings.values() if kept.finding.state not in OVER]


def _read_night(night: Night, state: WatchState, subjects: Mapping[str, str], newest: Level | None) -> contract.Night:
    # values on another scale (metric, rung, machine) are not comparable: they are said, not drawn
    level = night.level if night.level and newest and night.level.scale == newest.scale else None
    values = list(level.values.values()) if level else []
    mean = math.fsum(values) / len(values) if values else None
    return contract.Night(
        commit=night.commit,
        subject=subjects.get(night.commit, ""),
        time_s=night.begun_s,
        mean=mean,
        sd=_spread(values) if len(values) > 1 else None,
        num=len(values),
        state=_state_of(night, state),
        said=night.summary,
        bisection_id=next((seen.bisection for seen in reversed(night.seen) if seen.bisection), ""),
    )


def _spread(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _state_of(night: Night, state: WatchState) -> str:
    """Return the most telling thing of a night: what was found, else what was mended or meant, else how it ended."""
    told = [(state.findings[name].finding.kind, how) for name, how in night.findings if name in state.findings]
    for kind, name in _KINDS.items():
        if any(found is kind and how not in OVER for found, how in told):
            return name
    if any(how is FindingState.INTENDED for _, how in told) or any(seen.is_intended for seen in night.seen):
        return "intended"
    if any(how is FindingState.CLOSED for _, how in told):
        return "fixed"
    if night.exit_status is None:
        return "unfinished"
    if any(seen.standing is Standing.UNTESTABLE for seen in night.seen):
        return "untestable"
    return _ENDED.get(night.exit_status, "unclear")


def _read_subjects(repo: str, commits: Sequence[str], *, home: Path) -> dict[str, str]:
    """Return the subjects of commits, of those that can be read."""
    if not repo or not commits:
        return {}
    try:
        git = Repository.open(Path(repo), home=home).git
    except BisectTrainError:
        return {}
    named = "\n".join(dict.fromkeys(commits)) + "\n"
    shown = git.attempt("log", "--no-walk=unsorted", "--ignore-missing", "--format=%H %s", "--stdin", stdin=named.encode())
    pairs = (line.partition(" ") for line in decode(shown.stdout).split("\n") if line)
    return {commit: subject for commit, _, subject in pairs}
