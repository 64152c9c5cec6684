"""One commit lowers the learning rate: at either end of the range, inside a merged branch, beside a second, smaller culprit."""

from __future__ import annotations

from bisect_train.demo.history.steps import Append, Merge, Replace, Role, Step
from tests.scenarios.library.ordinary import BIAS_FIRST, SAME_INIT, Write, weave
from tests.scenarios.library.scenario import Scenario, Truth

LOWER_RATE = Step(
    "optimizer: settings of the long runs",
    (Replace("train.py", '        lr=settings["lr"],\n', '        lr=settings["lr"] / 10,\n'),),
    role=Role.CULPRIT,
)
SMOOTH = Step(
    "objective: trust the text a little less",
    (
        Replace(
            "objective.py",
            'F.cross_entropy(logits, targets, reduction="sum")',
            'F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)',
        ),
    ),
    role=Role.CULPRIT,
)
RATE_EFFECT = (0.6, 0.95)
LOWERED = Truth("isolated", 0, ((LOWER_RATE,),), kind_of_change="worse", effect=RATE_EFFECT)

FIRST_COMMIT = Scenario("first_commit", weave({1: LOWER_RATE, 8: SAME_INIT}, num=18), LOWERED)
LAST_COMMIT = Scenario("last_commit", weave({8: SAME_INIT, 18: LOWER_RATE}, num=18), LOWERED)

TWO_CULPRITS = Scenario(
    "two_culprits",
    weave({5: LOWER_RATE, 9: BIAS_FIRST, 14: SMOOTH}, num=20),
    Truth("several", 0, ((LOWER_RATE,), (SMOOTH,)), kind_of_change="worse", effect=RATE_EFFECT),
)

BRANCH = Merge(
    "Merge branch 'schedules'",
    branch=(
        Step("schedules: a page for them", (Write("docs/schedules.md", "# Schedules\n"),)),
        Step("schedules: constant, for a start", (Write("schedules.py", "def constant(step):\n    return 1.0\n"),)),
        LOWER_RATE,
        Step(
            "schedules: a linear one",
            (Append("schedules.py", "\n\ndef linear(step, total):\n    return 1.0 - step / total\n"),),
        ),
        Step("schedules: say what they are for", (Append("docs/schedules.md", "\nFor runs that take days.\n"),)),
    ),
)
MERGED_BRANCH = Scenario(
    "merged_branch",
    weave({4: SAME_INIT, 11: BRANCH}, num=18),
    Truth("isolated", 0, ((BRANCH,),), inside=(LOWER_RATE,), kind_of_change="worse", effect=RATE_EFFECT),
)
