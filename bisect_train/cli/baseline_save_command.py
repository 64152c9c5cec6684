"""`bisect-train baseline save`: run a good version and keep what it shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import rich_click as click

from bisect_train.baseline import Baseline, Saved, list_baselines, path_of, read_baseline, write_baseline
from bisect_train.baseline.values import mean_and_sd
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import split_options
from bisect_train.cli.asking import ask_question
from bisect_train.cli.desk import open_desk
from bisect_train.cli.golden_runs import Measured, measure_golden, now_text
from bisect_train.cli.options import probe_options, what_options
from bisect_train.cli.terminal import say
from bisect_train.core.errors import InputError
from bisect_train.core.question import Question, Range
from bisect_train.core.secrets import mask_command
from bisect_train.report.words import say_number


@click.command("save")
@click.argument("name")
@click.option("--rev", metavar="REV", default="HEAD", show_default=True, help="Commit to run.")
@click.option(
    "--num-seeds", type=click.IntRange(min=2), default=5, show_default=True, help="Seeds to run; the first one twice."
)
@click.option("--reason", default="", metavar="TEXT", help="Why this one.")
@what_options
@probe_options
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(name: str, rev: str, num_seeds: int, reason: str, **values: Any) -> int:
    """Run a good version and keep what it shows, as baseline NAME.

    Saved again for the same commit on another machine, it has both platforms. For another commit there is `renew`.

    \b
    Examples:
      bisect-train baseline save main -- python train.py
      bisect-train baseline save v1 --rev v1.2 --num-seeds 8 --steps 100 -- python train.py

    \b
    Exit status: 0 saved, 1 a run failed or showed no value, 2 bad input.
    """
    asked, output, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        path = path_of(repository.root, name)
        commit = repository.resolve(rev)
        question = ask_question(asked, repository, kind="baseline", commits=Range((commit,), commit))
        known = read_baseline(repository.root, name) if name in list_baselines(repository.root) else None
        if known is not None and known.saved.commit != commit:
            raise InputError(
                f"baseline {name!r} is of commit {known.saved.commit[:12]}, not {commit[:12]}",
                hint=f"`bisect-train baseline renew {name}` takes another version; or choose another name",
            )
        metric = (question.metric.name, question.metric.reduce)
        if known is not None and known.metric != metric:
            raise InputError(
                f"baseline {name!r} holds {' '.join(known.metric)}, not {' '.join(metric)}: the metric, and how it is reduced",
                hint="choose another name, or ask for the same metric",
            )
        measured = measure_golden(desk, repository, question, name=name, num_seeds=num_seeds, quiet=output.quiet)
        write_baseline(repository.root, _merge(known, name, Saved(commit, now_text(), reason), question, measured))
    say(say_saved(name, question, measured))
    click.echo(f"written to {path.relative_to(repository.root)}: commit it, so that others have it")
    return 0


def _merge(known: Baseline | None, name: str, saved: Saved, question: Question, measured: Measured) -> Baseline:
    metric = (question.metric.name, question.metric.reduce)
    if known is None:
        return Baseline(name, saved, tuple(mask_command(question.command)), metric, (measured.golden,))
    return replace(known.with_platform(measured.golden), command=tuple(mask_command(question.command)))


def say_saved(name: str, question: Question, measured: Measured) -> str:
    """Return one line on what was measured."""
    mean, sd = mean_and_sd(measured.values)
    repeats = "the same seed gives the same bits" if measured.golden.repeats else "the same seed does not give the same bits"
    shown = f"{question.metric.name} {say_number(mean, unit=question.metric.unit)}"
    value = f"{shown} (sd {say_number(sd)}, {len(measured.values)} seeds)"
    return f"baseline {name}: {value}, {question.rung.name}; {repeats}"
