"""`bisect-train doctor`: check this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import rich_click as click

from bisect_train.cli.checkup import Finding, check_machine
from bisect_train.cli.finding import find_python
from bisect_train.cli.readiness import check_program
from bisect_train.cli.terminal import say
from bisect_train.store.home import default_home


@click.command("doctor")
@click.option("--python", metavar="PATH", help="Interpreter that `python` in training commands stands for.")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here].")
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check the program of this recipe, too: does it"
    " train, on one rank and a few steps, and which rungs repeat bit for bit?",
)
def command(python: str | None, repo: Path, recipe: Path | None) -> int:
    """Check this machine: home folder, git, interpreter, torch, recorder, Ray. With --recipe, your training program as well.

    The program runs as the working tree has it: one rank and a few steps twice (the loss falls, gradients are finite, every
    parameter gets one, both runs are equal), then each rung of `shrink` twice (is it deterministic, how long does it take).

    \b
    Examples:
      bisect-train doctor
      bisect-train doctor --python ~/envs/train/bin/python
      bisect-train doctor --recipe bisect-train.yaml

    \b
    Exit status: 0 all is well, 1 something is not.
    """
    num_bad = 0
    for finding in _findings(python, repo, recipe):
        num_bad += not finding.is_fine
        _say(finding)
    click.echo("all is well" if num_bad == 0 else f"{num_bad} of these need attention")
    return 1 if num_bad else 0


def _findings(python: str | None, repo: Path, recipe: Path | None) -> Iterator[Finding]:
    """Yield what is found of the machine, then of the program, if the machine can run one."""
    num_bad = 0
    for finding in check_machine(find_python(python), repo):
        num_bad += not finding.is_fine
        yield finding
    if recipe is not None and num_bad:
        yield Finding("recipe", False, "not looked at: put right what is above first")
    elif recipe is not None:
        yield from check_program(recipe, repo, python=python, home=default_home())


def _say(finding: Finding) -> None:
    mark = "ok  " if finding.is_fine else "FAIL"
    say(f"{mark}  {finding.what:<12} {finding.found}")
    if not finding.is_fine and finding.remedy:
        say(f"      {finding.remedy}")
