"""`bisect-train baseline list`: the baselines of a repository."""

from __future__ import annotations

from pathlib import Path

import rich_click as click
from rich.table import Table
from rich.text import Text

from bisect_train.baseline import list_baselines, read_baseline
from bisect_train.baseline.values import mean_and_sd
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.report.words import say_number


@click.command("list")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), metavar="DIR", help="The repository [default: here].")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(repo: Path, no_color: bool) -> int:
    """List baselines: commit, when and why it was saved, the metric on each platform.

    \b
    Examples:
      bisect-train baseline list
    """
    with open_desk() as desk:
        root = Repository.open(repo, home=desk.home).root
    console = make_console(Output(no_color=no_color))
    names = list_baselines(root)
    if not names:
        console.print("no baselines here: `bisect-train baseline save NAME -- COMMAND`", markup=False)
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("name", "commit", "saved", "rung", "metric", "hardware", "why"):
        table.add_column(title)
    for name in names:
        baseline = read_baseline(root, name)
        for golden in baseline.golden:
            mean, sd = mean_and_sd([run.value for run in golden.runs])
            shown = f"{baseline.metric[0]} {say_number(mean)} (sd {say_number(sd)}, {len(golden.runs)} seeds)"
            saved = baseline.saved
            cells = (name, saved.commit[:12], saved.date[:10], golden.rung, shown, golden.hardware_class, saved.reason)
            table.add_row(*map(Text, cells))
    console.print(table)
    return 0
