"""Case 4: a correctness fix that costs throughput.

A head sees too far back: the settings say how many places it may look, and nobody passed that on. The fix hands a mask to the
attention, which then leaves its fast path: a step takes a third more CPU time. Another commit keeps a summary of the losses, a
few percent more; the answer is the fix, and no advice to revert it: it changes the loss as it should. The report:
huggingface/transformers#30461.

A commit of the second history averages over the steps what no backward pass frees, so that memory grows with each step.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.harmless import HALVES
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import CONFIG_YAML, PROGRAM
from tests.scenarios.library.scenario import Scenario, Truth

MODEL_PY = '''\
"""Two heads that look back over a window, and a layer for each place."""

import torch
import torch.nn.functional as F
from torch import nn


class CharModel(nn.Module):
    def __init__(self, num_symbols, settings):
        super().__init__()
        width, self.num_heads, self.window = settings["width"], settings["heads"], settings["window"]
        self.symbols = nn.Embedding(num_symbols, width)
        self.mixed = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, num_symbols)

    def forward(self, inputs):
        x = self.symbols(inputs)
        batch, time, width = x.shape
        mixed = self.mixed(x).view(batch, time, 3, self.num_heads, width // self.num_heads)
        queries, keys, values = mixed.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        seen = seen.transpose(1, 2).reshape(batch, time, width)
        return self.head(x + seen).flatten(0, 1)
'''

BATCHES_PY = """\
import torch


class Batches:
    def __init__(self, corpus, settings, seed):
        self.corpus = corpus
        self.num_lines = settings["lines"]
        self.places = torch.arange(settings["length"] + 1)
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self):
        last = len(self.corpus.codes) - len(self.places)
        starts = torch.randint(last, (self.num_lines, 1), generator=self.generator)
        line = self.corpus.codes[starts + self.places]
        return line[:, :-1], line[:, 1:].flatten()
"""

_SETTINGS = (
    ("  context: 4\n  lines: 64\n", "  context: 4\n  length: 512\n  lines: 1\n"),
    ("  init: 0.02\n", "  width: 32\n  heads: 2\n  window: 256\n"),
    ("  lr: 4.0\n", "  lr: 0.1\n"),
)


def _config() -> str:
    text = CONFIG_YAML
    for old, new in _SETTINGS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


BASE = {"batches.py": BATCHES_PY, "config.yaml": _config(), "model.py": MODEL_PY}

WINDOW = Step(
    "model: look back no farther than the window",
    (
        Replace(
            "model.py",
            "        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)\n",
            "        places = torch.arange(time)\n        back = places[:, None] - places\n"
            "        mask = (back >= 0) & (back < self.window)\n"
            "        seen = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)\n",
        ),
    ),
    role=Role.CULPRIT,
)
SUMMARY = Step(
    "train: a summary of the last losses",
    (
        Replace("train.py", "import argparse\n", "import argparse\nimport json\n"),
        Replace("train.py", "    for step in range(", "    losses = [0.0] * 200\n    for step in range("),
        Replace(
            "train.py",
            '        if step % settings["log"]["every"] == 0:\n',
            '        losses = [*losses[1:], loss]\n        summary = json.dumps({"step": step, "losses": losses})\n'
            '        if step % settings["log"]["every"] == 0:\n            print(len(summary))\n',
        ),
    ),
    role=Role.DECOY,
)
"""A decoy that takes about 3 % of a step."""
NAMED_WIDTH = Step(
    "model: name the width of a head",
    (
        Replace(
            "model.py",
            "        mixed = self.mixed(x).view(batch, time, 3, self.num_heads, width // self.num_heads)\n",
            "        head_width = width // self.num_heads\n"
            "        mixed = self.mixed(x).view(batch, time, 3, self.num_heads, head_width)\n",
        ),
    ),
    role=Role.DECOY,
)

WITHOUT = ("batches: name the places of a batch",)
SLIDING_WINDOW = Scenario(
    "case04_sliding_window",
    weave({3: NAMED_WIDTH, 6: SUMMARY, 10: WINDOW, 13: HALVES}, num=16, without=WITHOUT),
    Truth("isolated", 0, ((WINDOW,),), kind_of_change="slower", effect=(15.0, 80.0)),
    base=BASE,
    options=("--metric", "step_cpu_s", "--steps", "160"),
)
assert set(BASE) <= set(PROGRAM)

KEPT = Step(
    "train: how sure the model is, on the average",
    (
        Replace(
            "train.py",
            "        loss = micro_loss(model(inputs), targets, num_targets)\n",
            "        logits = model(inputs)\n        loss = micro_loss(logits, targets, num_targets)\n"
            "        model.confidence = 0.99 * model.confidence + 0.01 * logits.softmax(dim=-1).amax(dim=-1).mean()\n",
        ),
        Replace(
            "train.py",
            '    optimizer = make_optimizer(model, settings["optimizer"])\n',
            '    optimizer = make_optimizer(model, settings["optimizer"])\n    model.confidence = 0.0\n',
        ),
    ),
    role=Role.CULPRIT,
)
"""The average keeps the graphs of all steps, and these their activations: nobody goes backward through it."""
GRAPHS_KEPT = Scenario(
    "graphs_kept",
    weave({3: NAMED_WIDTH, 6: HALVES, 9: KEPT}, num=12, without=WITHOUT),
    Truth("isolated", 0, ((KEPT,),), kind_of_change="memory", effect=(10.0, 400.0)),
    base={**BASE, "config.yaml": BASE["config.yaml"].replace("  lines: 1\n", "  lines: 4\n")},
    options=("--metric", "rss_mib", "--steps", "50"),
)
