"""What the service needs of the rest of the tool. `cli.serving` gives it; its calls block, so they are made in threads."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bisect_train.report.parts import ReportData
from bisect_train.service.pages.contract import Opened
from bisect_train.service.wire import Submission
from bisect_train.store.contract import Store
from bisect_train.store.queue_contract import Queue


class Backend(Protocol):
    """Stored bisections and what can be done with them. What cannot be done raises a BisectTrainError."""

    @property
    def home(self) -> Path:
        """The tool's home folder."""

    @property
    def store(self) -> Store:
        """All stored bisections."""

    @property
    def queue(self) -> Queue:
        """Users, what waits and what runs."""

    def ask(self, wanted: Submission, *, repository: Path, recipe: Path | None, may_answer: bool = True) -> str:
        """Store a question and return the bisection's id; nothing is run.

        A check whose ends are the same is answered at once.

        Args:
            wanted: what was asked for; its names have been looked up.
            repository: folder of the repository.
            recipe: file of the recipe; None takes the repository's own.
            may_answer: whether one may be answered at once: False where the user has nothing left today.
        Raises:
            LimitError: it could be answered at once, and may not be.
            InputError: the question cannot be asked: unknown revision, nothing to search, ...
        """

    def open(self, bisection_id: str) -> Opened:
        """Return a bisection, rebuilt from its observations. Raises InputError for a single probe or a comparison."""

    def report_of(self, opened: Opened) -> ReportData:
        """Return its report, of an unfinished one as far as it goes."""

    def mark(self, bisection_id: str, revision: str, verdict: str) -> None:
        """Say what a version is: good, bad, untestable or clear. Raises InputError while it runs."""

    def undo(self, bisection_id: str, last: int) -> int:
        """Take back the newest observations or marks; return how many. Raises InputError while it runs."""

    def change_limits(self, bisection_id: str, *, max_probes: int | None, gpu_hours: float | None) -> None:
        """Store other limits; None leaves one as it is. Raises InputError where less is given than is spent."""
