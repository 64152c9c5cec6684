"""`bisect-train check`: is a config change safe, and which key is not?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asking import ask_question, config_ends
from bisect_train.cli.desk import open_desk
from bisect_train.cli.driving import answer_without_runs, start_bisection
from bisect_train.cli.options import (
    Asked,
    judge_options,
    output_options,
    probe_options,
    search_options,
    split_options,
    what_options,
)
from bisect_train.cli.planning import print_dry_run, title_of
from bisect_train.core.question import Range


@click.command("check")
@click.argument("good_config", type=click.Path(path_type=Path))
@click.argument("bad_config", type=click.Path(path_type=Path), required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key in place of a second file.")
@click.option("--rev", metavar="REV", help="Commit to run [default: the working tree as it is, uncommitted changes too].")
@click.option("--dry-run", is_flag=True, help="Say what would be run, and stop.")
@what_options
@probe_options
@judge_options
@search_options
@output_options
def command(
    good_config: Path, bad_config: Path | None, settings: tuple[str, ...], rev: str | None, dry_run: bool, **values: Any
) -> int:
    """Is this config change safe? If not, which key is it?

    Each key that differs between the two files is a change. Write {config} where the command takes the file's path.

    \b
    Examples:
      bisect-train check good.yaml bad.yaml -- python train.py --config {config}
      bisect-train check train.yaml --set optimizer.lr=0.01 -- python train.py --config {config}

    \b
    Exit status: 0 no regression, 1 an end could not be tested, 2 bad input, 3 cannot tell, 5 a regression was found.
    """
    asked, output, _ = split_options(values)
    bad_path, asked = _split_second_file(bad_config, asked, has_settings=bool(settings))
    good, bad = config_ends(good_config, bad_path, settings)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commit = repository.resolve(rev) if rev else repository.snapshot_worktree()
        commits = Range((commit,), commit)
        question = ask_question(asked, repository, kind="check", commits=commits, good_config=good, bad_config=bad)
        space = build_space(repository, question)
        if not space.changes:
            reason = f"{good.path} and {bad.path} hold the same values"
            return answer_without_runs(desk, question, space, reason=reason, output=output)
        title = title_of(question, space)
        if dry_run:
            return print_dry_run(question, space, title, desk.store)
        return start_bisection(desk, question, space, title=title, output=output)


def _split_second_file(bad_config: Path | None, asked: Asked, *, has_settings: bool) -> tuple[Path | None, Asked]:
    """Where one file was named, the first word behind `--` lands in BAD_CONFIG: give it back to the command."""
    if bad_config is None or bad_config.exists():
        return bad_config, asked
    if has_settings or shutil.which(str(bad_config)):
        return None, replace(asked, command=(str(bad_config), *asked.command))
    return bad_config, asked
