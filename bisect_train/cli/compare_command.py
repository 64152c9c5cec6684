"""`bisect-train compare`: two ends side by side, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.asking import ask_question
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.cli.options import output_options, probe_options, split_options, what_options
from bisect_train.cli.singles import run_questions
from bisect_train.core.question import Range
from bisect_train.report import render_compare


@click.command("compare")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.option("--seed", "seed_idx", type=click.IntRange(min=0), default=0, show_default=True, help="Seed index of both runs.")
@what_options
@probe_options
@output_options
def command(left: str, right: str, seed_idx: int, **values: Any) -> int:
    """Run two revisions once with the same seed and compare them step by step; no search, no verdict.

    \b
    Examples:
      bisect-train compare main my-branch --steps 20 -- python train.py
      bisect-train compare v1 v2 --ranks 2 -- python train.py

    \b
    Exit status: 0 both ran, 1 one of them did not.
    """
    asked, output, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commits = [repository.resolve(rev) for rev in (left, right)]
        questions = []
        for commit in commits:
            question = ask_question(asked, repository, kind="compare", commits=Range((commit,), commit))
            questions.append(replace(question, settings=replace(question.settings, every_step=True)))
        title = f"compare {left} with {right}"
        found = run_questions(desk, repository, questions, title=title, quiet=output.quiet, seed_idx=seed_idx)
    fingerprints = [result.fingerprint for _, result in found]
    names = (f"{left} ({commits[0][:8]})", f"{right} ({commits[1][:8]})")
    make_console(output).print(render_compare(fingerprints[0], fingerprints[1], left_name=names[0], right_name=names[1]))
    return 0 if all(fingerprint.ending.is_healthy for fingerprint in fingerprints) else 1
