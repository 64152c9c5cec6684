"""`bisect-train report`: the verdict of a stored bisection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.cli.asked import split_options
from bisect_train.cli.delivering import deliver, deliver_as_stored, make_console
from bisect_train.cli.desk import open_desk
from bisect_train.cli.options import output_options
from bisect_train.cli.reopening import reopen, report_of
from bisect_train.cli.report_file import deliver_file, is_report_file
from bisect_train.cli.telling_options import markdown_option
from bisect_train.core.errors import InputError


@click.command("report")
@click.argument("bisection", default="last", metavar="[ID | FILE.json]")
@output_options
@markdown_option
def command(bisection: str, **values: Any) -> int:
    """Print the verdict of a stored bisection; with --out, write report.html, report.json and, where a
    commit was split, culprit.patch. Of a report.json that is named it prints what it says.

    \b
    Examples:
      bisect-train report
      bisect-train report 3f2a --out report/
      bisect-train report 3f2a --markdown verdict.md
      bisect-train report old/report.json
    """
    _, output, _ = split_options(values)
    if is_report_file(bisection):
        return deliver_file(Path(bisection), output)
    with open_desk() as desk:
        reopened = reopen(desk, bisection)
        if reopened.plan.answer is None and reopened.stored.answer is not None:
            return deliver_as_stored(desk, reopened.stored, make_console(output), output=output)
        if reopened.plan.answer is None:
            name = reopened.stored.id
            raise InputError(f"bisection {name} has no answer yet", hint=f"`bisect-train resume {name}` goes on")
        return deliver(report_of(desk, reopened), make_console(output), output=output)
