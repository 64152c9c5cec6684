"""`bisect-train log`: what happened in a bisection, event by event, or its observations as a file to correct."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import rich_click as click

from bisect_train.cli.delivering import write_text
from bisect_train.cli.desk import find_stored, open_desk
from bisect_train.cli.observation_log import LogSource, write_log
from bisect_train.cli.reopening import reopen
from bisect_train.cli.show_command import shown_spec
from bisect_train.cli.terminal import say
from bisect_train.coordinator.event_log import problem_of, refuse
from bisect_train.coordinator.node_events import NODE_SUSPECT
from bisect_train.coordinator.person import REPLAYED
from bisect_train.coordinator.retelling import list_entries
from bisect_train.core.errors import InputError
from bisect_train.store.contract import UNDONE, StoredEvent

_SHOWN = ("point", "seed_idx", "repeat", "attempt", "commit", "verdict", "opened", "child", "max_probes", "gpu_hours", "reason")


@click.command("log")
@click.argument("bisection", default="last", metavar="[ID]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with all details.")
@click.option("--observations", is_flag=True, help="One line per run and mark instead, to correct and `replay`.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the observations here.")
def command(bisection: str, as_json: bool, observations: bool, out: Path | None) -> int:
    """Print what happened in a bisection, event by event; `bisect-train show KEY` shows one probe.

    With --observations, print its runs and marks as a text that `bisect-train replay` takes once it is corrected.

    \b
    Examples:
      bisect-train log
      bisect-train log 3f2a --json
      bisect-train log 3f2a --observations --out runs.txt
    """
    if observations and as_json:
        raise InputError("--observations and --json exclude each other", hint="`log --json` has every event")
    if observations:
        return _write_observations(bisection, out)
    if out is not None:
        raise InputError("--out is for --observations", hint="`bisect-train log > FILE` keeps the events")
    with open_desk() as desk:
        found = find_stored(desk.store, bisection).id
        damaged = [(event, problem) for event in desk.store.events(found) if (problem := _print_event(event, as_json=as_json))]
    if damaged:
        refuse(*damaged[0], bisection_id=found)
    return 0


def _write_observations(bisection: str, out: Path | None) -> int:
    with open_desk() as desk:
        opened = reopen(desk, bisection)
        entries = list_entries(desk.store, opened.stored.id, opened.question)
        source = LogSource(entries, opened.plan, opened.space, opened.question)
        text = write_log(opened.stored.id, opened.stored.title, source, marks=opened.state.marks)
    if out is None:
        click.echo(text, nl=False)
    else:
        write_text(out, text)
        click.echo(f"{len(entries)} observations: {out}; correct them, then `bisect-train replay {out}`")
    return 0


def _print_event(event: StoredEvent, *, as_json: bool) -> str:
    """Print an event; return why its data cannot be read, "" if it can."""
    problem = problem_of(event)
    say(_json_of(event, problem) if as_json else _line_of(event, problem))
    return problem


def _json_of(event: StoredEvent, problem: str) -> str:
    data = event.data
    if isinstance(data.get("spec"), dict):
        data = {**data, "spec": shown_spec(data["spec"])}
    shown = {"seq": event.seq, "kind": event.kind, "time_s": event.time_s, "data": data}
    return json.dumps({**shown, "problem": problem} if problem else shown)


def _line_of(event: StoredEvent, problem: str) -> str:
    clock = datetime.datetime.fromtimestamp(event.time_s).strftime("%H:%M:%S")
    if problem:
        return f"{event.seq:5d}  {clock}  {event.kind:<15}  cannot be read: {problem}"
    data = event.data
    spec = data["spec"] if isinstance(data.get("spec"), dict) else data
    shown = [str(data["key"])] if "key" in data else []
    shown += [f"{name}={spec[name]}" for name in _SHOWN if name in spec]
    shown += [f"{len(data['seqs'])} events taken back"] if event.kind == UNDONE else []
    shown += [f"of={data['of']}"] if event.kind == REPLAYED else []
    shown += [f"{data['why']}: {data['reason']}"] if event.kind == NODE_SUSPECT else []
    if event.kind == "finished":
        shown = [str((data.get("answer") or {}).get("summary", ""))]
    return f"{event.seq:5d}  {clock}  {event.kind:<15}  {'  '.join(shown)}"
