"""Several nodes that run the ranks of one probe together: a gang, as the first of its nodes sees it.

The first node does what it does for any probe. The others, its members, each prepare the same variant, run their share of the
ranks and give away what these recorded; the first node lays that beside its own records, so that whoever reads them sees
one run. Process ids are told apart by the node, and times are set to the first node's clock. It knows nothing of Ray.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from bisect_train.core.executor import ExecutorEvent
from bisect_train.core.probe import ProbeJob
from bisect_train_workers.program import Outcome, Program, RunningProgram, SupervisorLostError, supervise

PID_STRIDE = 10_000_000
"""Added to the process ids of each further node; more than any kernel gives."""
GRACE_S = 20.0
"""Time that the ranks of the other nodes get to fail on their own, once those of one node have failed, seconds."""

_FILE = re.compile(r"(?P<kind>rank|stacks-rank)(?P<rank>\d{1,9})-pid(?P<pid>\d{1,9})\.(?P<ext>jsonl|txt)")
_PID_IN_LOG = re.compile(r"\(pid: (\d{1,9})\)")


@dataclass(frozen=True, slots=True)
class News:
    """What a member has to tell since it was last asked.

    Attributes:
        files: (name, offset, content) of what was added to its record files: whole lines, as they were written.
        now_t: its clock, seconds since the epoch.
        outcome: how its program ended, None while it runs.
        log: what its program printed, once it has ended.
        oom_kills: processes that its kernel killed for memory meanwhile.
    """

    files: tuple[tuple[str, int, bytes], ...] = ()
    now_t: float = 0.0
    outcome: Outcome | None = None
    log: str = ""
    oom_kills: int = 0


class Member(Protocol):
    """One of the further nodes. All raise `probe_run.LostError` where it is gone."""

    def start(self) -> None:
        """Have the prepared program started."""

    def news(self) -> News:
        """Return what is new."""
        ...

    def stop(self) -> News:
        """Have the program and all it started ended; return the last that is new."""
        ...


class Gang(Protocol):
    """The members of one probe, while it runs."""

    def prepared(self) -> Generator[ExecutorEvent, None, Sequence[Member]]:
        """Wait until all members could start.

        Raises:
            CannotStartError, LostError, NodeError: one cannot.
        """
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What the members' checkouts have to say."""
        ...


Gather = Callable[[ProbeJob, int], contextlib.AbstractContextManager[Gang]]
"""From a job and the port on which its ranks meet to its members; all of them are gone at the end of the block."""


@dataclass(slots=True)
class _Part:
    """One member's share as it goes on."""

    idx: int
    member: Member
    last: News = field(default_factory=News)
    offset_s: float = math.inf

    def take(self, news: News, records: Path) -> None:
        """Lay news beside the records of the first node; the clocks differ by what the quickest news says."""
        self.last, self.offset_s = news, min(self.offset_s, time.time() - news.now_t)
        lay_beside(news, records, idx=self.idx, offset_s=self.offset_s)

    @property
    def outcome(self) -> Outcome | None:
        return self.last.outcome


class RunningGang:
    """A program that runs on several nodes; it is used as a `RunningProgram` is.

    Where the ranks of one node fail, the others wait for them in vain: they are ended after a while.
    """

    def __init__(self, local: RunningProgram, records: Path, members: Sequence[Member]) -> None:
        self._local = local
        self._records = records
        self._parts = [_Part(idx, member) for idx, member in enumerate(members, start=1)]
        self._local_outcome: Outcome | None = None
        self._first_failure: Outcome | None = None
        self._failed_t = 0.0
        self._is_over = False

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end on all nodes, at most about `timeout_s` seconds; return whether it has come."""
        if self._local_outcome is not None:
            time.sleep(timeout_s)
        elif self._local.wait(timeout_s):
            self._local_outcome = self._local.outcome()
            self._note(self._local_outcome)
        for part in self._parts:
            if part.outcome is None:
                part.take(part.member.news(), self._records)
                if part.outcome is not None and part.outcome.ended_by == "orders":
                    raise SupervisorLostError("a node's share was ended, and not by this probe")
                self._note(part.outcome)
        is_over = self._local_outcome is not None and all(part.outcome is not None for part in self._parts)
        if not is_over and self._failed_t and time.monotonic() - self._failed_t > GRACE_S:
            self.end()
            return True
        return is_over

    def outcome(self) -> Outcome:
        """Return how it ended: as the ranks that failed first did, else as those of this node. Raises as `RunningProgram`'s."""
        own = self._local_outcome or self._local.outcome()
        return join_outcomes(own, [(part.idx, part.outcome) for part in self._parts], first_failure=self._first_failure)

    def logs(self) -> list[str]:
        """Return what was printed on the further nodes, with the process ids of their records."""
        return [shift_log(part.last.log, idx=part.idx) for part in self._parts]

    @property
    def oom_kills(self) -> int:
        """Processes that the kernels of the further nodes killed for memory."""
        return sum(part.last.oom_kills for part in self._parts)

    def end(self) -> None:
        """Have everything ended on all nodes, wait for it, and take what it left."""
        if self._is_over:
            return
        self._is_over = True
        self._local.end()
        for part in self._parts:
            if part.outcome is None:
                with contextlib.suppress(Exception):  # it is gone: whoever waited for it has been told
                    part.take(part.member.stop(), self._records)

    def _note(self, outcome: Outcome | None) -> None:
        if outcome is not None and self._first_failure is None and has_failed(outcome):
            self._first_failure, self._failed_t = outcome, time.monotonic()


@contextlib.contextmanager
def supervise_gang(program: Program, members: Sequence[Member]) -> Iterator[RunningGang]:
    """Run a program on all nodes; whatever happens in the block, all its processes are gone afterwards."""
    for member in members:
        member.start()
    with supervise(program) as local:
        running = RunningGang(local, program.records, members)
        try:
            yield running
        finally:
            running.end()


def has_failed(outcome: Outcome) -> bool:
    """Return whether a program failed on its own, or did not start, or was stopped at the time limit."""
    return bool(outcome.start_error) or outcome.ended_by == "timeout" or (outcome.ended_by == "itself" and outcome.status != 0)


def join_outcomes(own: Outcome, others: Sequence[tuple[int, Outcome | None]], *, first_failure: Outcome | None) -> Outcome:
    """Return the outcome of all nodes together.

    Args:
        own: of the first node.
        others: by number of the node, from 1; None of one that was ended before it could tell.
        first_failure: of whichever node failed first, None where none did.
    """
    told = [(idx, outcome) for idx, outcome in others if outcome is not None]
    cores = dict(own.cores)
    for idx, outcome in told:
        cores |= {shift_pid(pid, idx): value for pid, value in outcome.cores.items()}
    how = first_failure or own
    return replace(
        own,
        start_error=how.start_error,
        ended_by=how.ended_by,
        status=how.status,
        run_s=max(own.run_s, *(outcome.run_s for _, outcome in told)) if told else own.run_s,
        left_pids=(*own.left_pids, *(shift_pid(pid, idx) for idx, outcome in told for pid in outcome.left_pids)),
        dropped_bytes=own.dropped_bytes + sum(outcome.dropped_bytes for _, outcome in told),
        cores=cores,
    )


def lay_beside(news: News, records: Path, *, idx: int, offset_s: float) -> None:
    """Add what a member recorded to the records of the first node.

    Args:
        news: of the member.
        records: folder of the first node's record files.
        idx: of the member's node, from 1.
        offset_s: added to its times, seconds.
    """
    for name, offset, content in news.files:
        if not (found := _FILE.fullmatch(name)):
            continue
        shifted = f"{found['kind']}{found['rank']}-pid{shift_pid(int(found['pid']), idx)}.{found['ext']}"
        if found["ext"] == "jsonl":
            content = b"".join(_shift_line(line, idx=idx, offset_s=offset_s) for line in content.splitlines())
        with (records / shifted).open("ab" if offset else "wb") as file:
            file.write(content)


def node_of_pid(pid: int) -> int:
    """Return the number of the node that a process of the records ran on, 0 for the first."""
    return pid // PID_STRIDE


def shift_pid(pid: int, idx: int) -> int:
    """Return what stands for a process of the node with this number."""
    return pid + idx * PID_STRIDE


def shift_log(log: str, *, idx: int) -> str:
    """Return a log in which the process ids that torchrun tells are those of the records."""
    return _PID_IN_LOG.sub(lambda match: f"(pid: {shift_pid(int(match[1]), idx)})", log)


def _shift_line(text: bytes, *, idx: int, offset_s: float) -> bytes:
    """Return a record line with process id and time of the first node; what is none of the recorder's stays as it is."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return text + b"\n"
    if isinstance(line, dict):
        for name, more in (("pid", idx * PID_STRIDE), ("t", offset_s)):
            value = line.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                line[name] = value + more
    return json.dumps(line).encode() + b"\n"
