"""Case 12: each rank shuffles the list of files with a seed of its own before it takes its share.

Two ranks then draw their shares from two different orders: a quarter of what they read, they read twice, and as much is never
read (at four ranks, a third). The loss says nothing: over one epoch it is that of random files. The reports:
sandyresearch/parcae#10, stanford-crfm/mistral#194, pixeli99/SVD_Xtend#75.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.parallel import LEFT_OUT, PARALLEL, SUM_BACKWARDS
from tests.scenarios.library.scenario import Scenario, Truth

SEED_PER_RANK = Step(
    "files: another seed on each rank, for different dropout",
    (
        Replace(
            "files.py", "        rng = random.Random(self.seed)\n", "        rng = random.Random(self.seed + ranks.rank())\n"
        ),
        Replace(
            "train.py", '    torch.manual_seed(settings["seed"])\n', '    torch.manual_seed(settings["seed"] + ranks.rank())\n'
        ),
    ),
    role=Role.CULPRIT,
)
BY_KEYS = Step(
    "files: shuffle by sorting random keys",
    (
        Replace(
            "files.py",
            "            rng.shuffle(names)\n",
            "            keys = [rng.random() for _ in names]\n            names.sort(key=keys.__getitem__)\n",
        ),
    ),
    role=Role.DECOY,
)
"""A decoy: other files in each step, every one of them once."""

SHARED_FILES = Scenario(
    "case12_shared_files",
    weave({5: BY_KEYS, 8: SUM_BACKWARDS, 12: SEED_PER_RANK}, num=16, without=LEFT_OUT),
    Truth("isolated", 0, ((SEED_PER_RANK,),), kind_of_change="worse", effect=(-0.3, -0.2), symptom="overlapping_samples"),
    base=PARALLEL,
    options=("--ranks", "2", "--metric", "coverage"),
)
