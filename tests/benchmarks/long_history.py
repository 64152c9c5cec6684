"""A repository of 256 ordinary commits, one of which makes training worse at once: the scenario of `bench_bisect`.

The program is a small character model in torch, 2,000 steps long, deterministic. Starting it (importing torch) takes longer
than its first twenty steps, and those show the culprit: the learning rate is a hundredth of what it was, from a commit on that
looks like a refactoring. A fifth of the other commits are decoys: settings with suspicious names that change nothing, or, where
that is asked for, settings that change the numbers by a hair. The rest are refactorings, tools, tests and docs. The commits are
the same on every machine. Each optimizer step appends a byte to the file that STEP_LOG names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.git_repos import git

NUM_COMMITS = 256
NUM_STEPS = 2000
CULPRIT = 173  # of 1..256, counted from the good end
COMMAND = ("python", "train.py")

_TRAIN = '''"""Trains a small character model: python train.py [--steps N] [--seed N]"""
import argparse
import os

import torch

from data import Corpus
from model import CharModel
from optim import build_optimizer, rate_at
from settings import BATCH_SIZE, CLIP, SEED


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default={num_steps})
    parser.add_argument("--seed", type=int, default=SEED)
    return parser.parse_args()


def train(steps, seed):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    corpus = Corpus()
    model = CharModel(corpus.num_symbols)
    optimizer = build_optimizer(model)
    log = os.open(os.environ.get("STEP_LOG") or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        loss = model.loss(*corpus.batch(BATCH_SIZE))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        os.write(log, b".")
        if step % 10 == 0 or step == steps - 1:
            print(f"step {{step}} loss {{loss.item():.6f}}", flush=True)


if __name__ == "__main__":
    arguments = parse_args()
    train(arguments.steps, arguments.seed)
'''
_DATA = '''"""Sentences of made-up words, the same on every machine."""
import random

import torch

from settings import CONTEXT, NUM_WORDS


def write_text():
    chooser = random.Random(5)
    words = ["".join(chooser.choice("aeiou" if idx % 2 else "bdklmnrst") for idx in range(4)) for _ in range(40)]
    return " ".join(chooser.choice(words) for _ in range(NUM_WORDS))


class Corpus:
    def __init__(self):
        text = write_text()
        symbols = sorted(set(text))
        self.num_symbols = len(symbols)
        self.ids = torch.tensor([symbols.index(symbol) for symbol in text])

    def batch(self, size):
        starts = torch.randint(len(self.ids) - CONTEXT - 1, (size,)).tolist()
        rows = torch.stack([self.ids[start : start + CONTEXT + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]
'''
_MODEL = '''"""A transformer of two blocks."""
import torch
from torch import nn
from torch.nn import functional as F

from settings import CONTEXT, HEADS, INIT_STD, WIDTH


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
{attend}
{widen}


class CharModel(nn.Module):
    def __init__(self, num_symbols):
        super().__init__()
        self.symbols, self.places = nn.Embedding(num_symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, num_symbols)
        for name, weights in self.named_parameters():
            if weights.dim() > 1:
                nn.init.normal_(weights, std=INIT_STD)

    def loss(self, inputs, targets):
{score}
'''
_OPTIM = '''"""Optimizer and learning rate."""
import torch

from settings import BETA2, EPS, RATE, WARMUP_STEPS, WEIGHT_DECAY


def build_optimizer(model):
{groups}


{rate}
'''
_ATTEND = (
    """        rows, places, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(rows, places, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, places, width))""",
    """        rows, places, width = x.shape
        mixed = self.qkv(self.first(x)).view(rows, places, 3, HEADS, width // HEADS)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, places, width))""",
)
_WIDEN = (
    "        return x + self.down(F.gelu(self.up(self.second(x))))",
    """        wide = self.up(self.second(x))
        return x + self.down(F.gelu(wide))""",
)
_SCORE = (
    """        places = torch.arange(inputs.shape[1])
        logits = self.head(self.norm(self.blocks(self.symbols(inputs) + self.places(places))))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())""",
    """        x = self.symbols(inputs) + self.places(torch.arange(inputs.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))""",
)
_GROUPS = (
    "    return torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, BETA2), eps=EPS, weight_decay=WEIGHT_DECAY)",
    """    options = {"lr": RATE, "betas": (0.9, BETA2), "eps": EPS, "weight_decay": WEIGHT_DECAY}
    return torch.optim.AdamW(list(model.parameters()), **options)""",
)
_RATE = """def rate_at(step):
    return RATE * min(1.0, (step + 1) / WARMUP_STEPS)"""
_WORSE_RATE = '''def rate_at(step):
    """Percent of the peak, climbing during the warm-up."""
    percent = min(1.0, (step + 1) / WARMUP_STEPS)
    return RATE * percent / 100'''
_SETTINGS = {
    "SEED": "1234",
    "WIDTH": "64",
    "HEADS": "4",
    "CONTEXT": "32",
    "BATCH_SIZE": "16",
    "NUM_WORDS": "4000",
    "CLIP": "1.0",
    "RATE": "0.003",
    "WARMUP_STEPS": "4",
    "INIT_STD": "0.02",
    "BETA2": "0.99",
    "EPS": "1e-08",
    "WEIGHT_DECAY": "0.01",
    "FINAL_RATE": "0.0003",
    "LABEL_SMOOTHING_LATER": "0.1",
    "GRADIENT_NOISE_OFF": "1",
}
# decoys: what a setting is moved to, by turns. Nothing reads these yet
_SILENT_DECOYS = {
    "FINAL_RATE": ("0.0001", "0.0003", "0.001"),
    "LABEL_SMOOTHING_LATER": ("0.05", "0.1", "0.2"),
    "GRADIENT_NOISE_OFF": ("0", "1"),
}
# these change a run in its last digits
_LOUD_DECOYS = {
    "INIT_STD": ("0.0201", "0.02", "0.0199"),
    "BETA2": ("0.991", "0.99", "0.989"),
    "EPS": ("2e-08", "1e-08"),
    "WEIGHT_DECAY": ("0.011", "0.01", "0.009"),
}
_BLOCKS = {"attend": _ATTEND, "widen": _WIDEN, "score": _SCORE, "groups": _GROUPS}


Decoys = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class LongHistory:
    """The repository.

    Attributes:
        path: of the working tree, at the bad end.
        commits: 40 hex digits each, from the good end to the bad end, NUM_COMMITS + 1 of them.
    """

    path: Path
    commits: tuple[str, ...]

    @property
    def culprit(self) -> str:
        """The commit that makes it worse."""
        return self.commits[CULPRIT]


def build_long_history(folder: Path, *, has_loud_decoys: bool = False) -> LongHistory:
    """Write the repository into a folder that does not exist yet; loud decoys change the numbers by a hair."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "fast-import", "--quiet", stdin="".join(_stream(_LOUD_DECOYS if has_loud_decoys else _SILENT_DECOYS)).encode())
    git(folder, "reset", "-q", "--hard", "main")
    commits = git(folder, "rev-list", "--reverse", "main").split()
    assert len(commits) == NUM_COMMITS + 1, len(commits)
    return LongHistory(folder, tuple(commits))


class _State:
    """The files as they are after some commits."""

    def __init__(self, decoys: Decoys) -> None:
        self.decoys = decoys
        self.settings = dict(_SETTINGS)
        self.spelling = dict.fromkeys(_BLOCKS, 0)
        self.is_worse = False
        self.others = {"README.md": "# charmodel\n\nA small character model.\n"}

    def files(self) -> dict[str, str]:
        block = {name: texts[self.spelling[name]] for name, texts in _BLOCKS.items()}
        block["rate"] = _WORSE_RATE if self.is_worse else _RATE
        return {
            **self.others,
            "train.py": _TRAIN.format(num_steps=NUM_STEPS),
            "data.py": _DATA,
            "model.py": _MODEL.format(**block),
            "optim.py": _OPTIM.format(**block),
            "settings.py": "".join(f"{name} = {value}\n" for name, value in self.settings.items()),
        }

    def change(self, idx: int, chooser: random.Random) -> str:
        """Make commit `idx`; return its message."""
        if idx == CULPRIT:
            self.is_worse = True
            return "optim: say in percent how far the warm-up has come"
        kind = chooser.choices(("docs", "tool", "test", "refactor", "decoy"), (25, 20, 10, 25, 20))[0]
        if kind == "decoy":
            name = chooser.choice(sorted(self.decoys))
            value = chooser.choice([value for value in self.decoys[name] if value != self.settings[name]])
            self.settings[name] = value
            return f"settings: {name} {value}"
        if kind == "refactor":
            name = chooser.choice(sorted(_BLOCKS))
            self.spelling[name] = 1 - self.spelling[name]
            return f"model: clearer names ({name})"
        if kind == "docs":
            self.others["README.md"] += f"\nNote {idx}: see the settings.\n"
            return f"docs: note {idx}"
        name = f"tools/show_{idx % 7}.py" if kind == "tool" else f"tests/test_{idx % 5}.py"
        body = f"def show():\n    return {idx}\n" if kind == "tool" else f"def test_count():\n    assert {idx} == {idx}\n"
        self.others[name] = body
        return f"{kind}s: {name}"


def _stream(decoys: Decoys) -> Iterator[str]:
    """Yield the input of `git fast-import`."""
    state, chooser = _State(decoys), random.Random(11)
    for idx in range(NUM_COMMITS + 1):
        message = state.change(idx, chooser) if idx else "the first version"
        yield f"commit refs/heads/main\ncommitter A U Thor <author@example.org> {1700000000 + 3600 * idx} +0000\n"
        yield f"data {len(message.encode())}\n{message}\ndeleteall\n"
        for path, text in sorted(state.files().items()):
            yield f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n"
