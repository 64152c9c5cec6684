"""`bisect-train cancel`: stop a running bisection."""

from __future__ import annotations

import rich_click as click

from bisect_train.cli.desk import find_stored, open_desk


@click.command("cancel")
@click.argument("bisection", default="last", metavar="[ID]")
def command(bisection: str) -> int:
    """Stop a running bisection; everything observed is kept and `resume` goes on.

    \b
    Example:
      bisect-train cancel 3f2a
    """
    with open_desk() as desk:
        stored = find_stored(desk.store, bisection)
        if not desk.store.is_running(stored.id):
            click.echo(f"bisection {stored.id} is not running (status {stored.status}); nothing to cancel")
            return 0
        desk.store.request_cancel(stored.id)
        click.echo(f"bisection {stored.id} was asked to stop; `bisect-train resume {stored.id}` goes on later")
    return 0
