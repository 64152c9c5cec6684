"""What triage is asked, and what it looks at: the run, its healthy baseline, other seeds of that."""

from __future__ import annotations

from dataclasses import dataclass, field

from bisect_train.core.question import Metric
from bisect_train.verdict.triage.run_view import RunView


@dataclass(frozen=True, slots=True)
class Asked:
    """How the run was meant to be.

    Attributes:
        steps: optimizer steps that were asked for, None for the whole run.
        ranks: processes that were asked for.
        timeout_s: time limit of the program, seconds.
        metric: the one that decides.
        sanity_window: steps within which a healthy run's loss drops.
        is_same_seed: whether the baseline has the run's seed; of another one, other data and another curve say nothing.
    """

    steps: int | None = None
    ranks: int = 1
    timeout_s: float = 600.0
    metric: Metric = field(default_factory=Metric)
    sanity_window: int = 100
    is_same_seed: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """What every rule gets.

    Attributes:
        run: the run in question.
        base: a healthy run of the same seed, None without one.
        others: healthy runs of other seeds, () without any.
        asked: see Asked.
    """

    run: RunView
    base: RunView | None
    others: tuple[RunView, ...]
    asked: Asked

    @property
    def peer(self) -> RunView | None:
        """The baseline if it has the same ranks, so that rank can be compared with rank; else None."""
        return self.base if self.base is not None and self.base.ranks == self.run.ranks else None
