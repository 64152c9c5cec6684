"""`bisect-train nightly expect`: call a change intended."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.desk import open_desk
from bisect_train.cli.nightly_desk import open_log, pick_watch
from bisect_train.core.errors import InputError


@click.command("expect")
@click.argument("rev")
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in messages and in the history.")
@click.option("--watch", metavar="NAME", help="Of which watch [default: the only one].")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here].")
def command(rev: str, reason: str, watch: str | None, repo: Path) -> int:
    """Call the change of a commit intended: it is labelled the next night, and never blamed again.

    An open finding that it explains is over then, and the last good commit moves behind it. Where no change was proved, the
    commit explains all that became worse between the two commits that were compared.

    \b
    Examples:
      bisect-train nightly expect 3f2a9c1 --reason "smaller model"
    """
    with open_desk() as desk:
        repository = Repository.open(repo, home=desk.home)
        commit = repository.resolve(rev)
        log = open_log(desk)
        found = pick_watch(log, watch)
        if found.about["repo"] != repository.key:
            raise InputError(f"the watch {found.name!r} is of {found.about['root']}", hint="name its repository with --repo")
        log.append(found.name, [("expected", {"commit": commit, "reason": reason})])
    click.echo(f"{commit[:12]} is an intended change of {found.name} from the next night on")
    return 0
