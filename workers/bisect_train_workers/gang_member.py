"""One of the further nodes of a probe: it prepares the variant, runs its share of the ranks, and tells what they record.

It knows nothing of Ray. Its locks and folders are given back when it ends; if its process dies, its supervisor ends the
program and its guard removes the folders, as for any probe.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from bisect_train.core.executor import ExecutorEvent
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.command import CommandError, Share
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.gang import News
from bisect_train_workers.gitcmd import GitError
from bisect_train_workers.memory_kills import count_oom_kills
from bisect_train_workers.node import NodeError, node_name
from bisect_train_workers.preparing import lay_out, make_program, run_setup, whole_run
from bisect_train_workers.probe_run import PreparedProbe
from bisect_train_workers.processes import sweep_orphans
from bisect_train_workers.program import RunningProgram, SupervisorLostError, supervise
from bisect_train_workers.program_log import read_log
from bisect_train_workers.workplaces import TaskContext, furnish, take_checkout

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Whether a member could start; the words are the user's to read.

    Attributes:
        cannot_start: what the variant lacks, a verdict on the variant, else "".
        node_trouble: why this node cannot run probes at all, else "".
        lost: why it has to be tried again, else "".
        warnings: what a reader of the report should know of the checkout.
    """

    cannot_start: str = ""
    node_trouble: str = ""
    lost: str = ""
    warnings: tuple[str, ...] = ()


class GangMember:
    """A node's share of one probe.

    Args:
        job: with the settings of its variant.
        context: of this node.
        share: its place among the nodes.
        port: on which the ranks meet, at the share's address.
    """

    def __init__(self, job: ProbeJob, context: TaskContext, *, share: Share, port: int) -> None:
        self._job, self._context, self._share, self._port = job, context, share, port
        self._held = contextlib.ExitStack()
        self._probe: PreparedProbe | None = None
        self._running: RunningProgram | None = None
        self._told: dict[Path, int] = {}
        self._kills_before = 0
        # a process that ends would else drop what is held in any order: the folder before the program that writes there
        atexit.register(self.end)

    def prepare(self) -> Prepared:
        """Bring everything to where the program can be started."""
        try:
            return Prepared(warnings=tuple(self._prepare()))
        except (CannotStartError, CommandError) as error:
            return Prepared(cannot_start=f"on {node_name()}: {error}")
        except NodeError as error:
            return Prepared(node_trouble=str(error))
        except (GitError, SupervisorLostError) as error:
            return Prepared(lost=str(error))

    def start(self) -> None:
        """Start the program."""
        assert self._probe is not None
        self._kills_before = count_oom_kills()
        self._running = self._held.enter_context(supervise(self._probe.program))

    def news(self, wait_s: float = 0.0) -> News:
        """Return what its ranks have recorded since the last time, and how the program ended, if it has.

        Raises:
            SupervisorLostError: nothing is known about the program.
        """
        assert self._probe is not None and self._running is not None
        has_ended = self._running.wait(wait_s)
        files = self._new_lines(self._probe.folders.records)
        return self._last_news(files) if has_ended else News(files, time.time())

    def stop(self) -> News:
        """End the program, and return the last that it recorded and printed. Raises as `news`."""
        assert self._probe is not None and self._running is not None
        self._running.end()
        return self._last_news(self._new_lines(self._probe.folders.records))

    def end(self) -> None:
        """End the program, and give everything back; can be called twice."""
        atexit.unregister(self.end)
        self._held.close()

    def _last_news(self, files: tuple[tuple[str, int, bytes], ...]) -> News:
        assert self._probe is not None and self._running is not None
        outcome, log = self._running.outcome(), read_log(self._probe.program.log)
        stacks = [(path.name, 0, path.read_bytes()) for path in self._probe.folders.records.glob("stacks-rank*-pid*.txt")]
        return News((*files, *stacks), time.time(), outcome, log, count_oom_kills() - self._kills_before)

    def _prepare(self) -> list[str]:
        sweep_orphans()
        taken, warnings = _result_of(take_checkout(self._held, self._job, self._context))
        place, _ = _result_of(furnish(self._held, taken, port=self._port, share=self._share))
        lay_out(place)
        self._probe = make_program(place, whole_run(place.job))
        _result_of(run_setup(self._probe))
        return warnings

    def _new_lines(self, records: Path) -> tuple[tuple[str, int, bytes], ...]:
        """Return what was added to each record file, as far as its lines are whole."""
        found = []
        for path in sorted(records.glob("rank*-pid*.jsonl")):
            offset = self._told.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            if content:
                self._told[path] = offset + len(content)
                found.append((path.name, offset, content))
        return tuple(found)


def _result_of(steps: Generator[ExecutorEvent, None, Result]) -> Result:
    """Run a generator to its end and return its result; nobody asks for a member's progress."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(Result, end.value)
