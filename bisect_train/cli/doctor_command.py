"""`bisect-train doctor`: check this machine."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from bisect_train.cli.checkup import Finding, check_machine
from bisect_train.cli.finding import find_python


@click.command("doctor")
@click.option("--python", metavar="PATH", help="Interpreter that `python` in training commands stands for.")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here].")
def command(python: str | None, repo: Path) -> int:
    """Check this machine: home folder, git, interpreter, torch, recorder, Ray.

    \b
    Examples:
      bisect-train doctor
      bisect-train doctor --python ~/envs/train/bin/python

    \b
    Exit status: 0 all is well, 1 something is not.
    """
    num_bad = 0
    for finding in check_machine(find_python(python), repo):
        num_bad += not finding.is_fine
        _say(finding)
    click.echo("all is well" if num_bad == 0 else f"{num_bad} of these need attention")
    return 1 if num_bad else 0


def _say(finding: Finding) -> None:
    mark = "ok  " if finding.is_fine else "FAIL"
    click.echo(f"{mark}  {finding.what:<12} {finding.found}")
    if not finding.is_fine and finding.remedy:
        click.echo(f"      {finding.remedy}")
