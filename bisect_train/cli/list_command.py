"""`bisect-train list`: all stored bisections."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import rich_click as click
from rich.markup import escape
from rich.table import Table

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import make_console
from bisect_train.cli.desk import open_desk
from bisect_train.store.contract import Store, StoredBisection
from bisect_train.store.standing import STOPPED, standing_of


@click.command("list")
@click.option("--no-color", is_flag=True, help="No colours.")
def command(no_color: bool) -> int:
    """List the stored bisections, the newest first; those inside a merge below the one that named it.

    \b
    Example:
      bisect-train list
    """
    console = make_console(Output(no_color=no_color))
    with open_desk() as desk:
        table = Table(box=None, pad_edge=False)
        for name in ("id", "created", "status", "question", "answer"):
            table.add_column(name, no_wrap=name in ("id", "created", "status"), overflow="fold")
        for stored in in_order(desk.store.list()):
            table.add_row(*row_of(stored, desk.store))
        console.print(table if table.row_count else "no bisection is stored yet")
    return 0


def in_order(every: Sequence[StoredBisection]) -> list[StoredBisection]:
    """Return the bisections in their order, each with its parts right behind it, the oldest of them first."""
    known = {stored.id for stored in every}
    parts: dict[str, list[StoredBisection]] = {}
    for stored in reversed(every):
        parts.setdefault(stored.question.get("part_of") or "", []).append(stored)
    ordered = []
    for stored in every:
        if stored.question.get("part_of") not in known:
            ordered += [stored, *parts.get(stored.id, ())]
    return ordered


def row_of(stored: StoredBisection, store: Store) -> tuple[str, ...]:
    """Return id, time, status, question and answer as text."""
    created = datetime.datetime.fromtimestamp(stored.created_s).strftime("%Y-%m-%d %H:%M")
    answer = str((stored.answer or {}).get("summary", ""))
    return stored.id, created, status_of(stored, store), escape(stored.title), escape(answer)


def status_of(stored: StoredBisection, store: Store) -> str:
    """Return the status; one whose coordinator was killed shows as `stopped`."""
    standing = standing_of(stored, store)
    return standing if standing == STOPPED else str((stored.answer or {}).get("status", standing))
