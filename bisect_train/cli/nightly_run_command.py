"""`bisect-train nightly run`: one night of a branch."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked, Output, split_options
from bisect_train.cli.desk import Desk, open_desk
from bisect_train.cli.nightly_asking import (
    Wanted,
    links_of,
    newest_commit,
    open_watch,
    pinned_of,
    ranges_of,
    tonight_of,
)
from bisect_train.cli.nightly_desk import open_log
from bisect_train.cli.nightly_running import Ancestry, Bisections
from bisect_train.cli.nightly_telling import Place, places_of
from bisect_train.cli.nightly_view import deliver_night
from bisect_train.cli.options import judge_options, output_options, prior_options, probe_options, search_options, what_options
from bisect_train.cli.telling_options import check_addresses
from bisect_train.cli.terminal import say
from bisect_train.nightly.night import Watchman, run_night
from bisect_train.store.nightly_contract import NightlyLog


def _watch_options(function: Any) -> Any:
    """Add what is watched, what it is compared with, and who is told."""
    for option in reversed(
        [
            click.option("--branch", required=True, metavar="NAME", help="The branch to watch (any revision)."),
            click.option("--name", default="", metavar="NAME", help="Name of the watch [default: folder and branch]."),
            click.option("--good", metavar="REV", help="Good commit where none is known behind the newest one [default on the"
                         " first night: the newest one, once it was seen to repeat itself]."),
            click.option("--pinned", metavar="REV|baseline:NAME", help="Also compare with this one, so that what becomes worse"
                         " in steps too small to be seen is found."),
            click.option("--pinned-every", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
                         help="Compare with the pinned one every N nights."),
            click.option("--fetch", is_flag=True, help="Fetch the branch first."),
            click.option("--remote", default="origin", show_default=True, metavar="NAME", help="Remote to fetch it from."),
            click.option("--no-first-parent", "first_parent", flag_value=False, default=True,
                         help="Search all commits at once, those of merged branches too."),
            click.option("--no-descend", "descend", flag_value=False, default=True, help="Do not look inside a merge."),
            click.option("--skip", multiple=True, metavar="REV", help="Never run this commit, or this range A..B."),
            click.option("--tell", multiple=True, metavar="ADDRESS", callback=check_addresses,
                         help="Tell this place of findings, each once (`bisect-train tell --help`); may be repeated."),
            click.option("--candidates", "with_candidates", is_flag=True, help="Tell what is not proved, too."),
            click.option("--mention-author", "mention_authors", is_flag=True, help="Call authors of culprits by name."),
            click.option("--link", "links", multiple=True, metavar="WORDS=URL", help="Link for messages; {bisection}, {commit}"
                         " and {finding} are filled in. May be repeated."),
            click.option("--again", is_flag=True, help="Compare again though this commit was answered."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


@click.command("run")
@_watch_options
@what_options
@prior_options
@probe_options
@judge_options
@search_options
@output_options
def command(**values: Any) -> int:
    """Compare a branch's newest commit with its last good one; bisect if it is worse.

    Nothing is fetched without --fetch. COMMAND is the training command behind `--`, unless a recipe names it. --expect REV
    calls a change intended, as `bisect-train nightly expect` does.

    \b
    Examples:
      bisect-train nightly --branch main --recipe train.yaml --tell env:SLACK_URL
      bisect-train nightly --branch main --fetch --pinned baseline:main --json night.json -- python train.py

    \b
    Exit status: 0 no regression (the last good commit moves on), 1 it could not be tested, 2 bad input, 3 cannot tell,
    5 a regression or a drift was found or is still there, 130 interrupted: the same command goes on.
    """
    asked, output, rest = split_options(values)
    places = places_of(output.tell, with_candidates=rest["with_candidates"], mention_authors=rest["mention_authors"])
    names = ("branch", "name", "good", "pinned", "pinned_every", "fetch", "remote")
    wanted = Wanted(**{name: rest[name] for name in names}, links=links_of(rest["links"]))
    with open_desk() as desk, ExitStack() as stack:
        repository = Repository.open(asked.repo, home=desk.home)
        night = _Night(desk, repository, open_log(desk), asked, output, wanted)
        return night.run(stack, places, is_forced=rest["again"])


@dataclass(frozen=True, slots=True)
class _Night:
    """A night as it was asked for."""

    desk: Desk
    repository: Repository
    log: NightlyLog
    asked: Asked
    output: Output
    wanted: Wanted

    def run(self, stack: ExitStack, places: list[Place], *, is_forced: bool) -> int:
        """Run it under the lock of its watch; print and write the outcome; return the exit status."""
        wanted, log = self.wanted, self.log
        commit = newest_commit(self.repository, wanted)
        repository = Repository.open(self.asked.repo, home=self.desk.home)  # what was fetched may have new packs
        pinned, baseline = pinned_of(repository, wanted)
        good = repository.resolve(wanted.good) if wanted.good else ""
        ranges = ranges_of(repository, self.asked)
        intended = {repository.resolve(rev): "" for rev in self.asked.expect}
        intended |= {item.commit: item.reason for item in baseline.intended} if baseline else {}
        runner = Bisections(self.desk, repository, self.asked, ranges, self.output, baseline, stack)
        question = runner.question(commit, commit)
        watch = open_watch(log, repository, wanted)
        tonight = tonight_of(watch, repository, wanted, question, pinned=pinned, commit=commit)
        man = Watchman(log, runner, Ancestry(repository), places, time.time, self._say)
        with log.lock(watch.name):
            report = run_night(man, tonight, first_good=good, is_forced=is_forced, intended=intended)
        return deliver_night(report, tonight, runner.reports, output=self.output)

    def _say(self, text: str) -> None:
        if not self.output.quiet:
            say(text, err=True)
