"""The command line with simulated probes on a `BranchStory`, in a process of its own: real git, real store, no training.

argv[1] is the number of the probe at whose start the process kills itself (SIGKILL), 0 for none; then the arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.cli import driving
from bisect_train.cli.main import main
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.branch_story import PARTS, part_path
from tests.support.simulated_bisection import fingerprint_of


def run(kill_at: int) -> None:
    """Run the command line."""
    num_started = 0

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[SimulatedExecutor]:
        repository = Repository.open(Path(question.repo), home=home)

        def script(job: ProbeJob) -> SimulatedRun:
            nonlocal num_started
            num_started += 1
            if num_started == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return SimulatedRun(fingerprint_of(level_of(repository, job.spec.variant.tree), seed_idx=job.spec.seed_idx))

        yield SimulatedExecutor(script, slots=2)

    driving.open_executor = open_executor  # type: ignore[assignment]
    main()


def level_of(repository: Repository, tree: str) -> float:
    """Return the loss that a tree trains to."""
    texts = [repository.git.text("cat-file", "blob", f"{tree}:{part_path(part)}") for part in PARTS]
    return 1.0 + sum(float(text.removeprefix("ADDED = ")) for text in texts)


if __name__ == "__main__":
    number = int(sys.argv.pop(1))
    run(number)
