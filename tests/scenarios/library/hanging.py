"""Case 14: saving, which ends in a barrier, is moved under a condition on rank 0: the run hangs at its very end.

All steps are taken, and the weights are on disk. Then rank 0 waits in the barrier of `save`, which meets the next barrier of
rank 1; rank 0 goes on to that barrier and waits for good, as rank 1 does in the sum that comes after it. The reports:
alan-turing-institute/autocast#386, speechbrain/speechbrain#2401, pytorch/pytorch#54059.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.parallel import CONFIG, LEFT_OUT, PARALLEL, SUM_BACKWARDS
from tests.scenarios.library.scenario import Scenario, Truth

ONLY_RANK_0 = Step(
    "train: rank 0 saves, the others have nothing to do there",
    (Replace("train.py", '    save(model, "last.pt")\n', '    if ranks.rank() == 0:\n        save(model, "last.pt")\n'),),
    role=Role.CULPRIT,
)
WHOLE_PATH = Step(
    "train: say where the weights are",
    (
        Replace(
            "train.py",
            '        print(f"last loss {mean.item():.4f}")\n',
            '        print(f"last loss {mean.item():.4f}, weights in last.pt")\n',
        ),
    ),
    role=Role.DECOY,
)
"""A decoy in the same function."""

HANG_AT_END = Scenario(
    "case14_hang_at_end",
    weave({4: SUM_BACKWARDS, 7: WHOLE_PATH, 11: ONLY_RANK_0}, num=16, without=LEFT_OUT),
    Truth("isolated", 0, ((ONLY_RANK_0,),), kind_of_change="hang", symptom="hang_at_end"),
    base={**PARALLEL, "config.yaml": CONFIG.replace("  steps: 600\n", "  steps: 24\n")},
    options=("--ranks", "2", "--steps", "end", "--criterion", "symptom", "--timeout", "45"),
)
