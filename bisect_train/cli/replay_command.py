"""`bisect-train replay`: a corrected observation log as a new bisection."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Output, split_options
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import Desk, open_desk
from bisect_train.cli.driving import drive_bisection, go_on_behind
from bisect_train.cli.marking import find_version
from bisect_train.cli.observation_log import LogSource, read_lines, read_log
from bisect_train.cli.options import output_options
from bisect_train.cli.reopening import Reopened, reopen
from bisect_train.coordinator.retelling import Retelling, list_entries, take_over
from bisect_train.core.errors import InputError
from bisect_train.report.standing import render_standing
from bisect_train.report.words import say_count, say_point


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("bisection", required=False, metavar="[ID]")
@click.option("--dry-run", is_flag=True, help="Say where the corrected log leads, and stop.")
@output_options
def command(file: Path, bisection: str | None, dry_run: bool, **values: Any) -> int:
    """Run a corrected observation log on to an answer, as a new bisection; the old one stays as it is.

    FILE comes from `log --observations`. Delete a line, call a run untestable, or add `mark COMMIT good|bad|untestable`.
    ID is the bisection that the log is about; by default the file says so.

    \b
    Examples:
      bisect-train log --observations --out runs.txt
      bisect-train replay runs.txt
      bisect-train replay runs.txt --dry-run
    """
    _, output, _ = split_options(values)
    read = read_lines(_read_text(file), str(file))
    with open_desk() as desk:
        if not read.bisection:
            rule = "a log says which bisection it is about in a line `bisection ID`"
            raise InputError(f"{file}: no such line; {rule}", hint="bisect-train log --observations --out FILE writes one")
        reopened = reopen(desk, bisection or read.bisection)
        repository = Repository.open(Path(reopened.question.repo), home=desk.home)
        entries = list_entries(desk.store, reopened.stored.id, reopened.question)
        source = LogSource(entries, reopened.plan, reopened.space, reopened.question)
        finder = partial(find_version, space=reopened.space, repository=repository)
        retelling = read_log(read, source, str(file), find_version=finder)
        if dry_run:
            return _print_plan(retelling, reopened, output)
        return _start(desk, retelling, reopened, output)


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InputError(f"cannot read {file}: {said}", hint="`bisect-train log --observations --out FILE` writes it") from None


def _say(retelling: Retelling) -> str:
    kept = say_count(len(retelling.kept), "observation")
    return (
        f"{kept} kept, {len(retelling.untestable)} untestable, {len(retelling.left_out)} left out, "
        f"{say_count(len(retelling.marks), 'mark')}"
    )


def _start(desk: Desk, retelling: Retelling, reopened: Reopened, output: Output) -> int:
    stored, question = reopened.stored, replace(reopened.question, part_of="")
    new = desk.store.create(question.to_json(), title=stored.title)
    with desk.store.lock(new):
        take_over(desk.store, new, source=stored.id, retelling=retelling)
    if not output.quiet:
        click.echo(f"replay of {stored.id}: {_say(retelling)}", err=True)
    status = drive_bisection(desk, new, question, reopened.space, output=output)
    return go_on_behind(desk, new, question, status, output=output)


def _print_plan(retelling: Retelling, reopened: Reopened, output: Output) -> int:
    console, space = make_console(output), reopened.space
    plan = retelling.state(reopened.state).plan(reopened.question, space)
    console.print(f"would replay {reopened.stored.id}: {_say(retelling)}", markup=False)
    console.print(render_standing(plan, space, num_probes=len(retelling.kept)), markup=False)
    if plan.answer is not None:
        console.print(f"answer    {plan.answer.status}: {plan.answer.reason}", markup=False)
    for request in plan.wanted:
        attempt = f", proof {request.attempt}" if request.attempt else ""
        repeat = f", repeat {request.repeat}" if request.repeat else ""
        console.print(f"next      {say_point(request.point, space)}, seed {request.seed_idx}{repeat}{attempt}", markup=False)
    return 0
