"""`bisect-train resume`: go on with a stored bisection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.driving import (
    deliver,
    drive_bisection,
    find_bisection,
    make_console,
    open_desk,
    reopen,
    report_of,
    whole_of,
)
from bisect_train.cli.options import output_options, split_options
from bisect_train.core.question import Question


@click.command("resume")
@click.argument("bisection", default="last", metavar="[ID]")
@output_options
def command(bisection: str, **values: Any) -> int:
    """Go on with a stored bisection; ID is the beginning of its id, or `last`.

    No finished probe is run again. A bisection that has its answer is reported, nothing is run. One inside a merge is gone on
    with as a part of the bisection that named the merge.

    \b
    Examples:
      bisect-train resume
      bisect-train resume 3f2a --out report/
    """
    _, output, _ = split_options(values)
    with open_desk() as desk:
        stored = whole_of(desk.store, find_bisection(desk.store, bisection))
        if stored.status == "finished":
            reopened = reopen(desk, stored.id)
            if reopened.plan.answer is not None:
                return deliver(report_of(desk, reopened), make_console(output), output=output)
        question = Question.of_json(stored.question)
        space = build_space(Repository.open(Path(question.repo), home=desk.home), question)
        return drive_bisection(desk, stored.id, question, space, output=output)
