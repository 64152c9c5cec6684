"""`bisect-train probe`: run one variant once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.asking import ask_question
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.cli.options import judge_options, output_options, probe_options, split_options, what_options
from bisect_train.cli.show_command import write_probe
from bisect_train.cli.singles import run_questions
from bisect_train.core.question import Range
from bisect_train.report.probe_view import render_probe


@click.command("probe")
@click.option("--rev", metavar="REV", help="Commit to run [default: the working tree as it is].")
@click.option("--seed", "seed_idx", type=click.IntRange(min=0), default=0, show_default=True, help="Seed index.")
@click.option("--every-step", is_flag=True, help="Parameter and RNG hashes at every step.")
@what_options
@probe_options
@judge_options
@output_options
def command(rev: str | None, seed_idx: int, every_step: bool, **values: Any) -> int:
    """Run one variant once, and show what was recorded.

    \b
    Examples:
      bisect-train probe --steps 10 -- python train.py
      bisect-train probe --rev v1.2 --ranks 2 -- python train.py

    \b
    Exit status: 0 it ran, 1 it crashed, could not be started, or the recorder was not loaded.
    """
    asked, output, _ = split_options(values)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commit = repository.resolve(rev) if rev else repository.snapshot_worktree()
        question = ask_question(asked, repository, kind="probe", commits=Range((commit,), commit))
        question = replace(question, settings=replace(question.settings, every_step=every_step))
        title = f"probe of {rev or 'the working tree'}"
        results = run_questions(desk, repository, [question], title=title, quiet=output.quiet, seed_idx=seed_idx)
        probe = desk.store.find_probe(results[0][0])
    make_console(output).print(render_probe(probe))
    write_probe(probe, _json_path(output.json, output.out))
    return 0 if probe.result.fingerprint.ending.is_healthy else 1


def _json_path(json: Path | None, out: Path | None) -> Path | None:
    return json or (out / "probe.json" if out else None)
