"""The history of the demo repository, oldest commit first.

The first step's tree is the folder `base`. Everything else is one list of steps, in three modules only for their length.
Rules for whoever edits it: the culprit's passages (the schedule in `train.py`, its use in the loop, the line after
`from model import`) are touched by no other step, so that the culprit can be taken out of the bad end and put on the
good end; nothing after it may need `schedule.py`.
"""

from __future__ import annotations

from bisect_train.demo.history.early import EARLY
from bisect_train.demo.history.late import LATE
from bisect_train.demo.history.middle import MIDDLE
from bisect_train.demo.history.steps import Add, Append, Edit, Merge, Move, Replace, Role, Step, Tree

FIRST = Step("charlm: a small character language model", edits=())
HISTORY: tuple[Step | Merge, ...] = (FIRST, *EARLY, *MIDDLE, *LATE)

__all__ = ["HISTORY", "Add", "Append", "Edit", "Merge", "Move", "Replace", "Role", "Step", "Tree"]
