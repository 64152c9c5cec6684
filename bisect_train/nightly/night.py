"""One night of a watch: decide, compare, conclude, tell, until there is nothing left; killed anywhere, the next one goes on.

What is known lies in the watch's events alone. A step is concluded by one transaction, and messages are sent from the stored
events afterwards, so that a night that is started twice, late, or after a kill -9 gives the same findings, each told once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bisect_train.core.errors import BisectTrainError, InputError, InterruptedByUser, UnbuildableError
from bisect_train.nightly.concluding import conclude, conclude_first, update
from bisect_train.nightly.deciding import Finish, Note, TakeFirst, last_good, next_step
from bisect_train.nightly.finding import FindingKind
from bisect_train.nightly.outbox import Channel, Outbox
from bisect_train.nightly.reader import WatchReader
from bisect_train.nightly.state import Asking, Night, WatchState
from bisect_train.nightly.terms import Compared, Comparison, History, Level, Standing, Tonight
from bisect_train.store.nightly_contract import NightlyLog

MAX_STEPS = 100
"""Comparisons of a night at most; each leads to another one only where something was found."""


class Runner(Protocol):
    """Runs what a night wants to know."""

    def measure(self, commit: str) -> tuple[Level | None, str]:
        """Run a commit a few times, its first seed twice; return its level and what was seen, a sentence.

        Raises:
            MachineError: it does not run.
        """

    def ask(self, comparison: Comparison) -> str:
        """Store the bisection of a comparison, or find it where it was stored already; return its id.

        Raises:
            UnbuildableError: the intended changes cannot be put on top of an end.
        """

    def answer(self, comparison: Comparison, bisection: str) -> Compared:
        """Run or go on with a stored bisection to its answer.

        Raises:
            InterruptedByUser: somebody stopped it; the next night goes on.
            BisectTrainError: it cannot be run (now).
        """

    def look_again(self, comparison: Comparison, bisection: str) -> Compared | None:
        """Return what a stored bisection says today, None if it has no answer (any more); runs nothing."""


@dataclass(frozen=True, slots=True)
class NightReport:
    """How a night ended.

    Attributes:
        exit_status: of the command line.
        summary: a sentence or two.
        is_repeat: whether this very question was answered before, and nothing was run.
        state: of the watch.
        problems: a line for each place that could not be told.
    """

    exit_status: int
    summary: str
    is_repeat: bool
    state: WatchState
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Watchman:
    """What a night works with.

    Attributes:
        log: of the watches; the caller holds this one's lock.
        runner: compares commits.
        history: of the commits.
        channels: places that are told.
        clock: seconds since the epoch.
        say: told what the night does, for a person.
    """

    log: NightlyLog
    runner: Runner
    history: History
    channels: Sequence[Channel]
    clock: Callable[[], float]
    say: Callable[[str], None] = lambda text: None


def run_night(
    man: Watchman,
    tonight: Tonight,
    *,
    first_good: str = "",
    intended: Mapping[str, str] | None = None,
    is_forced: bool = False,
) -> NightReport:
    """Run a night to its end.

    Args:
        man: what it works with.
        tonight: what it is about; the watch is stored.
        first_good: commit that is good where no good one is known behind the newest, or "".
        intended: reason of each change that is intended, by commit; those that are known already stay as they are.
        is_forced: whether a question that was answered is asked again.
    Raises:
        InterruptedByUser: it was stopped; the next night goes on.
        InputError: no good commit lies behind the newest one, though there was one, or the named one does not.
        BisectTrainError: it cannot be run (now).
    """
    reader = WatchReader(man.log, tonight.watch)
    outbox = Outbox(man.log, tonight.watch, reader, man.channels)
    _note_intended(man, tonight, reader.state(), intended or {})
    outbox.flush()  # what a night that was killed had found, and not told
    if (asking := reader.state().asking) is not None:
        _go_on(man, tonight, reader.state(), asking)
    state = reader.state()
    is_known = answered(state, tonight) if not is_forced else None
    if is_known is not None:
        outbox.flush()
        assert is_known.exit_status is not None
        return NightReport(is_known.exit_status, is_known.summary, True, state, outbox.problems)
    _begin(man, tonight, state, first_good, is_forced=is_forced)
    _look_again(man, tonight, reader.state())
    end = _steps(man, tonight, reader, outbox)
    return NightReport(end.exit_status, end.summary, False, reader.state(), outbox.problems)


def _note_intended(man: Watchman, tonight: Tonight, state: WatchState, intended: Mapping[str, str]) -> None:
    known = state.expected
    new = [("expected", {"commit": commit, "reason": reason}) for commit, reason in intended.items() if commit not in known]
    if new:
        man.log.append(tonight.watch, new)


def answered(state: WatchState, tonight: Tonight) -> Night | None:
    """Return the newest night if it answers the same question, else None; what could not be tested is no answer."""
    night = state.night
    if night is None or night.exit_status is None or night.exit_status not in (0, 3, 5):
        return None
    is_same = (night.commit, night.asked, night.pinned) == (tonight.commit, tonight.asked, tonight.pinned)
    is_labelled = state.num_expected > night.num_expected
    return night if is_same and not is_labelled else None


def _begin(man: Watchman, tonight: Tonight, state: WatchState, first_good: str, *, is_forced: bool) -> None:
    """Begin a night, unless one of this question was cut short."""
    night = state.night
    if first_good and not last_good(state, tonight, man.history):
        if not man.history.is_ancestor(first_good, tonight.commit):
            message = f"--good {first_good[:12]} does not lie behind {tonight.branch} at {tonight.commit[:12]}"
            raise InputError(message, hint="name a commit that the branch is built on")
        man.log.append(tonight.watch, [("good", {"commit": first_good, "why": "--good"})])
    is_going_on = (
        night is not None
        and night.exit_status is None
        and (night.commit, night.asked, night.pinned) == (tonight.commit, tonight.asked, tonight.pinned)
    )
    if is_going_on and not is_forced:
        return
    number = night.number + 1 if night else 1
    begun = {"night": number, "commit": tonight.commit, "asked": tonight.asked, "pinned": tonight.pinned}
    man.log.append(tonight.watch, [("begun", begun)])


def _go_on(man: Watchman, tonight: Tonight, state: WatchState, asking: Asking) -> None:
    """Bring a bisection that was cut short to its answer; where that cannot be, it is asked anew."""
    man.say(f"going on with bisection {asking.bisection}, which was not finished")
    try:
        compared = man.runner.answer(asking.comparison, asking.bisection)
    except InterruptedByUser:
        raise
    except BisectTrainError as error:
        man.log.append(tonight.watch, [("abandoned", {"bisection": asking.bisection, "reason": error.message})])
        man.say(f"bisection {asking.bisection} cannot be gone on with: {error.message}")
        return
    _conclude(man, tonight, state, asking.comparison, compared)


def _look_again(man: Watchman, tonight: Tonight, state: WatchState) -> None:
    """Where a bisection was gone on with since and has proved more, its finding says so."""
    for kept in state.open(FindingKind.REGRESSION, FindingKind.DRIFT):
        if kept.finding.is_confirmed or not kept.finding.bisection:
            continue
        comparison = Comparison(kept.role, kept.finding.good, kept.finding.bad)
        compared = man.runner.look_again(comparison, kept.finding.bisection)
        if compared is not None and (events := update(kept, compared, now_s=man.clock())):
            man.log.append(tonight.watch, events)


def _steps(man: Watchman, tonight: Tonight, reader: WatchReader, outbox: Outbox) -> Finish:
    for _ in range(MAX_STEPS):
        state = reader.state()
        step = next_step(state, tonight, man.history, now_s=man.clock())
        if isinstance(step, Finish):
            ended = {"commit": tonight.commit, "exit_status": step.exit_status, "summary": step.summary}
            outbox.flush()
            man.log.append(tonight.watch, [("ended", ended)])
            return step
        if isinstance(step, Note):
            man.log.append(tonight.watch, step.events)
        elif isinstance(step, TakeFirst):
            _take_first(man, tonight, state)
        else:
            _compare(man, tonight, state, step)
        outbox.flush()
    raise RuntimeError(f"a night of {tonight.watch} found no end after {MAX_STEPS} steps")


def _take_first(man: Watchman, tonight: Tonight, state: WatchState) -> None:
    assert state.night is not None
    man.say(f"nothing was good yet: does {tonight.commit[:8]} repeat itself?")
    level, summary = man.runner.measure(tonight.commit)
    man.log.append(tonight.watch, conclude_first(tonight, level, summary, number=state.night.number))


def _compare(man: Watchman, tonight: Tonight, state: WatchState, comparison: Comparison) -> None:
    try:
        bisection = man.runner.ask(comparison)
    except UnbuildableError as error:
        _conclude(man, tonight, state, comparison, Compared("", Standing.UNTESTABLE, error.message))
        return
    man.log.append(tonight.watch, [("asked", {"comparison": comparison.to_json(), "bisection": bisection})])
    compared = man.runner.answer(comparison, bisection)
    _conclude(man, tonight, state, comparison, compared)


def _conclude(man: Watchman, tonight: Tonight, state: WatchState, comparison: Comparison, compared: Compared) -> None:
    man.log.append(tonight.watch, conclude(state, comparison, compared, tonight, man.history, now_s=man.clock()))
