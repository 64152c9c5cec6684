"""The story of a branch, commit by commit, for the nights that watch it: what it trains to is a sum of numbers, a file each.

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

STEPS: dict[str, tuple[int, dict[str, float]]] = {
    "start": (1, {}),
    "docs": (2, {}),
    "tidy": (3, {}),
    "worse": (3, {"worse": 1.0}),
    "notes": (4, {}),
    "mended": (5, {"worse": 0.0}),
    "rename": (6, {}),
    "meant": (6, {"meant": 0.5}),
    "creep1": (6, {"creep1": 0.06}),
    "creep2": (7, {"creep2": 0.03}),
    "creep3": (7, {"creep3": 0.03}),
}
"""Name of a commit -> (night before which it comes, what it adds to the loss: each change a file of its own)."""

PARTS = ("worse", "meant", "creep1", "creep2", "creep3")
SETTINGS = f"""\
from parts import {", ".join(PARTS)}

PENALTY = sum(part.ADDED for part in ({", ".join(PARTS)}))
"""


def part_path(part: str) -> str:
    """Return the path of the file that says what a part adds to the loss."""
    return f"parts/{part}.py"


def part_text(added: float) -> str:
    """Return the content of such a file."""
    return f"ADDED = {added!r}\n"


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
        start = {"train.py": program, "settings.py": SETTINGS, "parts/__init__.py": ""}
        start.update({part_path(part): part_text(0.0) for part in PARTS})
        for name, (_, added) in STEPS.items():
            files = {part_path(part): part_text(value) for part, value in added.items()}
            commits[name] = repo.commit(
                {**(start if name == "start" else files), f"notes/{name}.md": "\n"}, message=f"commit {name}"
            )
        repo.git("checkout", "-q", "-b", "all")
        story = BranchStory(repo, commits)
        story.go_to(1)
        return story

    def go_to(self, night: int) -> str:
        """Move the watched branch to the newest commit of a night, as a push would; return it."""
        newest = [commit for name, commit in self.commits.items() if STEPS[name][0] <= night][-1]
        self.repo.git("branch", "-f", BRANCH, newest)
        return newest
