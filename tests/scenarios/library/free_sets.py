"""A config of which 128 keys differ, and a program that reads them all: one does harm, two do together, two do each by itself.

No commit is searched. Most keys are small weights that change the bits of a run and not its quality.
"""

from __future__ import annotations

from tests.scenarios.library.program import CONFIG_YAML, MODEL_PY, OBJECTIVE_PY, TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

NUM_KEYS = 128

_TRAIN = (
    TRAIN_PY.replace(
        '        momentum=settings["momentum"],\n',
        '        momentum=settings["momentum"],\n        weight_decay=settings["weight_decay"],\n',
    )
    .replace(
        "    optimizer.step()\n",
        '    torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])\n    optimizer.step()\n',
    )
    .replace(
        "def train_step(model, optimizer, micro_batches):\n", "def train_step(model, optimizer, micro_batches, settings):\n"
    )
    .replace(
        "train_step(model, optimizer, micro_batches)\n", 'train_step(model, optimizer, micro_batches, settings["train"])\n'
    )
    .replace(
        "micro_loss(model(inputs), targets, num_targets)",
        'micro_loss(model(inputs), targets, num_targets, settings["smoothing"])',
    )
    .replace(
        '    for step in range(settings["train"]["steps"]):\n',
        '    schedule = settings["schedule"]\n'
        '    for step in range(settings["train"]["steps"]):\n'
        '        if schedule["kind"] == "linear":\n'
        '            share = min(1.0, (step + 1) / schedule["warmup"])\n'
        "            for group in optimizer.param_groups:\n"
        '                group["lr"] = settings["optimizer"]["lr"] * share\n',
    )
)
_MODEL = MODEL_PY.replace(
    "        self.bias = nn.Parameter(torch.zeros(num_symbols))\n",
    "        self.bias = nn.Parameter(torch.zeros(num_symbols))\n"
    "        with torch.no_grad():\n"
    '            for idx, start in enumerate(settings["start"].values()):\n'
    "                self.bias[idx % num_symbols] += start\n",
)
_OBJECTIVE = OBJECTIVE_PY.replace("targets, num_targets):", "targets, num_targets, smoothing):").replace(
    'reduction="sum")', 'reduction="sum", label_smoothing=smoothing)'
)

Values = dict[str, object]
SAME: Values = {"optimizer.lr": 4.0, "train.smoothing": 0.0, "schedule.kind": "constant", "schedule.warmup": 4}
OTHERS: dict[str, tuple[object, object]] = {
    "data.max_chars": (60000, 59000),
    "data.lines": (64, 63),
    "model.init": (0.02, 0.0201),
    "optimizer.momentum": (0.8, 0.799),
    "optimizer.weight_decay": (0.0, 0.0001),
    "train.clip": (100.0, 90.0),
    "log.every": (5, 10),
}


def _config(values: Values, *, side: int, num_starts: int) -> str:
    """Return the config of a side, 0 for good and 1 for bad."""
    others = {**values, **{key: pair[side] for key, pair in OTHERS.items()}}
    starts = {f"s{idx:03d}": round(0.01 + 0.0001 * idx + 0.002 * side, 4) for idx in range(num_starts)}
    fixed = {"seed": 11, "data.context": 4, "train.accumulate": 1, "train.steps": 600}
    lines = [f"seed: {fixed.pop('seed')}"]
    flat = {**fixed, **others}
    for section in ("data", "model", "optimizer", "train", "schedule", "log"):
        lines += [f"{section}:"]
        lines += [f"  {key.partition('.')[2]}: {value}" for key, value in flat.items() if key.startswith(f"{section}.")]
        if section == "model":
            lines += ["  start:", *(f"    {name}: {value}" for name, value in starts.items())]
    return "\n".join(lines) + "\n"


def _scenario(name: str, changes: Values, truth: Truth) -> Scenario:
    num_starts = NUM_KEYS - len(OTHERS) - len(changes)
    good = _config(SAME, side=0, num_starts=num_starts)
    bad = _config({**SAME, **changes}, side=1, num_starts=num_starts)
    return Scenario(
        name,
        (),
        truth,
        base={"train.py": _TRAIN, "model.py": _MODEL, "objective.py": _OBJECTIVE, "config.yaml": CONFIG_YAML},
        options=("--good-config", "{files}/good.yaml", "--bad-config", "{files}/bad.yaml", "--parallel", "4"),
        files={"good.yaml": good, "bad.yaml": bad},
        command=("python", "train.py", "--config", "{config}"),
    )


ONE_KEY = _scenario("keys128_one", {"optimizer.lr": 0.4}, Truth("isolated", 0, (("optimizer.lr",),), kind_of_change="worse"))
PAIR_OF_KEYS = _scenario(
    "keys128_pair",
    {"schedule.kind": "linear", "schedule.warmup": 250},
    Truth("isolated", 0, (("schedule.kind", "schedule.warmup"),), kind_of_change="worse"),
)
TWO_KEYS = _scenario(
    "keys128_two",
    {"optimizer.lr": 0.4, "train.smoothing": 0.1},
    Truth("several", 0, (("optimizer.lr",), ("train.smoothing",)), kind_of_change="worse"),
)
