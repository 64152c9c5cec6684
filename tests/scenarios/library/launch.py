"""Case 7: scaling the learning rate with the batch is dropped, and the run is started with fewer processes.

With eight processes the scale is 1, so the commit changes nothing there; with two processes and the scale, nothing goes wrong
either. Without the scale two processes take four times the rate that their batch bears, and the loss overflows. The processes
are emulated in one. The reports: open-mmlab/mmdetection#3240, #1710.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.harmless import SORT_KEYS
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import BATCHES_PY, CONFIG_YAML, TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

RATES_PY = '''\
"""The learning rate of a run."""


def base_rate(settings, world):
    """The rate of the config holds for a batch of 16."""
    rate = settings["optimizer"]["lr"]
    rate *= world * settings["train"]["per_proc"] / 16
    return rate
'''

CODES_PY = '''\
import torch
from torch import nn

NUM_CODES = 8192


class CharModel(nn.Module):
    """Linear on fixed random codes of the characters before."""

    def __init__(self, num_symbols, settings):
        super().__init__()
        width = settings["width"]
        self.codes = nn.Embedding(NUM_CODES, width)
        self.codes.requires_grad_(False)
        self.head = nn.Linear(width, num_symbols, bias=False)
        nn.init.zeros_(self.head.weight)
        self.register_buffer("places", 31 ** torch.arange(settings["context"]))

    def forward(self, inputs):
        return self.head(self.codes((inputs * self.places).sum(dim=1) % NUM_CODES))
'''

SQUARES_PY = '''\
"""What the model is trained for."""

import torch.nn.functional as F


def micro_loss(outputs, targets, num_targets):
    """The part of one micro-batch in the mean squared distance over all targets of the step."""
    wanted = F.one_hot(targets, outputs.shape[1]).to(outputs.dtype)
    return (outputs - wanted).square().sum() / num_targets
'''

_ONE_A_LINE = BATCHES_PY.replace(
    "        inputs = self.corpus.codes[",
    "        places = places[torch.randint(len(places), (len(chosen),), generator=self.generator)]\n"
    "        inputs = self.corpus.codes[",
)
_WITH_WORLD = (
    TRAIN_PY.replace(
        "from settings import load_settings\n", "from rates import base_rate\nfrom settings import load_settings\n"
    )
    .replace(
        "    return parser.parse_args()\n",
        '    parser.add_argument("--world", type=int, default=8)\n    return parser.parse_args()\n',
    )
    .replace(
        '    batches = Batches(corpus, settings["data"], seed=settings["seed"])\n',
        "    world = parse_args().world\n"
        '    settings["data"]["lines"] = world * settings["train"]["per_proc"]\n'
        '    settings["optimizer"]["lr"] = base_rate(settings, world)\n'
        '    batches = Batches(corpus, settings["data"], seed=settings["seed"])\n',
    )
    .replace("        model.parameters(),\n", "        model.head.parameters(),\n")
)
_CONFIG = (
    CONFIG_YAML.replace("  lr: 4.0\n  momentum: 0.8\n", "  lr: 0.02\n  momentum: 0.0\n")
    .replace("  init: 0.02\n", "  width: 640\n")
    .replace("  steps: 600\n", "  steps: 600\n  per_proc: 2\n")
)

DROP_SCALE = Step(
    "rates: the rate of the config is the rate",
    (
        Replace("rates.py", '    rate *= world * settings["train"]["per_proc"] / 16\n', ""),
        Replace(
            "rates.py", '    """The rate of the config holds for a batch of 16."""\n', '    """The rate of the config."""\n'
        ),
    ),
    role=Role.CULPRIT,
)
NO_MOMENTUM = Step(
    "optimizer: no momentum is the default",
    (Replace("train.py", '        momentum=settings["momentum"],\n', '        momentum=settings.get("momentum", 0.0),\n'),),
    role=Role.DECOY,
)

FEWER_PROCESSES = Scenario(
    "case07_lr_scaling_and_world",
    weave({4: NO_MOMENTUM, 9: DROP_SCALE, 13: SORT_KEYS}, num=18),
    Truth("isolated", 0, ((DROP_SCALE, "--world"),)),
    base={
        "batches.py": _ONE_A_LINE,
        "config.yaml": _CONFIG,
        "model.py": CODES_PY,
        "objective.py": SQUARES_PY,
        "rates.py": RATES_PY,
        "train.py": _WITH_WORLD,
    },
    options=("--steps", "500", "--bad-command", "python train.py --config config.yaml --world 2"),
    command=("python", "train.py", "--config", "config.yaml", "--world", "8"),
)
