"""Case 3: a refactor of the schedules changes the shape of the warm-up.

A commit that looks as if it only moved functions lets the rate rise exponentially where it rose in a line: at half the warm-up
it is a tenth of the peak rate and not a half. After the warm-up both are the same. The report: tensor2tensor#555.
"""

from __future__ import annotations

from dataclasses import dataclass

from bisect_train.demo.history.steps import Replace, Role, Step, Tree
from tests.scenarios.library.ordinary import BIAS_FIRST, weave
from tests.scenarios.library.program import CONFIG_YAML, TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

SCHEDULES_PY = '''\
"""Schedules: the share of the peak rate that a step takes."""

import math


class Schedule:
    """Warm-up, then decay; the first step only fills what the optimizer averages."""

    def __init__(self, settings):
        self.warmup = settings["warmup"]
        self.total = settings["total"]
        self.floor = settings["floor"]
        self.decay = DECAYS[settings["decay"]]

    def share(self, step):
        """Return the share of the peak rate at a step, 0 to 1."""
        if step == 0:
            return 0.0
        if step < self.warmup:
            return step / self.warmup
        return self.decay(step - self.warmup, self.total - self.warmup, self.floor)


def constant(step, total, floor):
    """The peak rate for good."""
    return 1.0


def linear(step, total, floor):
    """Down to the floor in a line."""
    done = min(step / total, 1.0)
    return 1.0 - (1.0 - floor) * done


def cosine(step, total, floor):
    """Down to the floor in half a wave."""
    done = min(step / total, 1.0)
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * done))


def inverse_root(step, total, floor):
    """As one over the root of the step, not below the floor."""
    return max(floor, 1.0 / math.sqrt(1.0 + step))


def halves(step, total, floor):
    """Half of it after each tenth of the run, not below the floor."""
    return max(floor, 0.5 ** int(10 * step / total))


DECAYS = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse_root": inverse_root,
    "halves": halves,
}


def set_rate(optimizer, peak, share):
    """Give every group its rate."""
    for group in optimizer.param_groups:
        group["lr"] = peak * share
'''

_CLASS = SCHEDULES_PY[SCHEDULES_PY.index("class Schedule:") : SCHEDULES_PY.index("def constant(")]
_DECAYS = SCHEDULES_PY[SCHEDULES_PY.index("def constant(") : SCHEDULES_PY.index("def set_rate(")]
_SET_RATE = SCHEDULES_PY[SCHEDULES_PY.index("def set_rate(") :]

WARMUP_PY = '''\
"""How the rate rises to its peak."""

START = 0.01


def rise(step, warmup, *, start=START):
    """Return the share of the peak rate at a step of the warm-up."""
    return start ** (1.0 - step / warmup)
'''

SCHEDULE_MODULES: dict[str, str] = {
    "schedules/__init__.py": '"""Schedules: the share of the peak rate that a step takes."""\n\n'
    "from schedules.rates import Schedule, set_rate\n\n"
    '__all__ = ["Schedule", "set_rate"]\n',
    "schedules/decay.py": f'"""How the rate falls after the warm-up."""\n\nimport math\n\n\n{_DECAYS.rstrip()}\n',
    "schedules/rates.py": '"""The rate of a step."""\n\nfrom schedules.decay import DECAYS\n'
    "from schedules.warmup import rise\n\n\n"
    + _CLASS.replace("            return step / self.warmup\n", "            return rise(step, self.warmup)\n")
    + _SET_RATE,
    "schedules/warmup.py": WARMUP_PY,
}


@dataclass(frozen=True, slots=True)
class Split:
    """Put modules in the place of one file."""

    file: str

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        del tree[self.file]
        tree.update(SCHEDULE_MODULES)


SPLIT_SCHEDULES = Step(
    "schedules: warm-up and decay are modules of their own",
    (Split("schedules.py"),),
    body="Nothing but moves. The schedules had grown too long for one file.",
    role=Role.CULPRIT,
)
NAMED_PEAK = Step(
    "train: name the peak rate",
    (
        Replace(
            "train.py",
            '        set_rate(optimizer, settings["optimizer"]["lr"], schedule.share(step))\n',
            '        peak = settings["optimizer"]["lr"]\n        set_rate(optimizer, peak, schedule.share(step))\n',
        ),
    ),
    role=Role.DECOY,
)
"""A decoy: it touches the rate and keeps the bits."""

_TRAIN = TRAIN_PY.replace(
    "from objective import micro_loss\n", "from objective import micro_loss\nfrom schedules import Schedule, set_rate\n"
).replace(
    '    for step in range(settings["train"]["steps"]):\n',
    '    schedule = Schedule(settings["schedule"])\n\n    for step in range(settings["train"]["steps"]):\n'
    '        set_rate(optimizer, settings["optimizer"]["lr"], schedule.share(step))\n',
)
_CONFIG = CONFIG_YAML.replace("train:\n", "schedule:\n  warmup: 32\n  total: 600\n  floor: 0.1\n  decay: cosine\n\ntrain:\n")

WARMUP_SHAPE = Scenario(
    "case03_warmup_shape",
    weave({4: BIAS_FIRST, 8: NAMED_PEAK, 13: SPLIT_SCHEDULES}, num=18),
    Truth(
        "isolated",
        0,
        ((SPLIT_SCHEDULES,),),
        kind_of_change="worse",
        symptom="lr_differs",
        stage="learning_rate",
        told=("at step 1",),
    ),
    base={"config.yaml": _CONFIG, "schedules.py": SCHEDULES_PY, "train.py": _TRAIN},
)
