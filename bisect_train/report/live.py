"""The live view of a running bisection: what is left of the range, probes in flight, the belief over the changes.

On a terminal a small picture that is redrawn; in a pipe or in CI one plain line per event that matters. It listens to the
coordinator and must never disturb it: a failure to draw ends the view, not the bisection.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.events import (
    CoordinatorEvent,
    MarkContradicted,
    PlanMade,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
    RungTaken,
)
from bisect_train.core.fingerprint import HANG_SIGNATURE, Ending
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question
from bisect_train.core.verdict import VerdictKind
from bisect_train.report.byperson import say_contradiction
from bisect_train.report.flaky import are_rates_compared, say_outcome, say_rate
from bisect_train.report.live_rest import ends_of_part
from bisect_train.report.live_state import Finished, InFlight, LiveState, draw_state, say_phase
from bisect_train.report.words import say_count, say_ending, say_number, say_point, say_seconds, shorten
from bisect_train.search.node_checks import NODE_CHECK
from bisect_train.search.terms import Phase, Plan, Request
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind

NUM_FINISHED = 5
SUBJECT_WIDTH = 44
REASON_WIDTH = 60
REFRESH_PER_S = 4.0
MIN_LIMIT_S, LIMIT_FACTOR = 30.0, 5.0
"""A time limit that is advised has so many seconds at least, and so many times what a run takes that ends well. Chosen."""
PROVING = (Phase.PROOF, Phase.PARTNER, Phase.REST)


class LiveView:
    """A listener for a coordinator's events, and the context in which it draws.

    Args:
        console: where to draw; plain lines if it is no terminal.
        space: the changes, for their names.
        question: the metric, for verdicts.
        quiet: draw nothing at all.
        earlier: what was observed before, where a bisection goes on.
        clock: seconds.
    """

    def __init__(
        self,
        console: Console,
        space: ChangeSpace,
        question: Question,
        quiet: bool = False,
        *,
        earlier: Iterable[Observation] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._space = space
        self._question = question
        self._clock = clock
        self._is_on = not quiet
        self._started_s = clock()
        is_ascii = not console.encoding.lower().startswith("utf")
        self._state = LiveState(space.changes, is_ascii=is_ascii, gpus=question.gpus_of_probe)
        for seen in earlier:
            self._state.runs_at.setdefault(seen.point, []).append(seen)
        self._limit = LimitHint(question)
        self._live: Live | None = None
        self._guard = threading.Lock()  # rich draws in a thread of its own

    def __enter__(self) -> LiveView:
        """Begin to draw."""
        if self._is_on and self._console.is_terminal:
            self._live = Live(
                get_renderable=self._draw, console=self._console, refresh_per_second=REFRESH_PER_S, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop drawing; the picture goes, what it showed is in the report."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def __call__(self, event: CoordinatorEvent) -> None:
        """Take in one event; never raises."""
        if not self._is_on:
            return
        try:
            with self._guard:
                self._take(event)
        except Exception:  # a listener is an edge: the bisection goes on without a picture
            self._is_on = False

    def _draw(self) -> RenderableType:
        elapsed_s = self._clock() - self._started_s
        with self._guard:
            return draw_state(self._state, elapsed_s=elapsed_s, width=self._console.width)

    def _line(self, text: str) -> None:
        """Print one plain line where there is no picture."""
        if self._live is None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            self._console.file.flush()

    def _remark(self, text: str) -> None:
        self._state.warnings.append(text)
        self._line(f"  {text}")

    # ---- events --------------------------------------------------------------------------------------------------

    def _take(self, event: CoordinatorEvent) -> None:
        if isinstance(event, PlanMade):
            self._take_plan(event)
        elif isinstance(event, ProbeStarted):
            ahead = f" on {event.rung}" if event.rung else ""
            self._state.in_flight[event.key] = InFlight(self._say_run(event.request, width=0) + ahead, "starts")
        elif isinstance(event, ProbeMoved):
            self._take_progress(event)
        elif isinstance(event, ProbeDone):
            self._take_result(event)
        elif isinstance(event, MarkContradicted):
            self._remark(f"warning: {say_contradiction(event.found, self._space)}")
        elif isinstance(event, RungTaken):
            self._take_rung(event)
        else:
            self._take_loss(event)

    def _take_rung(self, event: RungTaken) -> None:
        """Begin anew on another rung; what it showed before is told again by its plan."""
        before = self._question.rung.name
        self._space, self._question = event.space, event.question
        self._limit = LimitHint(event.question)
        in_flight, finished, warnings = self._state.in_flight, self._state.finished, self._state.warnings
        self._state = LiveState(event.space.changes, is_ascii=self._state.is_ascii, gpus=event.question.gpus_of_probe)
        self._state.in_flight, self._state.finished, self._state.warnings = in_flight, finished, warnings
        self._line(f"{before}: {event.reason}; now probes of {event.question.rung.name}")

    def _take_plan(self, event: PlanMade) -> None:
        state, plan = self._state, event.plan
        is_new = state.plan is None or state.plan.phase is not plan.phase
        num_left = state.num_left
        num_before = num_fresh(state.plan) if state.plan is not None and not is_new else 0
        state.plan, state.num_probes, state.num_reused = plan, event.num_probes, event.num_reused
        state.slots = event.slots
        if is_new and plan.phase is not Phase.DONE:
            left = f" ({said})" if (said := state.say_left()) else ""
            self._line(f"{say_phase(plan, self._space.changes)}{left}")
        elif plan.phase is Phase.SEARCH and state.num_left < num_left:
            self._line(f"  {say_count(state.num_left, 'change')} left: {state.say_range()}")
        for line in state.take_activities():
            self._line(f"  {line}")
        if plan.phase in PROVING and num_fresh(plan) > num_before:
            self._line(f"  {say_count(num_fresh(plan), 'fresh run')} to come, unless fewer decide")

    def _take_progress(self, event: ProbeMoved) -> None:
        progress = event.progress
        probe = self._state.in_flight.get(progress.job_id)
        if probe is not None:
            probe.phase, probe.step, probe.loss = progress.phase, progress.step, progress.loss

    def _take_result(self, event: ProbeDone) -> None:
        seen, result = event.observation, event.result
        self._state.in_flight.pop(event.key, None)
        if not event.rung:
            self._state.runs_at.setdefault(seen.point, []).append(seen)
            self._state.durations_s += [] if event.is_reused else [result.wall_s]
        request = Request(seen.point, seen.seed_idx, seen.repeat, seen.attempt, seen.proof_of)
        time_text = "reused" if event.is_reused else say_seconds(result.wall_s)
        steps = say_count(result.fingerprint.num_steps, "step")
        shown = self._say_value(seen) or _say_why_not(seen, result.fingerprint.ending)
        done = Finished(self._say_run(request, width=0), shown, self._say_verdict(seen), f"{steps}  {time_text}")
        self._state.finished = [*self._state.finished[-(NUM_FINISHED - 1) :], done]
        verdict = f"  {done.verdict}" if done.verdict else ""
        ahead = f"  (on {event.rung}, the next rung)" if event.rung else ""
        self._line(f"  {self._say_run(request)}  {done.value}{verdict}  {done.cost}{ahead}")
        if said := self._limit.take(result):
            self._remark(said)

    def _take_loss(self, event: ProbeGone) -> None:
        self._state.in_flight.pop(event.key, None)
        if event.reason != "obsolete":
            self._line(f"  {self._say_run(event.request)}  {'lost' if event.key else 'cannot be built'}: {event.reason}")

    # ---- words ---------------------------------------------------------------------------------------------------

    def _say_run(self, request: Request, *, width: int = SUBJECT_WIDTH) -> str:
        again = f" again {request.repeat}" if request.repeat else ""
        again = " on another node" if request.part == NODE_CHECK else again
        return f"{say_point(request.point, self._space, width=width)}  seed {request.seed_idx}{again}"

    def _say_value(self, seen: Observation) -> str:
        if seen.outcome.is_early:
            return seen.outcome.reason
        if seen.outcome.kind is OutcomeKind.MEASURED and seen.outcome.value is not None:
            return f"{self._question.metric.name} {say_number(seen.outcome.value, unit=self._question.metric.unit)}"
        return ""

    def _say_verdict(self, seen: Observation) -> str:
        """Return what one run alone says, "" while the ends are open."""
        plan = self._state.plan
        if plan is None or plan.ends.status is not EndsStatus.SEPARATED:
            return ""
        if are_rates_compared(plan.ends):
            outcome = say_outcome(seen, plan.ends)
            return f"{outcome}, {say_rate(self._state.runs_at[seen.point], plan.ends)}" if outcome else ""
        verdict = judge_variant([seen], ends_of_part(plan, seen.part), self._question.metric).verdict
        # the ends' own runs on a proof's fresh seeds are not in yet: unlike both says nothing there
        return "" if seen.attempt > 0 and verdict is VerdictKind.OTHER else verdict.value


class LimitHint:
    """Says once, when a run has hung and another one has ended well, that a shorter time limit would do.

    Silent while a larger rung is left: the limit is that of all rungs, and runs of this one are shorter.
    """

    def __init__(self, question: Question) -> None:
        self._limit_s = question.settings.timeout_s
        self._is_on = question.is_last_rung
        self._healthy_s = 0.0
        self._has_hung = False
        self._is_said = False

    def take(self, result: ProbeResult) -> str:
        """Take a result; return what is to be said now, or ""."""
        ending = result.fingerprint.ending
        self._has_hung |= ending.signature == HANG_SIGNATURE
        if ending.is_healthy and result.fingerprint.early is None:
            self._healthy_s = max(self._healthy_s, result.wall_s)
        enough_s = max(MIN_LIMIT_S, 10.0 * math.ceil(LIMIT_FACTOR * self._healthy_s / 10.0))
        if not self._is_on or self._is_said or not (self._has_hung and self._healthy_s) or enough_s > self._limit_s / 2.0:
            return ""
        self._is_said = True
        return (
            f"note: each run that hangs takes the whole time limit of {say_seconds(self._limit_s)}, and one that ends well "
            f"{say_seconds(self._healthy_s)}: with `--timeout {enough_s:.0f}` the answer would come sooner"
        )


def num_fresh(plan: Plan) -> int:
    """Return how many runs of a proof a plan wants; while a partner is searched, all that it wants."""
    return sum(request.attempt > 0 or plan.phase is not Phase.REST for request in plan.wanted)


def _say_why_not(seen: Observation, ending: Ending) -> str:
    """Return why a run shows no value: how it ended, or where it ended well what was missing (`no value of val_loss`)."""
    outcome = seen.outcome
    if ending.is_healthy and outcome.kind is not OutcomeKind.MEASURED and outcome.reason:
        return shorten(outcome.reason.partition(" was seen")[0], REASON_WIDTH)
    return say_ending(ending)
