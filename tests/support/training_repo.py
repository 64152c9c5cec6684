"""A small but real torch training in a repository of ordinary commits, one of which makes it worse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.git_repos import UserRepo

COMMAND = ("python", "train.py")

TRAIN_PY = """\
import os

import torch
import torch.distributed as dist

import settings
import version

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
optimizer = torch.optim.SGD(model.parameters(), lr=settings.LR)
if os.environ.get("RUNS_FILE"):
    with open(os.environ["RUNS_FILE"], "a") as runs:
        runs.write(os.environ["BISECT_TRAIN_PROBE"].split(":")[0] + " " + os.environ.get("RANK", "0") + "\\n")
print("settings from", settings.__file__, "version", version.NUMBER, flush=True)
for step in range(settings.STEPS):
    x = torch.randn(256, 8)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", loss.item(), flush=True)
"""


@dataclass(frozen=True)
class TrainingRepo:
    """The repository, its commits from the oldest, and the one that made training worse."""

    repo: UserRepo
    commits: tuple[str, ...]
    culprit: str

    @property
    def good(self) -> str:
        """The oldest commit."""
        return self.commits[0]

    @property
    def bad(self) -> str:
        """The newest commit."""
        return self.commits[-1]


def build_training_repo(path: Path, *, num_commits: int = 9, culprit: int = 5, num_steps: int = 200) -> TrainingRepo:
    """Build it: commit number `culprit` (from 0) lowers the learning rate from 0.05 to 0.0005."""
    repo = UserRepo.create(path)
    commits = []
    for idx in range(num_commits):
        rate = 0.0005 if idx >= culprit else 0.05
        files = {
            "train.py": TRAIN_PY,
            "settings.py": f"LR = {rate}\nSTEPS = {num_steps}\n",
            "version.py": f"NUMBER = {idx - (idx == culprit)}\n",  # not by the culprit: it can be left out alone
        }
        message = "tune the optimizer" if idx == culprit else f"tidy up part {idx}"
        commits.append(repo.commit(files, message=message))
    return TrainingRepo(repo, tuple(commits), commits[culprit])
