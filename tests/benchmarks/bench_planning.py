"""Planning on a range of 100,000 commits against `git rev-list` of the same range.

Run: python -m tests.benchmarks.bench_planning [--commits 100000] [--rounds 5] [--json FILE]
From two revisions to the list of changes and the first plan, as `run --dry-run` does it, in this process: open the repository,
resolve, read the history, make the changes, plan. Beside it the first plan of the search (its ends proved) and the whole
command `bisect-train run --dry-run`. Medians, of wall time and of processor time (git's included); the goal is 3 times
`git rev-list --first-parent` in wall time; the status is 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator.observing import rules_for
from bisect_train.core.question import Question
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, Rules
from tests.benchmarks.accounting import describe_machine
from tests.benchmarks.bench_history import write_stream
from tests.benchmarks.lifetimes import timed
from tests.support.git_repos import git, question_of
from tests.support.simulated_regression import step_world

MOST = 3.0


class Range:
    """A linear history, and what is timed on it."""

    def __init__(self, folder: Path, num_commits: int) -> None:
        self.folder, self.home = folder / "repo", folder / "home"
        self.folder.mkdir()
        git(self.folder, "init", "-q", "-b", "main")
        git(self.folder, "fast-import", "--quiet", stdin="".join(write_stream(num_commits)).encode())
        git(self.folder, "reset", "-q", "--hard", "main")
        self.good = git(self.folder, "rev-list", "--max-parents=0", "main")
        self.question: Question | None = None
        self.space: ChangeSpace | None = None

    def rev_list(self) -> None:
        """What git itself takes to list the range."""
        git(self.folder, "rev-list", "--first-parent", f"{self.good}..main")

    def plan(self) -> None:
        """From revisions to the first plan."""
        repository = Repository.open(self.folder, home=self.home)
        bad = repository.resolve("main")
        self.question = question_of(repository.resolve(self.good), bad)
        self.space = build_space(repository, self.question)
        rules = rules_for(self.question, self.space)
        make_plan(rules, Known(slots=2))

    def prepare_search(self) -> Callable[[], None]:
        """Return a step: the first plan after the ends were proved."""
        assert self.question is not None and self.space is not None
        rules = rules_for(self.question, self.space)
        world = step_world(rules.num_changes, rules.num_changes // 3, 30.0)
        known = Known(slots=2)
        while (plan := make_plan(rules, known)).phase is Phase.ENDS:
            known = replace(known, observations=[*known.observations, *(world.run(request) for request in plan.wanted)])
        return lambda: _plan_again(rules, known)

    def command(self, *args: str) -> None:
        """A whole command."""
        command = [sys.executable, "-m", "bisect_train.cli.main", *args, "--good", self.good, "--", "python", "-c", "pass"]
        env = {"BISECT_TRAIN_HOME": str(self.home), "PATH": "/usr/bin:/bin:/usr/local/bin"}
        subprocess.run(command, cwd=self.folder, env=env, check=True, capture_output=True)


def _plan_again(rules: Rules, known: Known) -> None:
    assert make_plan(rules, known).phase is Phase.SEARCH


def medians(step: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Return the medians of wall and processor seconds (children's included) of a step; it runs once before, unmeasured."""
    step()
    walls, cpus = [], []
    for _ in range(rounds):
        before_s = _cpu_s()
        with timed() as taken:
            step()
        walls.append(taken[0])
        cpus.append(_cpu_s() - before_s)
    return statistics.median(walls), statistics.median(cpus)


def _cpu_s() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main() -> int:
    """Print the table; the status is 1 where the bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        timed_range = Range(Path(name), asked.commits)
        rows = {"git rev-list --first-parent": medians(timed_range.rev_list, asked.rounds)}
        rows["to the first plan"] = medians(timed_range.plan, asked.rounds)
        rows["first plan of the search"] = medians(timed_range.prepare_search(), asked.rounds)
        rows["bisect-train run --dry-run, the whole command"] = medians(lambda: timed_range.command("run", "--dry-run"), 1)
    listing, ours = rows["git rev-list --first-parent"], rows["to the first plan"]
    ratio = ours[0] / listing[0]
    print(f"{asked.commits:,} commits; {machine}\n")
    print("| what | wall s | / rev-list | processor s | / rev-list |\n| --- | --- | --- | --- | --- |")
    for what, (wall_s, cpu_s) in rows.items():
        print(f"| {what} | {wall_s:.2f} | {wall_s / listing[0]:.1f} | {cpu_s:.2f} | {cpu_s / listing[1]:.1f} |")
    print(f"\nat most {MOST:g} times `git rev-list`: {'yes' if ratio <= MOST else '**no**'} ({ratio:.2f})")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine, "seconds": rows, "ratio": ratio, "most": MOST}, indent=1))
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
