"""`bisect-train show`: output, stacks and fingerprint of a probe."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console, write_text
from bisect_train.cli.desk import open_desk
from bisect_train.coordinator.event_log import read_probe
from bisect_train.core.secrets import mask_text
from bisect_train.report.probe_view import render_probe
from bisect_train.report.triage_json import triage_to_json
from bisect_train.report.triage_parts import TriagePart
from bisect_train.report.wire import clean_json
from bisect_train.store.contract import StoredProbe


@click.command("show")
@click.argument("probe")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Rank whose steps are shown.")
@click.option("--log", "with_log", is_flag=True, help="The program's output too (its last 16,000 characters).")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Write everything here.")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(probe: str, rank: int, with_log: bool, json_path: Path | None, no_color: bool) -> int:
    """Show what a probe recorded and how it ended; PROBE is the beginning of its key (`log` and reports show keys).

    \b
    Examples:
      bisect-train show 1f3c
      bisect-train show 1f3c --log
    """
    with open_desk() as desk:
        found = read_probe(desk.store, probe)
    make_console(Output(no_color=no_color)).print(render_probe(found, rank=rank, with_log=with_log))
    write_probe(found, json_path)
    return 0


def shown_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored of a run for a reader: secrets in its config are hidden."""
    return {**spec, "config": mask_text(str(spec["config"]))} if spec.get("config") else spec


def write_probe(probe: StoredProbe, path: Path | None, *, triage: TriagePart | None = None) -> None:
    """Write everything that is known of a probe as JSON, if a place was named."""
    if path is not None:
        data = {"key": probe.key, "spec": shown_spec(probe.spec), "result": asdict(probe.result)}
        data |= {"triage": clean_json(triage_to_json(triage))} if triage is not None else {}
        write_text(path, json.dumps(data, indent=1) + "\n")
