"""Reads the changes of a question; where that takes long, what runs the probes starts meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli import driving
from bisect_train.core.executor import Executor
from bisect_train.core.question import Question

SLOW_READ_S = 0.3
"""A history that is read in less time is read first, so that a mistake in the question is told at once."""


@contextmanager
def read_changes(repository: Repository, question: Question, home: Path) -> Iterator[tuple[ChangeSpace, Executor | None]]:
    """Give the changes, and an executor that has started already, or None; it is closed at the end.

    Raises:
        BisectTrainError: the changes cannot be read, or what runs probes does not start.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-changes") as pool, ExitStack() as stack:
        reading = pool.submit(build_space, repository, question)
        executor = None
        if wait([reading], timeout=SLOW_READ_S).not_done:
            executor = stack.enter_context(driving.open_executor(question, home))
            executor.facts()
        yield reading.result(), executor
