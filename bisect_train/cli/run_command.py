"""`bisect-train run`: find the culprit between two ends."""

from __future__ import annotations

from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli.asked import split_options
from bisect_train.cli.asking import ask_question, range_of
from bisect_train.cli.desk import open_desk
from bisect_train.cli.driving import start_bisection
from bisect_train.cli.end_states import has_end_states
from bisect_train.cli.finding import find_recipe
from bisect_train.cli.golden_runs import split_baseline, with_baseline
from bisect_train.cli.options import (
    end_options,
    judge_options,
    output_options,
    prior_options,
    probe_options,
    range_options,
    search_options,
    what_options,
)
from bisect_train.cli.planning import config_files, print_dry_run, refuse_nothing_to_search, title_of, warn_before
from bisect_train.cli.reading import read_changes
from bisect_train.cli.recorded_runs import is_given, open_recorded_runs, recorded_run_options
from bisect_train.cli.telling_options import telling_options
from bisect_train.core.question import Question


@click.command("run")
@click.option(
    "--good",
    "goods",
    multiple=True,
    metavar="REV|baseline:NAME",
    help="Known-good revision, or a stored baseline; may be repeated.",
)
@click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="Known-bad revision.")
@click.option("--dry-run", is_flag=True, help="Say what would be run, and stop.")
@recorded_run_options
@what_options
@range_options
@end_options
@prior_options
@probe_options
@judge_options
@search_options
@output_options
@telling_options
def command(goods: tuple[str, ...], bad: str, dry_run: bool, **values: Any) -> int:
    """Find the change that made a training run worse.

    COMMAND is the training command behind `--`, run as it is, without a shell.

    \b
    Examples:
      bisect-train run --good v1.2 -- python train.py --config train.yaml
      bisect-train run --good abc --bad def --steps 100 --seeds 8 -- python train.py
      bisect-train run --good abc --bad def --ranks 2 -- python train.py
      bisect-train run --good abc --prior 'path:docs/**=0.01' --prior 'message:(?i)optim|lr=5' -- python train.py
      bisect-train run --good abc --bad def --judge "python judge.py" -- python train.py
      bisect-train run --good abc --bad def --ranks 2 --symptom overlapping_samples -- python train.py
      bisect-train run --good abc --bad def --ranks 2 --metric coverage -- python train.py
      bisect-train run --good abc --bad def --good-config a.yaml --bad-config b.yaml -- python train.py --config {config}
      bisect-train run --good main --bad main --good-env old.txt --bad-env new.txt -- python train.py
      bisect-train run --good baseline:main -- python train.py
      bisect-train run --good-run wandb/run-20260101-ab12cd --bad-run wandb/run-20260203-ef34ab
      bisect-train run --good abc --bad def --bad-data corpus=/data/v2 --bad-ranks 2 -- python train.py

    \b
    Exit status: 0 isolated and confirmed, 1 an end could not be tested, 2 bad input, 3 several candidates are left,
    4 no regression, not reproduced or fixed before, 130 interrupted (`bisect-train resume` goes on).
    """
    asked, output, named = split_options(values)
    is_bad_given = is_given("bad")
    with open_desk() as desk, open_recorded_runs(named["good_run"], named["bad_run"]) as runs:
        repository = Repository.open(asked.repo, home=desk.home)
        goods, bad = runs.revisions(goods, bad, is_bad_given=is_bad_given)
        asked = runs.fill(asked, find_recipe(asked, repository.root))
        good_config, bad_config = runs.name_configs(*config_files(asked))
        goods, baseline = split_baseline(repository, goods)
        commits = range_of(repository, goods, bad, asked, may_be_same=has_end_states(asked))
        question = ask_question(asked, repository, kind="run", commits=commits, good_config=good_config, bad_config=bad_config)
        if dry_run:
            space = build_space(repository, question)
            return print_dry_run(question, space, _name(question, space), desk.store)
        with read_changes(repository, question, desk.home) as (space, executor):
            title, question = _name(question, space), with_baseline(question, space, baseline)
            return start_bisection(desk, question, space, title=title, output=output, executor=executor)


def _name(question: Question, space: ChangeSpace) -> str:
    """Return the title of a bisection. Raises InputError where there is nothing to search."""
    refuse_nothing_to_search(space)
    title = title_of(question, space)
    warn_before(space)
    return title
