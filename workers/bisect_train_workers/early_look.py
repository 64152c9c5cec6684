"""Looks at the records of a running program for a reason to stop it early; the rule itself is `bisect_train.core.early`."""

from __future__ import annotations

from bisect_train.core.early import EarlyRules, EarlyWatch
from bisect_train.core.fingerprint import EarlyStop
from bisect_train_workers.records import ProcessRecord, to_step_record
from bisect_train_workers.whole_norms import WholeNorms

EARLY_LOOK_S = 0.05
"""Time between two looks while a rule may still stop the program, seconds; a look reads what was added since the last one."""


class EarlyLook:
    """Feeds a run's steps to its watch as they are settled on all ranks; without rules it never stops anything."""

    def __init__(self, rules: EarlyRules | None) -> None:
        self._num_ranks = rules.num_ranks if rules is not None else 0
        self._watch = EarlyWatch(rules) if rules is not None else None
        self.stop: EarlyStop | None = None

    @property
    def is_open(self) -> bool:
        """Whether more steps may still stop the program."""
        return self._watch is not None and self._watch.wanted is not None and self.stop is None

    def look(self, ranks: dict[int, ProcessRecord]) -> EarlyStop | None:
        """Take the steps that have come; return the reason to stop the program, None while there is none.

        A step is settled when the next one has a line: until then its own line may be written again.
        """
        if self._watch is None or self.stop is not None or len(ranks) < self._num_ranks:
            return self.stop
        settled = min(max(process.steps, default=-1) for process in ranks.values())
        while self.stop is None and (wanted := self._watch.wanted) is not None and wanted < settled:
            lines = {rank: process.steps[wanted] for rank, process in ranks.items() if wanted in process.steps}
            whole = WholeNorms(ranks).at(wanted)
            self.stop = self._watch.take({rank: to_step_record({**line, **whole}) for rank, line in lines.items()})
        return self.stop
