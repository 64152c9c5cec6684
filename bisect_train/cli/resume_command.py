"""`bisect-train resume`: go on with a stored bisection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import split_options
from bisect_train.cli.delivering import deliver, make_console
from bisect_train.cli.desk import Desk, find_bisection, open_desk, whole_of
from bisect_train.cli.driving import drive_bisection, go_on_behind
from bisect_train.cli.options import limit_options, output_options
from bisect_train.cli.reading import read_changes
from bisect_train.cli.reopening import Reopened, descents_of, reopen, report_of
from bisect_train.cli.telling import tell_answer
from bisect_train.cli.telling_options import telling_options
from bisect_train.coordinator.limits import change_limits, question_in_force
from bisect_train.store.contract import StoredBisection

OPEN = ("", "unfinished", "budget")
"""Of the search inside a change: not begun, stopped, or out of budget."""


@click.command("resume")
@click.argument("bisection", default="last", metavar="[ID]")
@limit_options
@click.option("--address", metavar="RAY", help="Ray cluster to join, where it is not the one of before [default: that one].")
@output_options
@telling_options
def command(
    bisection: str,
    max_probes: int | None,
    budget_gpu_hours: float | None,
    within: float | None,
    address: str | None,
    **values: Any,
) -> int:
    """Go on with a stored bisection; ID is the beginning of its id, or `last`.

    No finished probe is run again. A bisection that has its answer is reported, nothing is run. One inside a merge is gone on
    with as a part of the bisection that named the merge. One that ended because its budget was spent goes on with a larger
    --max-probes, --budget-gpu-hours or --within; these count all its probes and all its time, from before too.

    \b
    Examples:
      bisect-train resume
      bisect-train resume 3f2a --out report/
      bisect-train resume --max-probes 200
      bisect-train resume --address 10.0.0.9:6379
    """
    _, output, _ = split_options(values)
    with open_desk() as desk:
        stored = whole_of(desk.store, find_bisection(desk.store, bisection))
        question = question_in_force(desk.store, stored)
        limits = {"max_probes": max_probes, "gpu_hours": budget_gpu_hours, "wall_s": within}
        has_limits = any(limit is not None for limit in limits.values())
        if has_limits:
            with desk.store.lock(stored.id):
                question = change_limits(desk.store, stored.id, question, **limits)  # type: ignore[arg-type]
        if stored.status == "finished" and (answered := _answered(desk, stored, has_limits=has_limits)):
            report = report_of(desk, answered)
            status = deliver(report, make_console(output), output=output)
            tell_answer(desk, report, output.tell)
            return status
        question = question if address is None else replace(question, executor=address)
        repository = Repository.open(Path(question.repo), home=desk.home)
        with read_changes(repository, question, desk.home) as (space, executor):
            status = drive_bisection(desk, stored.id, question, space, output=output, executor=executor)
        return go_on_behind(desk, stored.id, question, status, output=output)


def _answered(desk: Desk, stored: StoredBisection, *, has_limits: bool) -> Reopened | None:
    """Return a bisection where nothing is left to run; new limits may let the inside of what it has named be searched."""
    reopened = reopen(desk, stored.id)
    is_open = has_limits and any(part.status in OPEN and not part.reason for part in descents_of(desk, reopened))
    return None if reopened.plan.answer is None or is_open else reopened
