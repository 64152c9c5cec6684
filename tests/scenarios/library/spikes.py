"""Case 8: one commit changes three settings of Adam; its longer memory for squared gradients makes the loss jump now and then.

Once in 150 steps a batch comes from a table: one rare symbol over and over, whose code is five times as long, then a letter,
another one in each table. The step after it is 2.7 times as large with beta2 0.999 (0.1 / sqrt(1 / 150)) as with 0.95
(0.1 / sqrt(1 / 20)). The mean of the held-out loss hardly shows it (2.16, not 2.11). How often that loss jumps above its best
does: twice in 312 steps, once with some seeds, and not at all. With beta2 0.95 the commit's other two keys change no
count, with 0.999 the smaller rate takes a few spikes away.
The reports: AI-Hypercomputer/maxtext#17, NVIDIA/Megatron-LM#1582.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.harmless import SORT_KEYS
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import CONFIG_YAML, TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

FEATURES_PY = '''\
import torch
from torch import nn

RARE = 64
WIDTH = 256


class CharModel(nn.Module):
    """Linear on fixed random features of the last few characters."""

    def __init__(self, num_symbols, settings):
        super().__init__()
        context = settings["context"]
        self.register_buffer("rows", torch.arange(context) * num_symbols)
        self.codes = nn.Embedding(context * num_symbols, WIDTH)
        self.codes.requires_grad_(False)
        nn.init.normal_(self.codes.weight, std=settings["init"])
        self.codes.weight[self.rows + RARE] *= 5.0
        self.head = nn.Linear(WIDTH, num_symbols)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs):
        return self.head(self.codes(inputs + self.rows).sum(dim=1).relu())
'''

TABLES_PY = '''\
"""Every so often the text is a table: one symbol over and over, then a letter, another one in each table."""

import torch

from corpus import ALPHABET
from model import RARE

LETTERS = [ALPHABET.index(letter) for letter in "aeiou"]


class WithTables:
    def __init__(self, batches, every):
        self.batches = batches
        self.every = every
        self.num_drawn = 0

    def draw(self):
        inputs, targets = self.batches.draw()
        self.num_drawn += 1
        num_tables, is_text = divmod(self.num_drawn, self.every)
        if not is_text:
            letter = LETTERS[num_tables % len(LETTERS)]
            inputs, targets = torch.full_like(inputs, RARE), torch.full_like(targets, letter)
        return inputs, targets
'''

HELD_OUT_PY = '''\
"""The loss on lines that are kept for this, and how often it has jumped above its best; a jump ends at a new best."""

import torch
import torch.nn.functional as F

ONE_IN = 40
JUMP = 0.022


class HeldOut:
    """Takes its lines out of the corpus."""

    def __init__(self, corpus, context):
        places = torch.cat([torch.arange(*line) for line in corpus.lines[::ONE_IN]])
        del corpus.lines[::ONE_IN]
        self.inputs = corpus.codes[places[:, None] + torch.arange(-context, 0)]
        self.targets = corpus.codes[places]
        self.best = float("inf")
        self.is_above = False
        self.num_spikes = 0

    @torch.no_grad()
    def measure(self, model):
        loss = F.cross_entropy(model(self.inputs), self.targets).item()
        if loss <= self.best:
            self.best, self.is_above = loss, False
        elif not self.is_above and loss > self.best + JUMP:
            self.is_above = True
            self.num_spikes += 1
        return loss, self.num_spikes
'''

_WITH_TABLES = (
    TRAIN_PY.replace("from corpus import load_corpus\n", "from corpus import load_corpus\nfrom held_out import HeldOut\n")
    .replace("from settings import load_settings\n", "from settings import load_settings\nfrom tables import WithTables\n")
    .replace(
        "    return torch.optim.SGD(\n        model.parameters(),\n"
        '        lr=settings["lr"],\n        momentum=settings["momentum"],\n    )\n',
        "    return torch.optim.AdamW(\n        model.head.parameters(),\n"
        '        lr=settings["lr"],\n        betas=(0.9, settings["beta2"]),\n'
        '        weight_decay=settings["weight_decay"],\n    )\n',
    )
    .replace(
        '    batches = Batches(corpus, settings["data"], seed=settings["seed"])\n',
        '    held_out = HeldOut(corpus, settings["data"]["context"])\n'
        '    batches = WithTables(Batches(corpus, settings["data"], seed=settings["seed"]), settings["data"]["table_every"])\n',
    )
    .replace(
        '            print(f"step {step} loss {loss:.4f}")\n',
        '            print(f"step {step} loss {loss:.4f}")\n'
        "        if step % 2 == 0:\n"
        '            print("held out {:.4f}, spikes {}".format(*held_out.measure(model)))\n',
    )
)
_CONFIG = (
    CONFIG_YAML.replace("  lr: 4.0\n  momentum: 0.8\n", "  lr: 3.0e-4\n  beta2: 0.95\n  weight_decay: 0.1\n")
    .replace("  init: 0.02\n", "  init: 8.0\n")
    .replace("  lines: 64\n", "  lines: 32\n  table_every: 150\n")
)

LONGER_MEMORY = Step(
    "config: settings of the large runs",
    (
        Replace("config.yaml", "  lr: 3.0e-4\n", "  lr: 2.8e-4\n"),
        Replace("config.yaml", "  beta2: 0.95\n", "  beta2: 0.999\n"),
        Replace("config.yaml", "  weight_decay: 0.1\n", "  weight_decay: 0.09\n"),
    ),
    role=Role.CULPRIT,
)
_SPIKES_RECIPE = "metrics:\n  spikes: {from: log, pattern: 'spikes (?P<value>[0-9]+)', better: lower, reduce: last}\n"

LOSS_SPIKES = Scenario(
    "case08_beta2",
    weave({6: SORT_KEYS, 12: LONGER_MEMORY}, num=18),
    Truth("isolated", 0, ((LONGER_MEMORY,),), kind_of_change="worse", pieces=("config.yaml:optimizer.beta2",)),
    base={
        "config.yaml": _CONFIG,
        "held_out.py": HELD_OUT_PY,
        "model.py": FEATURES_PY,
        "tables.py": TABLES_PY,
        "train.py": _WITH_TABLES,
    },
    options=("--steps", "312", "--recipe", "{files}/recipe.yaml"),
    files={"recipe.yaml": _SPIKES_RECIPE},
)
