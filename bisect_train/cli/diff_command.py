"""`bisect-train diff`: list the changes between two ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asked import Output, split_options
from bisect_train.cli.asking import range_of
from bisect_train.cli.delivering import make_console, write_text
from bisect_train.cli.desk import open_desk
from bisect_train.cli.difference import ask_difference
from bisect_train.cli.end_states import has_end_states
from bisect_train.cli.listing import changes_to_json, print_changes
from bisect_train.cli.options import end_options, range_options, what_options
from bisect_train.cli.planning import config_files


@click.command("diff")
@click.option("--good", "goods", multiple=True, required=True, metavar="REV", help="Known-good revision; may be repeated.")
@click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="Known-bad revision.")
@click.option("--json", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the list here, as JSON.")
@click.option("--no-color", is_flag=True, help="No colours.")
@what_options
@range_options
@end_options
def command(goods: tuple[str, ...], bad: str, no_color: bool, **values: Any) -> int:
    """List the changes between two ends, by kind; run nothing.

    The command behind `--` is needed only where launch settings differ (`--bad-command`).

    \b
    Examples:
      bisect-train diff --good v1.2 --bad main
      bisect-train diff --good main --bad main --good-config a.yaml --bad-config b.yaml
      bisect-train diff --good v1.2 --good-env old.txt --bad-env new.txt --json changes.json
      bisect-train diff --good v1.2 --config train.yaml --hold-config split
    """
    asked, output, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commits = range_of(repository, goods, bad, asked, may_be_same=has_end_states(asked))
        good_config, bad_config = config_files(asked)
        question = ask_difference(asked, repository, commits=commits, good_config=good_config, bad_config=bad_config)
        space = build_space(repository, question)
        print_changes(question, space, desk.store, make_console(Output(no_color=no_color)))
        if output.json is not None:
            write_text(output.json, json.dumps(changes_to_json(question, space, desk.store), indent=2) + "\n")
    return 0
