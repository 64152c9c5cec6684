"""`bisect-train diff`: list the changes between two ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asking import range_of
from bisect_train.cli.driving import make_console, open_desk
from bisect_train.cli.options import Output, range_options, split_options
from bisect_train.cli.planning import config_files, count_changes, print_changes
from bisect_train.core.probe import Rung, RunSettings
from bisect_train.core.question import Question


@click.command("diff")
@click.option("--good", "goods", multiple=True, required=True, metavar="REV", help="Known-good revision; may be repeated.")
@click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="Known-bad revision.")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here].")
@click.option("--good-config", type=click.Path(path_type=Path), metavar="FILE", help="Config of the good end.")
@click.option("--bad-config", type=click.Path(path_type=Path), metavar="FILE", help="Config of the bad end.")
@click.option("--no-color", is_flag=True, help="No colours.")
@range_options
def command(goods: tuple[str, ...], bad: str, no_color: bool, **values: Any) -> int:
    """List the changes between two ends; run nothing.

    \b
    Examples:
      bisect-train diff --good v1.2 --bad main
      bisect-train diff --good main --bad main --good-config a.yaml --bad-config b.yaml
    """
    asked, _, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        good_config, bad_config = config_files(asked)
        commits = range_of(repository, goods, bad, asked, may_be_same=good_config is not None)
        question = Question(
            kind="run", repo=str(repository.root), range=commits, command=(), settings=RunSettings(""), rung=Rung(None),
            good_config=good_config, bad_config=bad_config,
        )  # fmt: skip
        space = build_space(repository, question)
        console = make_console(Output(no_color=no_color))
        print_changes(space, console)
        console.print(count_changes(space))
    return 0
