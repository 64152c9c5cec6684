"""What the live view knows, and the picture of it: values in, rich renderables out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_train.core.changes import Change, Point
from bisect_train.report.live_rest import list_activities, say_rest
from bisect_train.report.words import label_change, name_change, say_count, say_number, say_seconds, say_share, stands_out
from bisect_train.search.belief import credible_changes
from bisect_train.search.remaining import runs_left
from bisect_train.search.terms import Phase, Plan
from bisect_train.verdict.outcome import Observation

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*#%"
CREDIBLE_MASS = 0.99
MAX_IN_FLIGHT = 8
NUM_DURATIONS = 20  # of the last runs, which tell how long one takes
PHASE_WORDS = {
    Phase.ENDS: "comparing the good end and the bad end",
    Phase.BASE: "testing the merge base of the two ends",
    Phase.SEARCH: "searching the change",
    Phase.PROOF: "proving the answer with fresh runs",
    Phase.PARTNER: "looking for the change that must come with it",
    Phase.REST: "looking at the rest of the range",
    Phase.DONE: "done",
}


@dataclass(slots=True)
class InFlight:
    """A running probe."""

    what: str
    phase: str
    step: int = 0
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished probe in words."""

    what: str
    value: str
    verdict: str
    cost: str


@dataclass(slots=True)
class LiveState:
    """All that the picture shows."""

    changes: Sequence[Change]
    is_ascii: bool = False
    plan: Plan | None = None
    num_probes: int = 0
    num_reused: int = 0
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    finished: list[Finished] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    runs_at: dict[Point, list[Observation]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    slots: int = 1
    gpus: float = 0.0
    durations_s: list[float] = field(default_factory=list)

    def say_left(self) -> str:
        """Return about how many runs, how much time and how many GPU-hours are still to come; "" if unknown."""
        num = runs_left(self.plan, len(self.changes)) if self.plan is not None else 0
        if not num or not self.durations_s:
            return ""
        usual_s = median(self.durations_s[-NUM_DURATIONS:])
        at_once = max(1, min(num, self.slots))
        hours = f", {num * usual_s * self.gpus / 3600:.2g} GPU-hours" if self.gpus else ""
        return f"about {say_count(num, 'run')} and {say_seconds(math.ceil(num / at_once) * usual_s)}{hours} to come"

    def take_activities(self) -> list[str]:
        """Return what the phase REST has newly begun to look at; each line once."""
        lines = list_activities(self.plan, self.changes) if self.plan is not None else ()
        new = [line for line in lines if line not in self.told]
        self.told.update(new)
        return new

    def credible(self) -> list[int]:
        """Return the changes (indices) that hold 99 % of the belief; all of them before the search."""
        if self.plan is None or not self.plan.posterior:
            return list(range(len(self.changes)))
        return credible_changes(np.asarray(self.plan.posterior), mass=CREDIBLE_MASS)

    @property
    def num_left(self) -> int:
        """Number of credible changes."""
        return len(self.credible())

    def say_range(self) -> str:
        """Return the first and the last credible change in words."""
        left = self.credible()
        if not left:
            return "none"
        first, last = (self.changes[idx] for idx in (left[0], left[-1]))
        if len(left) == 1:
            return name_change(first)
        return f"{label_change(first, width=28)} .. {label_change(last, width=28)}"


def say_phase(plan: Plan, changes: Sequence[Change]) -> str:
    """Return the beginning of a phase as one line."""
    if plan.phase is Phase.REST:
        return say_rest(plan, changes)
    text = PHASE_WORDS[plan.phase]
    if plan.phase is Phase.SEARCH:
        return f"{text} among {say_count(len(changes), 'change')}: {plan.ends.reason}"
    if plan.candidate is not None and plan.phase in (Phase.PROOF, Phase.PARTNER):
        return f"{text}: {name_change(changes[plan.candidate])}"
    return text


def draw_strip(posterior: Sequence[float], *, width: int, is_ascii: bool = False) -> str:
    """Return one character per change, or per bin of changes where they are more than `width`; taller is more probable."""
    num_bins = min(width, len(posterior))
    if num_bins < 1:
        return ""
    edges = [round(idx * len(posterior) / num_bins) for idx in range(num_bins + 1)]
    # the largest of a bin, not the sum: bins of 3 changes do not stand out from bins of 2
    bins = [max(posterior[edges[idx] : edges[idx + 1]]) for idx in range(num_bins)]
    blocks, top = ASCII_BLOCKS if is_ascii else BLOCKS, max(bins) or 1.0
    # a bin with any belief worth a percent of the top one is seen
    heights = [0 if value < 0.01 * top else max(1, round(value / top * (len(blocks) - 1))) for value in bins]
    return "".join(blocks[height] for height in heights)


def draw_state(state: LiveState, *, elapsed_s: float, width: int) -> RenderableType:
    """Return the picture."""
    plan = state.plan
    counters = f"{say_count(state.num_probes, 'probe')} run, {state.num_reused} reused, {say_seconds(elapsed_s)}"
    counters += f"; {left}" if (left := state.say_left()) else ""
    phase = say_phase(plan, state.changes) if plan is not None else "starting"
    parts: list[RenderableType] = [Text(f"{phase[0].upper()}{phase[1:]}", style="bold", no_wrap=True, overflow="ellipsis")]
    activities = list_activities(plan, state.changes) if plan is not None else ()
    parts += [Text(f"  {text}", no_wrap=True, overflow="ellipsis") for text in activities]
    parts += [Text(text, style="yellow") for text in state.warnings]
    parts.append(Text(counters, style="dim"))
    if plan is not None and plan.posterior:
        parts += _belief(state, plan, width=width)
    if state.in_flight:
        parts += [Text("Running", style="bold"), _running(state)]
    if state.finished:
        parts += [Text("Finished", style="bold"), _finished(state)]
    return Group(*parts)


def _belief(state: LiveState, plan: Plan, *, width: int) -> list[RenderableType]:
    strip = draw_strip(plan.posterior, width=max(10, width - 4), is_ascii=state.is_ascii)
    best = max(range(len(plan.posterior)), key=lambda idx: plan.posterior[idx])
    most = f"most probable: {name_change(state.changes[best], width=40)}, {say_share(plan.posterior[best])}"
    if not stands_out(plan.posterior):
        most = f"most probable: none stands out, {say_share(plan.posterior[best])} at most"
    left = f"{state.num_left} of {say_count(len(state.changes), 'change')} left: {state.say_range()}"
    return [
        Text(left, no_wrap=True, overflow="ellipsis"),
        Text(f"|{strip}|", style="cyan", no_wrap=True),
        Text(most, no_wrap=True, overflow="ellipsis"),
    ]


def _running(state: LiveState) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for probe in list(state.in_flight.values())[:MAX_IN_FLIGHT]:
        step = f"step {probe.step}" if probe.step else probe.phase
        loss = f"loss {say_number(probe.loss)}" if probe.loss is not None else ""
        table.add_row(Text(f"  {probe.what}"), step, loss)
    left = len(state.in_flight) - MAX_IN_FLIGHT
    return Group(table, Text(f"  and {left} more")) if left > 0 else table


def _finished(state: LiveState) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for done in state.finished:
        table.add_row(Text(f"  {done.what}"), Text(done.value), done.verdict, Text(done.cost))
    return table
