"""Where results go: the verdict on the terminal, the files that were asked for; the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click
from rich.console import Console

from bisect_train.cli.asked import Output
from bisect_train.cli.desk import Desk
from bisect_train.cli.terminal import SafeConsole
from bisect_train.coordinator.event_log import read_events
from bisect_train.core.errors import MachineError
from bisect_train.report import (
    ReportData,
    render_html,
    render_markdown,
    render_stored_markdown,
    render_text,
    report_to_json,
    smallest_patch,
)
from bisect_train.store.contract import StoredBisection

STDOUT = "-"


def make_console(output: Output) -> Console:
    """Return the console for results: no colours when asked, or when the output is no terminal."""
    return SafeConsole(no_color=output.no_color or None, highlight=False, soft_wrap=False)


def deliver(report: ReportData, console: Console, *, output: Output) -> int:
    """Print the verdict and write the files that were asked for; return the exit status."""
    if output.markdown is not None:
        _write_markdown(render_markdown(report), output.markdown)
    if output.markdown != STDOUT:
        console.print(render_text(report))
    data = report_to_json(report)
    if output.json is not None:
        write_text(output.json, json.dumps(data, indent=2) + "\n")
    if output.out is not None:
        write_text(output.out / "report.json", json.dumps(data, indent=2) + "\n")
        write_text(output.out / "report.html", render_html(report))
        if patch := smallest_patch(report):
            write_bytes(output.out / "culprit.patch", patch.encode("utf-8", "surrogateescape"))
        if not output.quiet and output.markdown != STDOUT:
            console.print(f"report: {output.out / 'report.html'}", markup=False, soft_wrap=True)
    return report.exit_status


def deliver_as_stored(desk: Desk, stored: StoredBisection, console: Console, *, output: Output) -> int:
    """Print an answer that an earlier version of the tool gave and that today's rules would want more runs for."""
    answer = stored.answer or {}
    if output.markdown is not None:
        _write_markdown(render_stored_markdown(answer), output.markdown)
    console.print(answer.get("summary", ""), markup=False)
    console.print(
        f"(answered by an earlier version; `bisect-train resume {stored.id}` adds what today's rules ask for)", markup=False
    )
    for place in (output.json, output.out and output.out / "report.json"):
        if place:
            write_text(place, json.dumps(answer, indent=2) + "\n")
    finished = read_events(desk.store, stored.id, kinds=("finished",))
    return int(finished[-1].data.get("exit_status", 0)) if finished else 0


def _write_markdown(text: str, place: str) -> None:
    if place == STDOUT:
        click.echo(text)
    else:
        write_text(Path(place), text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place and rename it. Raises MachineError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file beside its place and rename it. Raises MachineError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".tmp")
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}", hint="choose another place with --json or --out") from None
