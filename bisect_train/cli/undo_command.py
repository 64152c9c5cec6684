"""`bisect-train undo`: take back the newest observations or marks."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click

from bisect_train.cli.desk import find_bisection, open_desk
from bisect_train.cli.terminal import say
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.person import steps_to_undo, undo_event
from bisect_train.core.errors import InputError
from bisect_train.store.contract import MARKED, UNDONE, StoredEvent


@click.command("undo")
@click.argument("bisection", default="last", metavar="[ID]")
@click.option("--last", "num", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How many.")
def command(bisection: str, num: int) -> int:
    """Take back the newest N observations or marks of a bisection; `resume` runs them again.

    Nothing is deleted: the observations stay in the store and no longer count. An answer that rested on them is no
    longer the answer.

    \b
    Examples:
      bisect-train undo
      bisect-train undo 3f2a --last 3
    """
    with open_desk() as desk:
        stored = find_bisection(desk.store, bisection)
        with desk.store.lock(stored.id):
            steps = steps_to_undo(read_events(desk.store, stored.id))
            if num > len(steps):
                hint = f"`bisect-train log {stored.id} --observations` lists them"
                raise InputError(f"bisection {stored.id} has {len(steps)} observations and marks, not {num}", hint=hint)
            desk.store.append(stored.id, UNDONE, undo_event(steps[:num]))
    for step in steps[:num]:
        say(f"taken back: {_say_step(step)}")
    click.echo(f"`bisect-train resume {stored.id}` goes on")
    return 0


def _say_step(step: Sequence[StoredEvent]) -> str:
    data = step[0].data
    if step[0].kind == MARKED:
        return f"mark {data['commit'][:12]} {data['verdict']}"
    spec = data.get("spec", data)
    numbers = " ".join(f"{name}={spec[name]}" for name in ("seed_idx", "repeat", "attempt"))
    key = f" ({data['key']})" if "key" in data else ""
    more = f" and {len(step) - 1} more that it answers" if len(step) > 1 else ""
    return f"the run at {spec['point']}, commit {str(spec.get('commit', ''))[:12]}, {numbers}{key}{more}"
