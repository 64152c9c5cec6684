"""The story of a branch, commit by commit, for the nights that watch it: what it trains to is a number in one of its files.

night  commits          what happens
1      start            clean: taken as the first good commit
2      docs             clean
3      tidy, worse      a regression
4      docs             it is still there
5      mended           it is fixed
6      tidy, meant      a change that is meant, and a little more (0.06, too small to be seen)
7      creep, creep     a little more (0.06): together as much as the smallest effect that counts, since what was meant
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.git_repos import UserRepo

MIN_EFFECT = 0.1
BRANCH = "main"

STEPS: dict[str, tuple[int, float]] = {
    "start": (1, 0.0),
    "docs": (2, 0.0),
    "tidy": (3, 0.0),
    "worse": (3, 1.0),
    "notes": (4, 1.0),
    "mended": (5, 0.0),
    "rename": (6, 0.0),
    "meant": (6, 0.5),
    "creep1": (6, 0.56),
    "creep2": (7, 0.59),
    "creep3": (7, 0.62),
}
"""Name of a commit -> (night before which it comes, what it adds to the loss)."""


@dataclass(frozen=True)
class BranchStory:
    """The repository with its commits by name; the branch is where the night is that was asked for last."""

    repo: UserRepo
    commits: dict[str, str]

    @staticmethod
    def build(path: Path, *, program: str) -> BranchStory:
        """Write all commits on the branch `all`; `program` is train.py, which reads `settings.PENALTY`."""
        repo = UserRepo.create(path)
        commits = {}
        for name, (_, penalty) in STEPS.items():
            files = {"train.py": program, "settings.py": f"PENALTY = {penalty!r}\n", f"notes/{name}.md": "\n"}
            commits[name] = repo.commit(files, message=f"commit {name}")
        repo.git("checkout", "-q", "-b", "all")
        story = BranchStory(repo, commits)
        story.go_to(1)
        return story

    def go_to(self, night: int) -> str:
        """Move the watched branch to the newest commit of a night, as a push would; return it."""
        newest = [commit for name, commit in self.commits.items() if STEPS[name][0] <= night][-1]
        self.repo.git("branch", "-f", BRANCH, newest)
        return newest
