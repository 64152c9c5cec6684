"""`bisect-train probe`: run one variant once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import split_options
from bisect_train.cli.asking import ask_question
from bisect_train.cli.data_ends import snapshot_without_data
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.cli.options import (
    judge_options,
    output_options,
    probe_options,
    second_look_option,
    variant_options,
    what_options,
)
from bisect_train.cli.show_command import write_probe
from bisect_train.cli.singles import OneEnd, against_installed, run_ends, with_one_end
from bisect_train.cli.triage_probe import TriageOptions, render_triaged, shows_symptom, triage_probe
from bisect_train.core.question import Range
from bisect_train.report.probe_view import render_probe


@click.command("probe")
@click.option("--rev", metavar="REV", help="Commit to run [default: the working tree as it is].")
@click.option("--seed", "seed_idx", type=click.IntRange(min=0), default=0, show_default=True, help="Seed index.")
@click.option("--every-step", is_flag=True, help="Parameter and RNG hashes at every step.")
@click.option(
    "--triage",
    "is_triaged",
    is_flag=True,
    help="Say what kind of failure it is: at which stage, on which rank, what to look at first.",
)
@click.option(
    "--baseline",
    metavar="REV|PROBE|RUN",
    help="A healthy commit, run beside it with the same seed, an earlier probe, or a recorded run (folder of W&B or MLflow,"
    " wandb:ENTITY/PROJECT/RUN): what differs is triaged, too. Implies --triage.",
)
@second_look_option
@what_options
@variant_options
@probe_options
@judge_options
@output_options
def command(rev: str | None, seed_idx: int, every_step: bool, is_triaged: bool, baseline: str | None, **values: Any) -> int:
    """Run one variant once, and show what was recorded.

    Of the packages in --env only those that are not installed as listed are laid before the environment.

    \b
    Examples:
      bisect-train probe --steps 10 -- python train.py
      bisect-train probe --rev v1.2 --ranks 2 -- python train.py
      bisect-train probe --env new.txt --env new.env --find-links wheels -- python train.py
      bisect-train probe --data corpus=/data/v2 --every-step -- python train.py
      bisect-train probe --triage --ranks 2 -- python train.py
      bisect-train probe --baseline v1.2 --steps 100 -- python train.py
      bisect-train probe --baseline wandb:acme/lm/3x1abc --steps 100 -- python train.py
      bisect-train probe --symptom overlapping_samples --ranks 2 -- python train.py

    \b
    Exit status: 0 it ran, 1 it crashed, could not be started, the recorder was not loaded, or it shows the --symptom.
    """
    asked, output, given = split_options(values)
    asked = with_one_end(asked, **given)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commit = repository.resolve(rev) if rev else snapshot_without_data(asked, repository)
        question = ask_question(asked, repository, kind="probe", commits=Range((commit,), commit))
        question = replace(against_installed(question), settings=replace(question.settings, every_step=every_step))
        title = f"probe of {rev or 'the working tree'}"
        if is_triaged or baseline or asked.symptom:
            look = TriageOptions(baseline, title, seed_idx, is_quiet=output.quiet, second_look=asked.second_look)
            triaged = triage_probe(desk, repository, OneEnd(question, is_bad=True), look)
            probe, part = triaged.probe, triaged.part
            shown = render_triaged(triaged, symptom=asked.symptom)
        else:
            ends = [OneEnd(question, is_bad=True)]
            results = run_ends(desk, repository, ends, title=title, quiet=output.quiet, seed_idx=seed_idx)
            probe, part = desk.store.find_probe(results[0][0]), None
            shown = render_probe(probe)
    make_console(output).print(shown)
    write_probe(probe, _json_path(output.json, output.out), triage=part)
    is_shown = bool(asked.symptom) and shows_symptom(probe, asked.symptom, part)
    return 0 if probe.result.fingerprint.ending.is_healthy and not is_shown else 1


def _json_path(json: Path | None, out: Path | None) -> Path | None:
    return json or (out / "probe.json" if out else None)
