"""`bisect-train cache ls`: what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from bisect_train.cli.amounts import limit_in_force
from bisect_train.cli.asked import Output
from bisect_train.cli.cache_table import print_stock, stock_to_json
from bisect_train.cli.delivering import make_console, write_text
from bisect_train.cli.stock import Stock, take_stock
from bisect_train.cli.stored_results import Machine, ResultGroup, count_results
from bisect_train.store.upkeep import open_archive


@click.command("ls")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Write everything here, item by item."
)
@click.option("--no-color", is_flag=True, help="No colours.")
def command(json_path: Path | None, no_color: bool) -> int:
    """List what is kept by kind: number, size, when it was used last, how much of it is in use or needed; and where.

    Results are grouped by hardware and interpreter, with the number that a bisection here would take over today.

    \b
    Examples:
      bisect-train cache ls
      bisect-train cache ls --json cache.json

    \b
    Exit status: 0, or 1 where the database cannot be read.
    """
    limit, stock, console = limit_in_force(), take_stock(), make_console(Output(no_color=no_color))
    groups = _groups_of(stock)
    if stock.home.exists() or stock.items:
        print_stock(stock, groups, console, limit_bytes=limit)
    else:
        console.print(f"nothing is kept: {stock.home} does not exist", markup=False, soft_wrap=True)
    if json_path is not None:
        write_text(json_path, json.dumps(stock_to_json(stock, groups, limit_bytes=limit), indent=1) + "\n")
    if stock.trouble is not None:
        raise stock.trouble
    return 0


def _groups_of(stock: Stock) -> tuple[ResultGroup, ...]:
    archive = open_archive(stock.home) if stock.trouble is None else None
    if archive is None:
        return ()
    try:
        return count_results(archive.results(), stock.bisections, Machine())
    finally:
        archive.close()
