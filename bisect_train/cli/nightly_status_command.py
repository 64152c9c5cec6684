"""`bisect-train nightly status`: where the watched branches stand."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console, write_text
from bisect_train.cli.desk import open_desk
from bisect_train.cli.nightly_desk import open_log
from bisect_train.cli.nightly_tables import lines_of_watch
from bisect_train.nightly.state import read_state
from bisect_train.nightly.view import watch_to_json


@click.command("status")
@click.argument("watch", required=False)
@click.option("--json", "place", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it as JSON.")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(watch: str | None, place: Path | None, no_color: bool) -> int:
    """Show where the watches stand, or one WATCH: last good commit, newest night, open findings, intended changes.

    \b
    Examples:
      bisect-train nightly status
      bisect-train nightly status trainer-main --json status.json
    """
    console = make_console(Output(no_color=no_color))
    with open_desk() as desk:
        log = open_log(desk)
        watches = [log.watch(watch)] if watch else log.watches()
        found = [watch_to_json(item, read_state(log.events(item.name))) for item in watches]
    for data in found:
        for line in lines_of_watch(data):
            console.print(line, markup=False, soft_wrap=True)
    if not found:
        console.print("no branch is watched yet: `bisect-train nightly --branch NAME` begins")
    if place is not None:
        write_text(place, json.dumps({"schema": 1, "watches": found}, indent=2) + "\n")
    return 0
