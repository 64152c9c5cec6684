"""Where a watch stands and its nights, for a terminal."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from bisect_train.nightly.state import Night, WatchState
from bisect_train.nightly.view import level_to_json
from bisect_train.report.words import say_spread, shorten

HEADLINES = {0: "NO REGRESSION", 1: "COULD NOT BE TESTED", 3: "CANNOT TELL", 5: "WORSE"}


def table_of_nights(state: WatchState) -> RenderableType:
    """Return the nights of a watch, the oldest first: when, commit, metric with its spread, what was found."""
    table = Table(box=None, pad_edge=False)
    for name in ("night", "begun", "commit", "metric", "outcome", "found"):
        table.add_column(name, no_wrap=name in ("night", "begun", "commit"), overflow="fold")
    for night in state.nights:
        table.add_row(*(escape(text) for text in _row_of(night, state)))
    return table if table.row_count else "no night has begun yet"


def _row_of(night: Night, state: WatchState) -> tuple[str, ...]:
    begun = datetime.datetime.fromtimestamp(night.begun_s).strftime("%Y-%m-%d %H:%M")
    metric = say_level(level_to_json(night.level)) if night.level else ""
    outcome = HEADLINES.get(night.exit_status, "").lower() if night.exit_status is not None else "cut short"
    found = "; ".join(f"{shown.value}: {state.findings[name].finding.title}" for name, shown in night.findings)
    return str(night.number), begun, night.commit[:8], metric, outcome, shorten(found, 200)


def say_level(level: Mapping[str, Any]) -> str:
    """Return the metric of a night in words."""
    return f"{level['metric']} {say_spread(level['mean'], level['sd'], level['num'], unit=level['unit'])}"


def lines_of_watch(data: Mapping[str, Any]) -> list[str]:
    """Return where a watch stands, in lines; `data` is `nightly.view.watch_to_json`."""
    lines = [f"{data['watch']}: branch {data['branch']} of {data['repo']}"]
    good, newest = data["last_good"], data["newest"]
    lines.append(f"  last good  {good[:12] if good else 'none'}")
    if newest:
        begun = datetime.datetime.fromtimestamp(newest["begun_s"]).strftime("%Y-%m-%d %H:%M")
        outcome = HEADLINES.get(newest["exit_status"], "").lower() or "cut short: the next night goes on"
        lines.append(f"  night {newest['night']}    {begun}, {newest['commit'][:12]}: {outcome}")
        lines += [f"             {newest['summary']}"] if newest["summary"] else []
    for finding in data["open"]:
        lines.append(f"  open       {finding['title']} (night {finding['night']}, bisection {finding['bisection'] or 'none'})")
    lines += [f"  intended   {item['commit'][:12]} {item['reason']}".rstrip() for item in data["expected"]]
    return lines
