"""Which results count: what is lost and run again, what another bisection may take over, what is no result at all. Pure."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Collection, Sequence

from bisect_train.core.errors import JudgeError
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import ProbeResult, RunSettings
from bisect_train.search.terms import Request
from bisect_train.verdict.outcome import JUDGE_LOST, Observation

JUDGE_NOT_STARTED = (126, 127)
NUM_LINES, MAX_LINE = 5, 200  # of what it printed
JUDGE_RULE = (
    "it runs in the checkout of each probe, and a relative path is relative to that; "
    "it exits 0 for good, 1 to 124 for bad, 125 for untestable"
)
# a program's own faults; any other signal comes from outside, and its probe is run again
OWN_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)
# the other endings depend on limits, memory and the machine's state, which are no part of a probe's identity
REUSABLE_ENDINGS = (EndingKind.STOPPED, EndingKind.FINISHED, EndingKind.CRASHED)


def why_lost(result: ProbeResult) -> str:
    """Return why a finished probe counts as lost at first (killed from outside, or its judge was), "" if it does not."""
    fingerprint = result.fingerprint
    ending = fingerprint.ending
    if ending.kind is EndingKind.KILLED and ending.signal not in OWN_SIGNALS:
        return f"killed by signal {ending.signal}"
    if fingerprint.judge is not None and fingerprint.judge.exit_status >= JUDGE_LOST:
        return f"the judging command ended with status {fingerprint.judge.exit_status}"
    return ""


def is_reusable(result: ProbeResult, settings: RunSettings) -> bool:
    """Return whether a result of another bisection, with the same probe key, can stand for a run of this one.

    The limit of time, resources and the need of a recorder are no part of a probe's key, so a timeout, an
    out-of-memory or a run without a recorder says nothing about a bisection with other ones. What was stopped early showed
    enough for the bisection that stopped it, and is no whole run.
    """
    fingerprint = result.fingerprint
    has_what_is_needed = bool(fingerprint.ranks) or not settings.needs_recorder
    if fingerprint.early is not None:  # no whole run
        return False
    return fingerprint.ending.kind in REUSABLE_ENDINGS and has_what_is_needed and not why_lost(result)


def is_contradicted(fresh: Observation, seen: Sequence[Observation], reused: Collection[Request]) -> bool:
    """Return whether a fresh repeat of a run shows other bits than the reused result of that very run."""
    if fresh.repeat == 0 or fresh.attempt > 0:
        return False
    first = Request(fresh.point, fresh.seed_idx)
    return first in reused and any(
        run.outcome != fresh.outcome
        for run in seen
        if (run.point, run.seed_idx, run.repeat, run.attempt) == (first.point, first.seed_idx, 0, 0)
    )


def has_foreign_judge(settings: RunSettings) -> bool:
    """Return whether a file outside the checkout judges: it may change between two bisections, unseen by the key."""
    return any(part.startswith("/") for part in settings.judge)


def refuse_missing_judge(result: ProbeResult, settings: RunSettings) -> None:
    """Raise JudgeError where the judging command could not be started."""
    judge = result.fingerprint.judge
    if judge is not None and judge.exit_status in JUDGE_NOT_STARTED:
        lines = [line.strip()[:MAX_LINE] for line in judge.output.splitlines() if line.strip()]
        said = f": {lines[0]}" if len(lines) == 1 else "".join(f"\n    {line}" for line in lines[-NUM_LINES:])
        raise JudgeError(
            f"the judging command {shlex.join(settings.judge)!r} could not be started (status {judge.exit_status}){said}",
            hint=JUDGE_RULE,
        )
