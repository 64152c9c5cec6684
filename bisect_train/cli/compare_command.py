"""`bisect-train compare`: two ends side by side, step by step."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asked import split_options
from bisect_train.cli.asking import ask_question
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.cli.options import config_end_options, output_options, probe_options, state_options, what_options
from bisect_train.cli.planning import config_files
from bisect_train.cli.singles import OneEnd, run_ends
from bisect_train.cli.triage_compare import render_compared, triage_compared, write_compared
from bisect_train.core.question import Question, Range
from bisect_train.core.secrets import mask_command
from bisect_train.report import render_compare


@click.command("compare")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.option("--seed", "seed_idx", type=click.IntRange(min=0), default=0, show_default=True, help="Seed index of both runs.")
@what_options
@config_end_options
@state_options
@probe_options
@output_options
def command(left: str, right: str, seed_idx: int, **values: Any) -> int:
    """Run two revisions once with the same seed and compare them step by step; no search, no verdict.

    What is shown: the first difference with both values on each rank, the steps side by side, and what kind of failure B shows
    against A (and A by itself), with the data side by side where they differ.

    A runs with the options that begin with --good, B with those that begin with --bad; A and B may be the same revision.

    \b
    Examples:
      bisect-train compare main my-branch --steps 20 -- python train.py
      bisect-train compare v1 v2 --ranks 2 -- python train.py
      bisect-train compare main main --good-env old.txt --bad-env new.txt -- python train.py
      bisect-train compare v1 v2 --bad-data corpus=/data/v2 --bad-command "python train.py --lr 0.3" -- python train.py

    \b
    Exit status: 0 both ran, 1 one of them did not.
    """
    asked, output, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commits = [repository.resolve(rev) for rev in (left, right)]
        configs = config_files(asked)
        question = ask_question(
            asked,
            repository,
            kind="compare",
            commits=Range((commits[0],), commits[1]),
            good_config=configs[0],
            bad_config=configs[1],
        )
        ends = _ends_of(question)
        others = _differences(repository, question, ends[1])
        title = f"compare {left} with {right}"
        found = run_ends(desk, repository, ends, title=title, quiet=output.quiet, seed_idx=seed_idx)
    fingerprints = [result.fingerprint for _, result in found]
    suffixes = (", good options", ", bad options") if others else ("", "")
    names = [f"{rev} ({commit[:8]}{more})" for rev, commit, more in zip((left, right), commits, suffixes, strict=True)]
    console = make_console(output)
    for line in others:
        console.print(f"differs  {line}", markup=False, soft_wrap=True)
    console.print(render_compare(fingerprints[0], fingerprints[1], left_name=names[0], right_name=names[1]))
    compared = triage_compared((found[0][1], found[1][1]), question, names=(names[0], names[1]))
    console.print(render_compared(compared))
    write_compared(compared, output)
    return 0 if all(fingerprint.ending.is_healthy for fingerprint in fingerprints) else 1


def _ends_of(question: Question) -> tuple[OneEnd, OneEnd]:
    """Return each end as a question about its own commit; a Hydra composition is made at the end's commit alone."""
    question = replace(question, settings=replace(question.settings, every_step=True, triage=True))
    good, bad = question.good_state, question.bad_state
    (low,), high = question.range.goods, question.range.bad
    left = replace(question, range=Range((low,), low), bad_state=replace(bad, hydra=good.hydra))
    right = replace(question, range=Range((high,), high), good_state=replace(good, hydra=bad.hydra))
    return OneEnd(left), OneEnd(right, is_bad=True)


def _differences(repository: Repository, question: Question, end: OneEnd) -> tuple[str, ...]:
    """Return a line for each thing beside the commits in which the ends differ."""
    hydra = [shlex.join(mask_command(state.hydra)) for state in (question.good_state, question.bad_state)]
    composed = [f"Hydra composition: {hydra[0]} -> {hydra[1]}"] if hydra[0] != hydra[1] else []
    return (*(change.title for change in build_space(repository, end.question).changes), *composed)
