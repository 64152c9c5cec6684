"""`bisect-train mark`: say what a version is, in place of its runs."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.desk import find_bisection, open_desk
from bisect_train.cli.marking import find_version
from bisect_train.cli.terminal import say
from bisect_train.coordinator.person import CLEAR, mark_event
from bisect_train.core.changes import Point
from bisect_train.core.question import Question
from bisect_train.search.marks import MARK_KINDS
from bisect_train.store.contract import MARKED

VERDICTS = (*(kind.value for kind in MARK_KINDS), CLEAR)


@click.command("mark")
@click.argument("rev")
@click.argument("verdict", type=click.Choice(VERDICTS))
@click.option("--bisection", default="last", show_default=True, metavar="ID", help="The bisection, or the beginning of its id.")
def command(rev: str, verdict: str, bisection: str) -> int:
    """Say what the state up to the commit REV is: good, bad or untestable; `clear` takes that back.

    A mark counts in place of the runs there, and the search does not run that state again. It is no proof: an answer is
    still confirmed by fresh runs. REV may be a config key's dotted path, too.

    \b
    Examples:
      bisect-train mark 3f2a1bc untestable
      bisect-train mark HEAD~4 good --bisection 6a1b
    """
    with open_desk() as desk:
        stored = find_bisection(desk.store, bisection)
        question = Question.of_json(stored.question)
        repository = Repository.open(Path(question.repo), home=desk.home)
        space = build_space(repository, question)
        version = find_version(rev, space, repository)
        change = space.changes[version - 1]
        with desk.store.lock(stored.id):
            desk.store.append(stored.id, MARKED, mark_event(Point(version), change.id, verdict))
    said = "is no longer marked" if verdict == CLEAR else f"is marked {verdict}"
    name = f"{change.id[:12]} (version {version} of {len(space.changes)})"
    say(f"{name} {said}; `bisect-train resume {stored.id}` goes on")
    return 0
