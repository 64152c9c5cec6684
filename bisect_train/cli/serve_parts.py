"""Subcommands of `bisect-train serve`: its users, and the coordinators that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import rich_click as click

from bisect_train.cli.desk import open_desk
from bisect_train.core.errors import InputError
from bisect_train.store.queue_contract import Queue, User, UserLimits

F = TypeVar("F", bound=Callable[..., Any])
KEEP = -1


@click.group("user")
def user_group() -> None:
    """Users of the service: who may ask, and how much.

    \b
    Examples:
      bisect-train serve user add anna --max-probes-per-day 500
      bisect-train serve user list
      bisect-train serve user renew anna
    """


def limit_options(function: F) -> F:
    """Add what one user may do."""
    for option in (
        click.option("--max-gpu-hours-per-day", type=click.FloatRange(min=0), metavar="H", help="GPU-hours in 24 hours."),
        click.option("--max-probes-per-day", type=click.IntRange(min=0), metavar="N", help="Probes in 24 hours."),
        click.option("--max-running", type=click.IntRange(min=0), metavar="N", help="Bisections at a time."),
        click.option("--max-queued", type=click.IntRange(min=0), metavar="N", help="Bisections that wait."),
    ):
        function = option(function)
    return function


@user_group.command("add")
@click.argument("name")
@click.option("--admin", is_flag=True, help="May act on what others asked, and send training commands.")
@limit_options
def add(name: str, admin: bool, **limits: Any) -> int:
    """Add a user and print its token, which is kept nowhere: only its digest is.

    \b
    Example:
      bisect-train serve user add anna --max-running 2 > token.txt
    """
    with open_queue() as queue:
        token = queue.add_user(name, is_admin=admin, limits=UserLimits(**limits))
    click.echo(token)
    click.echo(f"this is the token of {name}; it cannot be shown again (`serve user renew` makes another)", err=True)
    return 0


@user_group.command("list")
def list_users() -> int:
    """List the users: their limits, and what they used in the last 24 hours."""
    with open_queue() as queue:
        users, usages = queue.users(), {usage.user: usage for usage in queue.usages()}
    for user in users:
        usage = usages.get(user.name)
        used = f"{usage.num_probes} probes, {usage.gpu_s / 3600:.3g} GPU-hours in 24 h" if usage else "nothing used in 24 h"
        click.echo(f"{user.name:<20} {_say_kind(user):<14} {_say_limits(user.limits)}; {used}")
    if not users:
        click.echo("there are no users: the service answers the person on this machine alone")
    return 0


@user_group.command("set")
@click.argument("name")
@click.option("--admin/--no-admin", default=None, help="Whether it may act on what others asked.")
@click.option("--no-limits", is_flag=True, help="Take all limits away first.")
@limit_options
def set_user(name: str, admin: bool | None, no_limits: bool, **limits: Any) -> int:
    """Change a user; what is not named stays."""
    with open_queue() as queue:
        known = UserLimits() if no_limits else queue.user(name).limits
        given = {key: value for key, value in limits.items() if value is not None}
        merged = UserLimits(**{field: given.get(field, getattr(known, field)) for field in limits})
        user = queue.set_user(name, is_admin=admin, limits=merged)
    click.echo(f"{user.name}: {_say_kind(user)}, {_say_limits(user.limits)}")
    return 0


@user_group.command("renew")
@click.argument("name")
def renew(name: str) -> int:
    """Print a new token of a user; the old one is good for nothing any more."""
    with open_queue() as queue:
        click.echo(queue.renew_token(name))
    return 0


@user_group.command("revoke")
@click.argument("name")
def revoke(name: str) -> int:
    """Take a user's token away; what it asked stays."""
    with open_queue() as queue:
        queue.user(name)
        queue.revoke_token(name)
    click.echo(f"{name} has no token any more")
    return 0


@click.command("coordinate", hidden=True)
@click.argument("bisection")
@click.option("--address", required=True)
def coordinate_command(bisection: str, address: str) -> int:
    """Run a stored bisection as a part of a service; the service starts this."""
    from bisect_train.cli.coordinating import coordinate
    from bisect_train.cli.coordinator_pipes import piped

    with piped() as (report, share), open_desk() as desk:
        return coordinate(desk, bisection, address=address, report=report, share=share)


@contextmanager
def open_queue() -> Iterator[Queue]:
    """Open the queue of the home folder's store. Raises InputError where it has none."""
    with open_desk() as desk:
        make = getattr(desk.store, "queue", None)
        if make is None:
            raise InputError("this store has no users", hint="a database has: SQLite or PostgreSQL")
        yield make()


def _say_kind(user: User) -> str:
    kind = "administrator" if user.is_admin else "user"
    return kind if user.has_token else f"{kind}, no token"


def _say_limits(limits: UserLimits) -> str:
    named = {
        "waiting": limits.max_queued,
        "running": limits.max_running,
        "probes a day": limits.max_probes_per_day,
        "GPU-hours a day": limits.max_gpu_hours_per_day,
    }
    said = [f"{value:g} {name}" for name, value in named.items() if value is not None]
    return "at most " + ", ".join(said) if said else "no limits"
