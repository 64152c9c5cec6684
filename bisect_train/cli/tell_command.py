"""`bisect-train tell`: tell people of a stored bisection's answer."""

from __future__ import annotations

import rich_click as click

from bisect_train.cli.desk import open_desk
from bisect_train.cli.reopening import reopen, report_of
from bisect_train.cli.telling import Telling, raise_unless, tell_report
from bisect_train.cli.telling_options import check_addresses
from bisect_train.cli.terminal import say
from bisect_train.core.errors import InputError


@click.command("tell")
@click.argument("bisection", default="last", metavar="[ID]")
@click.option(
    "--to", "addresses", multiple=True, required=True, metavar="ADDRESS", callback=check_addresses,
    help="https://..., github-issue:OWNER/NAME, github-comment:OWNER/NAME#NUMBER, github-check:OWNER/NAME, mailto://..., "
    "or env:NAME for an address in a variable; may be repeated.",
)  # fmt: skip
@click.option("--as", "name", default="", metavar="NAME", help="One message for all bisections told by this name.")
@click.option("--candidates", "with_candidates", is_flag=True, help="Tell what is not confirmed, too.")
@click.option("--mention-author", "mention_authors", is_flag=True, help="Call the authors of proved culprits by name.")
def command(bisection: str, addresses: tuple[str, ...], name: str, with_candidates: bool, mention_authors: bool) -> int:
    """Tell people of the answer of a stored bisection: a webhook, a chat, e-mail, GitHub.

    Only what is confirmed is told. A place has one message a bisection: it is edited where the place can edit. Tokens are read
    from the environment alone (GITHUB_TOKEN, BISECT_TRAIN_WEBHOOK_SECRET, and the variable that env: names).

    \b
    Examples:
      bisect-train tell --to github-issue:acme/trainer
      bisect-train tell 3f2a --to env:SLACK_URL --to https://hooks.example.org/training
      bisect-train tell --as pull-request-12 --to github-comment:acme/trainer#12
    """
    telling = Telling(addresses, name, with_candidates, mention_authors)
    with open_desk() as desk:
        reopened = reopen(desk, bisection)
        if reopened.plan.answer is None:
            stored = reopened.stored.id
            raise InputError(f"bisection {stored} has no answer yet", hint=f"`bisect-train resume {stored}` goes on")
        told = tell_report(desk, report_of(desk, reopened), telling)
    for line in told.lines:
        say(line)
    raise_unless(told)
    return 0
