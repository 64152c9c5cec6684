"""`bisect-train cache gc`: remove what nothing needs."""

from __future__ import annotations

from typing import Any

import rich_click as click

from bisect_train.cli.amounts import AgeType, SizeType, limit_in_force
from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console
from bisect_train.cli.stock import take_stock
from bisect_train.cli.tidied import ids_of, report_plan, report_tidied
from bisect_train.cli.tidying import Wish, choose, tidy


@click.command("gc")
@click.option("--max-size", type=SizeType(), help="What may stay in all [default: BISECT_TRAIN_CACHE_LIMIT, else 50GB].")
@click.option("--older-than", type=AgeType(), help="Remove what was not used for so long (30d), whatever the size.")
@click.option("--kept", is_flag=True, help="The folders of `--keep` may go, too.")
@click.option("--bisections-older-than", type=AgeType(), help="Remove bisections that rest for so long, with their results.")
@click.option("--bisection", "named", multiple=True, metavar="ID", help="Remove this bisection with its results; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only list what would go.")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(max_size: int | None, dry_run: bool, no_color: bool, named: tuple[str, ...], **ages: Any) -> int:
    """Remove what no stored bisection needs and nobody uses, the oldest first, until the rest fits.

    What dead runs have left behind is swept in any case: processes, private folders, half-made packages, files of Ray. Stored
    bisections stay, and so does all that their reports need, unless they are asked for. What went is made again when needed.

    \b
    Examples:
      bisect-train cache gc --dry-run
      bisect-train cache gc --max-size 20GB --older-than 30d
      bisect-train cache gc --max-size 0
      bisect-train cache gc --bisections-older-than 180d --kept

    \b
    Exit status: 0, or 1 where something could not be removed.
    """
    stock, console = take_stock(), make_console(Output(no_color=no_color))
    limit = limit_in_force() if max_size is None else max_size
    wish = Wish(limit, ages["older_than"], ages["kept"], ages["bisections_older_than"], ids_of(stock, named))
    chosen = choose(stock, wish)
    if dry_run:
        report_plan(stock, chosen, console)
        return 0
    return report_tidied(stock, chosen, tidy(stock, chosen), console, limit_bytes=limit)
