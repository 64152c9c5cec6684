"""The outcome of a night, for a terminal and as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from rich.console import Console

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import deliver, make_console, write_text
from bisect_train.cli.nightly_tables import HEADLINES
from bisect_train.cli.terminal import say
from bisect_train.nightly.night import NightReport
from bisect_train.nightly.state import OVER, Night, WatchState
from bisect_train.nightly.terms import Kept, Standing, Tonight
from bisect_train.nightly.view import night_to_json
from bisect_train.report import ReportData

WORDS = {Standing.SAME: "no worse", Standing.WORSE: "worse", Standing.UNCLEAR: "unclear", Standing.UNTESTABLE: "untestable"}


def deliver_night(report: NightReport, tonight: Tonight, reports: Mapping[str, ReportData], *, output: Output) -> int:
    """Print a night's outcome, with the report of what it has found, and write the files asked for; return the exit status."""
    console = make_console(output)
    night = report.state.night
    assert night is not None
    _print_found(report, night, reports, console, output)
    again = " (this commit was answered before; --again compares anew)" if report.is_repeat else ""
    console.print(
        f"{HEADLINES.get(report.exit_status, 'ENDED')}: {tonight.branch} at {tonight.commit[:12]}{again}", markup=False
    )
    console.print(report.summary, markup=False)
    for seen in night.seen[1:] if not report.is_repeat else ():
        comparison = seen.comparison
        good = " with ".join(commit[:8] for commit in (comparison.good, *comparison.meant))
        console.print(f"{comparison.role.value}: {good}: {WORDS[seen.standing]}", markup=False)
    for kept in _open(report.state):
        console.print(f"open: {kept.finding.title} (night {kept.night}, bisection {kept.finding.bisection})", markup=False)
    goods = report.state.goods
    console.print(f"last good commit: {goods[-1][:12] if goods else 'none'}", markup=False)
    for problem in report.problems:
        say(problem, err=True)
    _write(report, tonight, night, output)
    return report.exit_status


def _print_found(
    report: NightReport, night: Night, reports: Mapping[str, ReportData], console: Console, output: Output
) -> None:
    """Print the reports of what was found tonight, and write them below --out."""
    if report.is_repeat:
        return
    for name, _ in night.findings:
        kept = report.state.findings[name]
        found = reports.get(kept.finding.bisection)
        if found is not None and kept.night == night.number:
            place = output.out / found.id if output.out else None
            deliver(found, console, output=replace(output, json=None, markdown=None, out=place))


def _write(report: NightReport, tonight: Tonight, night: Night, output: Output) -> None:
    data = {"schema": 1, "watch": tonight.watch, "branch": tonight.branch, "is_repeat": report.is_repeat}
    data |= night_to_json(night)
    data["last_good"] = report.state.goods[-1] if report.state.goods else None
    told = dict(night.findings)
    data["findings"] = [
        {**kept.finding.to_json(), "is_new": kept.finding.id in told and not report.is_repeat}
        for kept in report.state.findings.values()
        if kept.finding.state not in OVER or kept.finding.id in told
    ]
    data["problems"] = list(report.problems)
    text = json.dumps(data, indent=2) + "\n"
    if output.json is not None:
        write_text(output.json, text)
    if output.out is not None:
        write_text(output.out / "night.json", text)


def _open(state: WatchState) -> list[Kept]:
    return [kept for kept in state.findings.values() if kept.finding.state not in OVER]
