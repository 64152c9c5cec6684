"""Case 1: the loss scale of gradient accumulation breaks, is repaired, and comes back with an old branch.

With one micro-batch a step the mean over a micro-batch is the mean over the step; with four the reported loss is four times
too high. The reports: huggingface/transformers#34263, #35207, #35663.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.ordinary import BIAS_FIRST, Write, weave
from tests.scenarios.library.program import CONFIG_YAML
from tests.scenarios.library.scenario import Scenario, Truth

GOOD_LINES = '    summed = F.cross_entropy(logits, targets, reduction="sum")\n    return summed / num_targets\n'
BAD_LINES = "    return F.cross_entropy(logits, targets)\n"

SIMPLIFY = Step("objective: leave the mean to torch", (Replace("objective.py", GOOD_LINES, BAD_LINES),), role=Role.CULPRIT)
RESTORE = Step("objective: divide by the targets of the whole step", (Replace("objective.py", BAD_LINES, GOOD_LINES),))
OLD_BRANCH = Step(
    "perplexity in the log (squashed from an old branch)",
    (
        Write("perplexity.py", "import math\n\n\ndef perplexity(loss):\n    return math.exp(min(loss, 20.0))\n"),
        Write("docs/perplexity.md", "# Perplexity\n\nIt is printed on request.\n"),
        Replace("objective.py", GOOD_LINES, BAD_LINES),
    ),
    role=Role.CULPRIT,
)

ACCUMULATING = CONFIG_YAML.replace("  lines: 64\n", "  lines: 16\n").replace("  accumulate: 1\n", "  accumulate: 4\n")
HISTORY = weave({6: SIMPLIFY, 9: BIAS_FIRST, 13: RESTORE, 17: OLD_BRANCH}, num=20)

LOSS_SCALE = Scenario(
    "case01_loss_scale",
    HISTORY,
    Truth("isolated", 0, ((OLD_BRANCH,),), kind_of_change="worse", island=(SIMPLIFY, RESTORE), effect=(5.0, 9.0)),
    base={"config.yaml": ACCUMULATING},
)

LOSS_SCALE_CONDITION = Scenario(
    "case01_condition",
    HISTORY,
    Truth("isolated", 0, ((OLD_BRANCH, "train.accumulate"),), effect=(5.0, 9.0)),
    options=("--good-config", "{files}/good.yaml", "--bad-config", "{files}/bad.yaml"),
    files={"good.yaml": ACCUMULATING.replace("  accumulate: 4\n", "  accumulate: 1\n"), "bad.yaml": ACCUMULATING},
    command=("python", "train.py", "--config", "{config}"),
)
"""The same range with accumulation as a change of its own: the commit is harmless without it, and the answer says so."""
