"""Case 2: the table of rotary positions is stored in the type of the model.

A model in bfloat16 reads the symbol that stands half a window back. Its rotary table was in float32; rounded to the model's
type, the loss of every run rises by a thousandth, thirty times less than what another seed does to it. So seeds are compared in
pairs, and a smallest effect is given that no reordering of a sum in float32 comes near (1e-7 here). In float32 the commit does
nothing at all. The reports: huggingface/transformers#28316, #28602, #25830.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.harmless import HALVES
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import CONFIG_YAML
from tests.scenarios.library.scenario import Scenario, Truth

ROTARY_PY = '''\
"""Rotary positions: a query and a key meet as far apart as their angles say."""

import torch


def angles_of(num_places, width, base):
    """Return the angle of every place, (places, width)."""
    speeds = base ** (-torch.arange(0, width, 2) / width)
    half = torch.outer(torch.arange(num_places).double(), speeds.double())
    return torch.cat([half, half], dim=1).float()


def rotate(x, angles):
    """Turn (batch, time, width) by (time, width) angles."""
    cos = angles.cos()
    sin = angles.sin()
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)
'''

MODEL_PY = '''\
"""One head with rotary positions. It starts as a look half a window back, and repeats the symbol that it sees there."""

import torch
import torch.nn.functional as F
from torch import nn

from rotary import angles_of, rotate


class CharModel(nn.Module):
    def __init__(self, num_symbols, settings):
        super().__init__()
        width, window = settings["width"], settings["window"]
        self.symbols = nn.Embedding(num_symbols, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.head = nn.Linear(width, num_symbols)
        angles = angles_of(window, width, settings["base"])
        self.start(settings["sharpness"], angles[window // 2 - 1 : window // 2])
        self.to(getattr(torch, settings["dtype"]))
        self.register_buffer("angles", angles)

    @torch.no_grad()
    def start(self, sharpness, angles):
        """The same start for every seed: symbols are told apart, and queries meet the keys that lie `angles` back."""
        numbers = torch.arange(1, self.symbols.weight.numel() + 1).double()
        spread = (torch.sin(numbers * 12.9898) * 43758.5453) % 1.0
        self.symbols.weight.copy_((2.0 * spread - 1.0).view_as(self.symbols.weight))
        for layer in (self.query, self.key, self.out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.eye_(self.out.weight)
        self.head.weight.copy_(0.5 * self.symbols.weight)
        nn.init.zeros_(self.head.bias)
        self.query.bias.fill_(sharpness)
        turned = rotate(self.query.bias.view(1, 1, -1), angles)
        self.key.bias.copy_(turned.view(-1))

    def forward(self, inputs):
        """Return the scores of every symbol after each of the later half of the places, (batch * places, symbols)."""
        x = self.symbols(inputs)
        angles = self.angles[: x.shape[1]]
        queries, keys = rotate(self.query(x), angles), rotate(self.key(x), angles)
        seen = F.scaled_dot_product_attention(queries[:, None], keys[:, None], x[:, None], is_causal=True)[:, 0]
        scores = self.head(self.out(seen)).float()
        return scores[:, x.shape[1] // 2 :].flatten(0, 1)
'''

BATCHES_PY = """\
import torch


class Batches:
    def __init__(self, corpus, settings, seed):
        self.corpus = corpus
        self.num_lines = settings["lines"]
        self.half = torch.arange(settings["window"] // 2)
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self):
        starts = torch.randint(len(self.corpus.codes) - len(self.half), (self.num_lines, 1), generator=self.generator)
        once = self.corpus.codes[starts + self.half]
        window = torch.cat([once, once], dim=1)
        return window[:, :-1], window[:, len(self.half) :].flatten()
"""

_SETTINGS = (
    ("  context: 4\n  lines: 64\n", "  context: 4\n  window: 256\n  lines: 4\n"),
    ("  init: 0.02\n", "  width: 32\n  window: 256\n  base: 10000\n  sharpness: 1.5\n  dtype: bfloat16\n"),
    ("  lr: 4.0\n", "  lr: 0.005\n"),
)

ROUND_TABLE = Step(
    "rotary: no float32 in a bfloat16 model",
    (
        Replace("rotary.py", "    cos = angles.cos()\n", "    cos = angles.cos().to(x.dtype)\n"),
        Replace("rotary.py", "    sin = angles.sin()\n", "    sin = angles.sin().to(x.dtype)\n"),
    ),
    role=Role.CULPRIT,
)
NAMED_HALVES = Step(
    "rotary: name the turned half",
    (
        Replace(
            "rotary.py",
            "    return (x * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)\n",
            "    turned = torch.cat([-right, left], dim=-1)\n    return (x * cos + turned * sin).to(x.dtype)\n",
        ),
    ),
    role=Role.DECOY,
)
"""A decoy in the same function that keeps the bits."""


def _config() -> str:
    text = CONFIG_YAML
    for old, new in _SETTINGS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


ROTARY_TABLE = Scenario(
    "case02_rotary_table",
    weave({4: HALVES, 7: NAMED_HALVES, 11: ROUND_TABLE}, num=18, without=("batches: name the places of a batch",)),
    Truth(
        "isolated",
        0,
        ((ROUND_TABLE,),),
        effect=(6e-4, 1.6e-3),
        stage="forward",
        told=("first differ at step 0 in the forward pass",),
    ),
    base={"batches.py": BATCHES_PY, "config.yaml": _config(), "model.py": MODEL_PY, "rotary.py": ROTARY_PY},
    options=("--min-effect", "3e-4"),
)
