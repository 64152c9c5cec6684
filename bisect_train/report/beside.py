"""A run beside the curves of a recorded one: another machine, maybe another seed, so little is told from them."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_train.changes.run_history import Curve, RunHistory
from bisect_train.core.probe import ProbeResult
from bisect_train.report.words import say_count, say_number
from bisect_train.verdict.triage import curves_of_run

NUM_ROWS = 5
"""Steps that are shown: the first, the last, and some between."""


def render_beside(history: RunHistory, run: ProbeResult) -> RenderableType:
    """Return what the recorded run is, and both runs' numbers at a few of the steps that both have."""
    names = ", ".join(name if name == ours else f"{name} ({ours})" for ours, name in history.names.items())
    num_steps = len(set().union(*history.curves.values()))
    if history.counts_steps:
        said = (
            "It ran elsewhere, maybe with another seed: a flat loss, and gradients that vanish or explode beside it, are told."
        )
    else:
        said = "Its numbers may be logging calls or epochs, of several training steps each: nothing is told from them."
    head = Text(f"baseline {history.path}: {names} of {say_count(num_steps, 'step')}. {said}")
    mine = curves_of_run(run)
    shared = sorted(set().union(*((mine.get(ours, {}).keys() & curve.keys()) for ours, curve in history.curves.items())))
    if not shared:
        return Group(head, Text("The runs have no step in common that is written: nothing is compared."))
    return Group(head, Text(""), _table(history, mine, _some_of(shared)))


def _some_of(steps: list[int]) -> list[int]:
    if len(steps) <= NUM_ROWS:
        return steps
    return [steps[round(idx * (len(steps) - 1) / (NUM_ROWS - 1))] for idx in range(NUM_ROWS)]


def _table(history: RunHistory, mine: Mapping[str, Curve], steps: list[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    table.add_column("step", justify="right")
    for ours in history.curves:
        table.add_column(f"{ours} here", justify="right")
        table.add_column("there", justify="right")
    for step in steps:
        cells = [_cell(curve, step) for ours, theirs in history.curves.items() for curve in (mine.get(ours, {}), theirs)]
        table.add_row(str(step), *cells)
    return table


def _cell(curve: Curve, step: int) -> str:
    return say_number(curve[step]) if step in curve else "-"
