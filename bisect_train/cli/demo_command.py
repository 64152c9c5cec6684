"""`bisect-train demo`: a real bisection on an embedded example."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asked import Asked, split_options
from bisect_train.cli.asking import ask_question, range_of
from bisect_train.cli.desk import open_desk
from bisect_train.cli.driving import start_bisection
from bisect_train.cli.options import output_options
from bisect_train.cli.planning import title_of
from bisect_train.core.errors import InputError
from bisect_train.demo import build

STEPS = 40


@click.command("demo")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="Where to put the example [default: a temporary folder]."
)
@output_options
def command(folder: Path | None, **values: Any) -> int:
    """Build a repository of sixty ordinary commits in which one made training worse, and find it.

    A small character language model is trained on English text that every Python carries. The culprit hides in a refactor;
    several harmless commits change the numbers a little.

    \b
    Examples:
      bisect-train demo
      bisect-train demo --dir /tmp/charlm --out report/
    """
    _, output, _ = split_options(values)
    place = folder or Path(tempfile.mkdtemp(prefix="bisect-train-demo-")) / "charlm"
    try:
        example = build(place)
    except FileExistsError:
        raise InputError(f"{place} is not empty", hint="--dir takes a folder that does not exist yet") from None
    if not output.quiet:
        click.echo(f"example repository: {place}", err=True)
        shown = (
            f"bisect-train run --good {example.good[:8]} --bad {example.bad[:8]} --steps {STEPS} -- {' '.join(example.command)}"
        )
        click.echo(f"same as: cd {place} && {shown}", err=True)
    asked = Asked(command=example.command, repo=place, steps=STEPS, warm=True, early=True)  # as `run` does
    with open_desk() as desk:
        repository = Repository.open(place, home=desk.home)
        commits = range_of(repository, (example.good,), example.bad, asked)
        question = ask_question(asked, repository, kind="run", commits=commits)
        space = build_space(repository, question)
        return start_bisection(desk, question, space, title=title_of(question, space), output=output)
