"""The program that every scenario starts from: softmax regression over the last few characters of text that python carries.

A step takes a few milliseconds, so a probe is little more than the import of torch. It seeds itself, accumulates over
micro-batches of unequal size and prints its loss, as such programs do; nothing in it is made for a bisection.
"""

from __future__ import annotations

COMMAND = ("python", "train.py", "--config", "config.yaml")

TRAIN_PY = '''\
"""Train a small character model: which character comes next?

    python train.py --config config.yaml
"""

import argparse

import torch

from batches import Batches
from corpus import load_corpus
from model import CharModel
from objective import micro_loss
from settings import load_settings


def parse_args():
    parser = argparse.ArgumentParser(description="Train a character model.")
    parser.add_argument("--config", default="config.yaml")
    return parser.parse_args()


def halve_every(step, period):
    return 0.5 ** (step // period)


def make_optimizer(model, settings):
    return torch.optim.SGD(
        model.parameters(),
        lr=settings["lr"],
        momentum=settings["momentum"],
    )


def train_step(model, optimizer, micro_batches):
    """One update from several micro-batches; return the loss of the step."""
    num_targets = sum(len(targets) for _, targets in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        loss = micro_loss(model(inputs), targets, num_targets)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def train(settings):
    torch.manual_seed(settings["seed"])
    corpus = load_corpus(settings["data"])
    print(f"{len(corpus.codes)} characters, {corpus.num_symbols} symbols")

    batches = Batches(corpus, settings["data"], seed=settings["seed"])
    model = CharModel(corpus.num_symbols, settings["model"])
    optimizer = make_optimizer(model, settings["optimizer"])

    for step in range(settings["train"]["steps"]):
        micro_batches = [batches.draw() for _ in range(settings["train"]["accumulate"])]
        loss = train_step(model, optimizer, micro_batches)
        if step % settings["log"]["every"] == 0:
            print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    train(load_settings(parse_args().config))
'''

CORPUS_PY = """\
from pydoc_data.topics import topics

import torch

SHORTEST_LINE = 24
ALPHABET = "".join(chr(code) for code in range(32, 127))


class Corpus:
    def __init__(self, text, context):
        place = {symbol: code for code, symbol in enumerate(ALPHABET)}
        self.num_symbols = len(ALPHABET)
        self.codes = torch.tensor([place.get(symbol, 0) for symbol in text])
        self.lines = []
        start = 0
        for line in text.split("\\n"):
            stop = start + len(line)
            if len(line) >= SHORTEST_LINE and start >= context:
                self.lines.append((start, stop))
            start = stop + 1


def load_corpus(settings):
    text = "\\n".join(topics[name] for name in sorted(topics))
    text = text[: settings["max_chars"]]
    return Corpus(text, settings["context"])
"""

BATCHES_PY = '''\
import torch


class Batches:
    def __init__(self, corpus, settings, seed):
        self.corpus = corpus
        self.num_lines = settings["lines"]
        self.offsets = torch.arange(-settings["context"], 0)
        self.generator = torch.Generator().manual_seed(seed)
        self.order = []

    def shuffle(self):
        """All lines in a random order."""
        num = len(self.corpus.lines)
        return torch.randperm(num, generator=self.generator).tolist()

    def draw(self):
        if len(self.order) < self.num_lines:
            self.order = self.shuffle()
        chosen = self.order[: self.num_lines]
        self.order = self.order[self.num_lines :]
        places = torch.cat([torch.arange(*self.corpus.lines[idx]) for idx in chosen])
        inputs = self.corpus.codes[places[:, None] + self.offsets]
        return inputs, self.corpus.codes[places]
'''

MODEL_PY = """\
import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, num_symbols, settings):
        super().__init__()
        context = settings["context"]
        self.table = nn.Embedding(context * num_symbols, num_symbols)
        nn.init.normal_(self.table.weight, std=settings["init"])
        self.bias = nn.Parameter(torch.zeros(num_symbols))
        self.register_buffer("rows", torch.arange(context) * num_symbols)

    def forward(self, inputs):
        scores = self.table(inputs + self.rows)
        return scores.sum(dim=1) + self.bias
"""

OBJECTIVE_PY = '''\
"""What the model is trained for."""

import torch.nn.functional as F


def micro_loss(logits, targets, num_targets):
    """The part of one micro-batch in the mean over all targets of the step."""
    summed = F.cross_entropy(logits, targets, reduction="sum")
    return summed / num_targets
'''

SETTINGS_PY = """\
import yaml


def load_settings(path):
    with open(path) as file:
        settings = yaml.safe_load(file)
    settings["model"]["context"] = settings["data"]["context"]
    return settings
"""

CONFIG_YAML = """\
seed: 11

data:
  max_chars: 60000
  context: 4
  lines: 64

model:
  init: 0.02

optimizer:
  lr: 4.0
  momentum: 0.8

train:
  accumulate: 1
  steps: 600

log:
  every: 5
"""

README_MD = """\
# charmodel

A small character model. The text is the help that comes with Python, so there is nothing to download.

    python train.py --config config.yaml
"""

NOTES_MD = """\
# Notes

Lines are batched, not windows of equal length: a line is the unit that people read.
"""

PROGRAM: dict[str, str] = {
    "README.md": README_MD,
    "batches.py": BATCHES_PY,
    "config.yaml": CONFIG_YAML,
    "corpus.py": CORPUS_PY,
    "docs/notes.md": NOTES_MD,
    "model.py": MODEL_PY,
    "objective.py": OBJECTIVE_PY,
    "settings.py": SETTINGS_PY,
    "train.py": TRAIN_PY,
}
