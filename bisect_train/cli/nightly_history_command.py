"""`bisect-train nightly history`: the nights of a watch."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console, write_text
from bisect_train.cli.desk import open_desk
from bisect_train.cli.nightly_desk import open_log, pick_watch
from bisect_train.cli.nightly_tables import table_of_nights
from bisect_train.nightly.state import read_state
from bisect_train.nightly.view import history_to_json, told_to_json


@click.command("history")
@click.argument("watch", required=False)
@click.option("--json", "place", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it as JSON.")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(watch: str | None, place: Path | None, no_color: bool) -> int:
    """Show the nights of a watch: commit, metric with its spread over seeds, outcome, what was found.

    WATCH can be left out where there is only one.

    \b
    Examples:
      bisect-train nightly history
      bisect-train nightly history trainer-main --json history.json
    """
    console = make_console(Output(no_color=no_color))
    with open_desk() as desk:
        log = open_log(desk)
        found = pick_watch(log, watch)
        events = log.events(found.name)
    state = read_state(events)
    console.print(table_of_nights(state))
    if place is not None:
        data = {**history_to_json(found, state), "told": told_to_json(events)}
        write_text(place, json.dumps(data, indent=2) + "\n")
    return 0
