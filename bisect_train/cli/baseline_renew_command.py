"""`bisect-train baseline renew`: take another version, after an intended change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import rich_click as click

from bisect_train.baseline import Intended, Saved, read_baseline, write_baseline
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import split_options
from bisect_train.cli.asking import ask_question
from bisect_train.cli.baseline_save_command import say_saved
from bisect_train.cli.desk import open_desk
from bisect_train.cli.golden_runs import measure_golden, now_text
from bisect_train.cli.options import probe_options, what_options
from bisect_train.cli.terminal import say
from bisect_train.core.question import Range
from bisect_train.core.secrets import mask_command


@click.command("renew")
@click.argument("name")
@click.option("--rev", metavar="REV", default="HEAD", show_default=True, help="Commit to run.")
@click.option(
    "--num-seeds", type=click.IntRange(min=2), default=5, show_default=True, help="Seeds to run; the first one twice."
)
@click.option("--reason", required=True, metavar="TEXT", help="Why the values may change; kept in the file's history.")
@click.option(
    "--expect", multiple=True, metavar="REV", help="A commit that shifts the metric on purpose: it is never blamed again."
)
@what_options
@probe_options
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(name: str, rev: str, num_seeds: int, reason: str, expect: tuple[str, ...], **values: Any) -> int:
    """Run another version and keep what it shows as baseline NAME; what was saved before stays in the file's history.

    \b
    Examples:
      bisect-train baseline renew main --reason "cosine schedule" --expect 3f2a9c1 -- python train.py

    \b
    Exit status: 0 saved, 1 a run failed or showed no value, 2 bad input.
    """
    asked, output, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        known = read_baseline(repository.root, name)
        commit = repository.resolve(rev)
        intended = [Intended(repository.resolve(item), reason) for item in expect]
        question = ask_question(asked, repository, kind="baseline", commits=Range((commit,), commit))
        measured = measure_golden(desk, repository, question, name=name, num_seeds=num_seeds, quiet=output.quiet)
        renewed = known.renewed(Saved(commit, now_text(), reason), measured.golden, intended)
        metric, command = (question.metric.name, question.metric.reduce), tuple(mask_command(question.command))
        write_baseline(repository.root, replace(renewed, metric=metric, command=command))
    say(say_saved(name, question, measured))
    return 0
