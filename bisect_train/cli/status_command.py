"""`bisect-train status`: where a bisection stands."""

from __future__ import annotations

import rich_click as click

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.cli.list_command import status_of
from bisect_train.cli.reopening import reopen
from bisect_train.coordinator import children_of
from bisect_train.coordinator.event_log import read_events
from bisect_train.report.standing import render_standing


@click.command("status")
@click.argument("bisection", default="last", metavar="[ID]")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(bisection: str, no_color: bool) -> int:
    """Say where a bisection stands: phase, range left, probes so far.

    \b
    Example:
      bisect-train status last
    """
    console = make_console(Output(no_color=no_color))
    with open_desk() as desk:
        reopened = reopen(desk, bisection)
        stored = reopened.stored
        console.print(f"bisection {stored.id}  {status_of(stored, desk.store)}", markup=False)
        console.print(stored.title, markup=False)
        console.print(render_standing(reopened.plan, reopened.space, num_probes=len(reopened.state.probes)), markup=False)
        for child in children_of(read_events(desk.store, stored.id)).values():
            part = reopen(desk, child)
            console.print(f"\n{part.stored.title}, bisection {child}  {status_of(part.stored, desk.store)}", markup=False)
            console.print(render_standing(part.plan, part.space, num_probes=len(part.state.probes)), markup=False)
        if status_of(stored, desk.store) in ("stopped", "interrupted", "cancelled", "changed"):
            console.print(f"`bisect-train resume {stored.id}` goes on", markup=False)
    return 0
