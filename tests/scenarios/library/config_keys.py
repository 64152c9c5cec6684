"""Cases 5 and 6: a key that the code does not read any more, and two keys that do harm together only.

Case 5: the code reads another key than the file has, and falls back to a default that is three times as long; the file follows
six commits later. No difference of the config shows at the commit that did it. The reports: unslothai/unsloth#9944,
Noble-Lab/casanovo#300.

Case 6: with weights in bfloat16, updates of a tiny learning rate round away. A low rate alone moves every weight, and
bfloat16 alone loses none. The loss hardly tells; the share of weights that have moved does. The report:
meta-pytorch/torchtune#2254.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.harmless import SORT_KEYS
from tests.scenarios.library.ordinary import BIAS_FIRST, SAME_INIT, weave
from tests.scenarios.library.program import CONFIG_YAML, TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

SCHEDULE_PY = '''\
"""How the learning rate begins."""


def warmup_scale(step, settings):
    """The share of the learning rate at a step."""
    num_steps = round(settings.get("warmup_ratio", 0.0) * settings["steps"])
    return min(1.0, (step + 1) / max(1, num_steps))
'''

_WITH_SCHEDULE = TRAIN_PY.replace(
    "from objective import micro_loss\n", "from objective import micro_loss\nfrom schedule import warmup_scale\n"
).replace(
    '    for step in range(settings["train"]["steps"]):\n',
    '    for step in range(settings["train"]["steps"]):\n'
    '        for group in optimizer.param_groups:\n            group["lr"] = settings["optimizer"]["lr"]'
    ' * warmup_scale(step, settings["train"])\n',
)

READ_STEPS = Step(
    "schedule: the warm-up is called warmup_steps",
    (Replace("schedule.py", 'settings.get("warmup_ratio", 0.0)', 'settings.get("warmup_steps", 0.1)'),),
    role=Role.CULPRIT,
)
FOLLOW = Step(
    "config: follow the new name of the warm-up",
    (Replace("config.yaml", "  warmup_ratio: 0.03\n", "  warmup_steps: 0.1\n"),),
)
_RENAMED = weave({4: SAME_INIT, 8: READ_STEPS, 11: BIAS_FIRST, 14: FOLLOW}, num=20)
_RENAMED_BASE = {
    "schedule.py": SCHEDULE_PY,
    "train.py": _WITH_SCHEDULE,
    "config.yaml": CONFIG_YAML.replace("  steps: 600\n", "  steps: 600\n  warmup_ratio: 0.03\n"),
}
_RENAMED_TRUTH = Truth("isolated", 0, ((READ_STEPS,),), kind_of_change="worse", unread=("train.warmup_ratio", READ_STEPS))
_CONFIG_COMMAND = ("python", "train.py", "--config", "{config}")

RENAMED_KEY = Scenario(
    "case05_renamed_key",
    _RENAMED,
    _RENAMED_TRUTH,
    base=_RENAMED_BASE,
    options=("--config", "config.yaml"),
    command=_CONFIG_COMMAND,
)
RENAMED_KEY_HELD = Scenario(
    "case05_config_of_good",
    _RENAMED,
    _RENAMED_TRUTH,
    base=_RENAMED_BASE,
    options=("--config", "config.yaml", "--hold-config", "good"),
    command=_CONFIG_COMMAND,
)
"""The same range with the good end's file for every commit: the same answer."""

UPDATES_PY = '''\
"""How much of a model an update reaches."""

import torch


class Updates:
    """Which weights have moved since the start, of those that ever had a gradient."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.start = [parameter.detach().clone() for parameter in self.parameters]
        self.seen = [torch.zeros_like(parameter, dtype=torch.bool) for parameter in self.parameters]

    def share_moved(self):
        num_moved = num_seen = 0
        for parameter, start, seen in zip(self.parameters, self.start, self.seen):
            if parameter.grad is not None:
                seen |= parameter.grad != 0
            num_moved += int(((parameter.detach() != start) & seen).sum())
            num_seen += int(seen.sum())
        return num_moved / max(1, num_seen)
'''

_WITH_DTYPE = (
    TRAIN_PY.replace(
        "from settings import load_settings\n", "from settings import load_settings\nfrom updates import Updates\n"
    )
    .replace(
        "    return torch.optim.SGD(\n        model.parameters(),\n"
        '        lr=settings["lr"],\n        momentum=settings["momentum"],\n    )\n',
        "    return torch.optim.Adam(\n        model.parameters(),\n"
        '        lr=settings["lr"],\n        betas=(0.9, settings["beta2"]),\n    )\n',
    )
    .replace(
        'settings["model"])\n',
        'settings["model"]).to(getattr(torch, settings["model"]["param_dtype"]))\n    updates = Updates(model)\n',
    )
    .replace(
        '            print(f"step {step} loss {loss:.4f}")\n',
        '            print(f"step {step} loss {loss:.4f} moved {updates.share_moved():.4f}")\n',
    )
)
_FLOAT = CONFIG_YAML.replace("  init: 0.02\n", "  init: 0.5\n  param_dtype: float32\n").replace(
    "  lr: 4.0\n  momentum: 0.8\n", "  lr: 0.01\n  beta2: 0.99\n"
)
_ROUNDED = (
    _FLOAT.replace("float32", "bfloat16")
    .replace("  lr: 0.01\n", "  lr: 0.0001\n")
    .replace("  beta2: 0.99\n", "  beta2: 0.98\n")
    .replace("  max_chars: 60000\n", "  max_chars: 58000\n")
    .replace("  lines: 64\n", "  lines: 60\n")
)
_MOVED_RECIPE = "metrics:\n  moved: {from: log, pattern: 'moved (?P<value>[0-9.]+)', better: higher, reduce: last}\n"

ROUNDED_AWAY = Scenario(
    "case06_bf16_small_lr",
    weave({5: SORT_KEYS, 10: SAME_INIT}, num=18),
    Truth("isolated", 0, (("model.param_dtype", "optimizer.lr"),)),
    base={"train.py": _WITH_DTYPE, "updates.py": UPDATES_PY, "config.yaml": _FLOAT},
    options=("--good-config", "{files}/good.yaml", "--bad-config", "{files}/bad.yaml", "--recipe", "{files}/recipe.yaml"),
    files={"good.yaml": _FLOAT, "bad.yaml": _ROUNDED, "recipe.yaml": _MOVED_RECIPE},
    command=_CONFIG_COMMAND,
)
