"""The program of the scenarios that need more than one process: windows of text, cut into files that the ranks share out.

Each rank takes every W-th file of one shuffled list, torch's wrapper takes the mean of the gradients, and the last weights are
saved by rank 0 while the others wait. With one rank it is an ordinary program.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.program import CONFIG_YAML, TRAIN_PY

_IMPORTS = '''\
"""Train a small character model: which character comes next?

    python train.py --config config.yaml
    torchrun --nproc_per_node 2 train.py --config config.yaml
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks
from checkpoint import save
from corpus import load_corpus
from files import Files
from model import CharModel
from objective import step_loss
from settings import load_settings
'''

_TRAIN = '''\
def train_step(model, optimizer, batch, *, clip):
    """One update; return the loss of the step."""
    inputs, targets = batch
    optimizer.zero_grad()
    loss = step_loss(model(inputs), targets)
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


def train(settings):
    torch.manual_seed(settings["seed"])
    corpus = load_corpus(settings["data"])
    print(f"{len(corpus.codes)} characters, {corpus.num_symbols} symbols")

    ranks.join()
    files = Files(corpus, settings["data"], seed=settings["seed"])
    model = CharModel(corpus.num_symbols, settings["model"])
    if ranks.world() > 1:
        model = DistributedDataParallel(model)
    optimizer = make_optimizer(model, settings["optimizer"])

    for step in range(settings["train"]["steps"]):
        loss = train_step(model, optimizer, files.draw(), clip=settings["train"]["clip"])
        if step % settings["log"]["every"] == 0:
            print(f"step {step} loss {loss:.4f}")
    finish(model, loss)


def finish(model, loss):
    """Save the weights, then tell the mean of the last losses of all ranks."""
    save(model, "last.pt")
    if ranks.world() > 1:
        dist.barrier()
    mean = ranks.sum_over_ranks(torch.tensor(loss)) / ranks.world()
    if ranks.rank() == 0:
        print(f"last loss {mean.item():.4f}")
    ranks.leave()
'''

_OPTIMIZER = TRAIN_PY[TRAIN_PY.index("def parse_args():") : TRAIN_PY.index("def train_step(")]
_MAIN = TRAIN_PY[TRAIN_PY.index('if __name__ == "__main__":') :]

RANKS_PY = '''\
"""Processes that train together; alone where no launcher started more."""

import os

import torch.distributed as dist


def rank():
    return int(os.environ.get("RANK", "0"))


def world():
    return int(os.environ.get("WORLD_SIZE", "1"))


def join():
    if world() > 1:
        dist.init_process_group("gloo")


def leave():
    if world() > 1:
        dist.destroy_process_group()


def sum_over_ranks(number):
    """Return the sum of a tensor over all ranks, without a gradient."""
    total = number.detach().clone()
    if world() > 1:
        dist.all_reduce(total)
    return total
'''

FILES_PY = '''\
"""The text as many small files, which the ranks share out."""

import random

import torch

import ranks


class Files:
    def __init__(self, corpus, settings, seed):
        length = settings["length"] + 1
        num = len(corpus.codes) // length
        self.windows = corpus.codes[: num * length].view(num, length)
        self.num_lines = settings["lines"]
        self.seed = seed
        self.order = []
        self.epoch = 0

    def shuffle(self):
        """The files of this rank, in a random order."""
        rng = random.Random(self.seed)
        names = list(range(len(self.windows)))
        for _ in range(self.epoch + 1):
            rng.shuffle(names)
        self.epoch += 1
        return names[ranks.rank() :: ranks.world()]

    def draw(self):
        if len(self.order) < self.num_lines:
            self.order = self.shuffle()
        chosen = torch.tensor(self.order[: self.num_lines])
        self.order = self.order[self.num_lines :]
        windows = self.windows[chosen]
        return windows[:, :-1], windows[:, 1:]
'''

MODEL_PY = """\
import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, num_symbols, settings):
        super().__init__()
        self.context = settings["context"]
        self.table = nn.Embedding(self.context * num_symbols, num_symbols)
        nn.init.normal_(self.table.weight, std=settings["init"])
        self.bias = nn.Parameter(torch.zeros(num_symbols))
        self.register_buffer("rows", torch.arange(self.context) * num_symbols)

    def forward(self, inputs):
        near = inputs.unfold(1, self.context, 1) + self.rows
        return self.table(near).sum(dim=2) + self.bias
"""

OBJECTIVE_PY = '''\
"""What the model is trained for."""

import torch
import torch.nn.functional as F

import ranks


def step_loss(scores, targets):
    """The part of this rank in the mean over all targets; the wrapper takes the mean of the gradients."""
    targets = targets[:, -scores.shape[1] :]
    summed = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum")
    num_targets = ranks.sum_over_ranks(torch.tensor(float(targets.numel())))
    return summed * ranks.world() / num_targets
'''

CHECKPOINT_PY = '''\
"""Weights on disk."""

import torch
import torch.distributed as dist

import ranks


def save(model, path):
    """Rank 0 writes the weights; nobody goes on before they are there."""
    if ranks.rank() == 0:
        torch.save(model.state_dict(), path)
    if ranks.world() > 1:
        dist.barrier()
'''

CONFIG = (
    CONFIG_YAML.replace("  max_chars: 60000\n", "  max_chars: 50000\n")
    .replace("  lines: 64\n", "  length: 64\n  lines: 16\n")
    .replace("  accumulate: 1\n", "  clip: 0\n")
)
"""With two ranks an epoch is 24 steps, to a window."""
PARALLEL: dict[str, str] = {
    "checkpoint.py": CHECKPOINT_PY,
    "config.yaml": CONFIG,
    "files.py": FILES_PY,
    "model.py": MODEL_PY,
    "objective.py": OBJECTIVE_PY,
    "ranks.py": RANKS_PY,
    "train.py": f"{_IMPORTS}\n\n{_OPTIMIZER}{_TRAIN}\n\n{_MAIN}",
}
"""Files that replace those of the common program, or come beside them."""
LEFT_OUT = ("batches: name the places of a batch", "batches: what a batch is")
"""Ordinary commits that do not fit: they touch a file that this program does not use."""

SUM_BACKWARDS = Step(
    "model: sum from the nearest character",
    (Replace("model.py", "self.table(near).sum(dim=2)", "self.table(near).flip(2).sum(dim=2)"),),
    role=Role.DECOY,
)
"""A decoy: the same sum in another order."""
