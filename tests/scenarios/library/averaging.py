"""Case 13: the mean over the ranks is taken twice, and clipping hides it.

The loss is summed over the ranks by a collective that carries no gradient, so each rank's gradient is that of its own part, and
the wrapper divides it by the number of ranks once more. Where every gradient is clipped, the updates are the same to the last
digits: only the norm before clipping, half of what it was with two ranks, tells. With one rank nothing changes. The reports:
verl-project/verl-SpeCo#29, meta-pytorch/torchtune#2172, PrimeIntellect-ai/prime-rl#1960.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.launch import NO_MOMENTUM
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.parallel import CONFIG, LEFT_OUT, PARALLEL, SUM_BACKWARDS
from tests.scenarios.library.scenario import Scenario, Truth

SUM_FIRST = Step(
    "objective: report the loss of all ranks",
    (
        Replace(
            "objective.py",
            "The part of this rank in the mean over all targets; the wrapper takes the mean of the gradients.",
            "The mean over the targets of all ranks.",
        ),
        Replace(
            "objective.py",
            "    num_targets = ranks.sum_over_ranks(",
            "    if ranks.world() > 1:\n        dist.all_reduce(summed)\n    num_targets = ranks.sum_over_ranks(",
        ),
        Replace("objective.py", "    return summed * ranks.world() / num_targets\n", "    return summed / num_targets\n"),
        Replace("objective.py", "import torch\n", "import torch\nimport torch.distributed as dist\n"),
    ),
    role=Role.CULPRIT,
)
AVERAGED_TWICE = Scenario(
    "case13_averaged_twice",
    weave({4: NO_MOMENTUM, 7: SUM_BACKWARDS, 10: SUM_FIRST}, num=16, without=LEFT_OUT),
    Truth("isolated", 0, ((SUM_FIRST,),), effect=(-0.2, -0.03), symptom="gradients_averaged_twice"),
    base={**PARALLEL, "config.yaml": CONFIG.replace("  clip: 0\n", "  clip: 0.02\n")},
    options=("--ranks", "2", "--metric", "pre_clip_norm", "--any-change"),
)
