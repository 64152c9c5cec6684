"""`bisect-train log`: what happened in a bisection, event by event."""

from __future__ import annotations

import datetime
import json

import rich_click as click

from bisect_train.cli.driving import open_desk
from bisect_train.store.contract import StoredEvent


@click.command("log")
@click.argument("bisection", default="last", metavar="[ID]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with all details.")
def command(bisection: str, as_json: bool) -> int:
    """Print what happened in a bisection, event by event; `bisect-train show KEY` shows one probe.

    \b
    Examples:
      bisect-train log
      bisect-train log 3f2a --json
    """
    with open_desk() as desk:
        for event in desk.store.events(desk.store.load(bisection).id):
            click.echo(_json_of(event) if as_json else _line_of(event))
    return 0


def _json_of(event: StoredEvent) -> str:
    return json.dumps({"seq": event.seq, "kind": event.kind, "time_s": event.time_s, "data": event.data})


def _line_of(event: StoredEvent) -> str:
    clock = datetime.datetime.fromtimestamp(event.time_s).strftime("%H:%M:%S")
    data = event.data
    spec = data.get("spec") or data
    shown = [str(data["key"])] if "key" in data else []
    shown += [f"{name}={spec[name]}" for name in ("point", "seed_idx", "repeat", "attempt", "commit", "reason") if name in spec]
    if event.kind == "finished":
        shown = [str((data.get("answer") or {}).get("summary", ""))]
    return f"{event.seq:5d}  {clock}  {event.kind:<15}  {'  '.join(shown)}"
