"""Ranges without a regression: nobody may be named."""

from __future__ import annotations

from bisect_train.demo.history.steps import Append, Replace, Role, Step
from tests.scenarios.library.ordinary import BIAS_FIRST, Write, weave
from tests.scenarios.library.scenario import Scenario, Truth

NOTHING = Truth("no_regression", 4)

HALVES = Step(
    "objective: sum the two halves of a micro-batch",
    (
        Replace(
            "objective.py",
            '    summed = F.cross_entropy(logits, targets, reduction="sum")\n',
            '    losses = F.cross_entropy(logits, targets, reduction="none")\n'
            "    middle = len(losses) // 2\n    summed = losses[:middle].sum() + losses[middle:].sum()\n",
        ),
    ),
    role=Role.DECOY,
)
BACKWARDS = Step(
    "model: sum from the nearest character",
    (
        Replace(
            "model.py",
            "        scores = self.table(inputs + self.rows)\n",
            "        scores = self.table(inputs + self.rows).flip(1)\n",
        ),
    ),
    role=Role.DECOY,
)
REORDERED_SUMS = Scenario("null_reordered_sums", weave({5: BIAS_FIRST, 10: HALVES, 15: BACKWARDS}, num=18), NOTHING)

SORT_KEYS = Step(
    "batches: shuffle by sorting random keys",
    (
        Replace(
            "batches.py",
            "        return torch.randperm(num, generator=self.generator).tolist()\n",
            "        return torch.rand(num, generator=self.generator).argsort().tolist()\n",
        ),
    ),
    role=Role.DECOY,
)
DATA_ORDER = Scenario(
    "null_data_order",
    weave({6: BIAS_FIRST, 11: SORT_KEYS}, num=18),
    NOTHING,
    options=("--min-effect", "0.05"),  # the default, one seed standard deviation, takes more seeds to exclude
)

DOCS = tuple(
    Step(f"docs: note {number}", (Append("docs/notes.md", f"\nNote {number}: nothing has changed.\n"),))
    for number in range(1, 13)
)
IDENTICAL_ENDS = Scenario(
    "null_identical_ends",
    (*DOCS[:6], Step("docs: how to cite", (Write("CITATION.md", "Cite the page.\n"),)), *DOCS[6:], *weave({}, num=4)[2:3]),
    NOTHING,
)
