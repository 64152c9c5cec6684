"""At the time limit: is the program slow, or does it hang, and where does each process stand? Pure.

Silence alone does not tell: a first step may compile for a minute, and a program that waits for ever may print that it
waits. So three things count: how long nothing has come, how much processor time the program took in the last seconds, and
whether its stacks stand in a wait (for other ranks, a lock, a child, a socket).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train_workers.gang import node_of_pid
from bisect_train_workers.records import ProcessRecord

QUIET_SHARE = 0.5
"""Share of the time limit without a sign after which a program that computes nothing hangs. Chosen, not measured."""
BUSY_CORES = 0.1
"""Processor time per second from which a program computes. Measured with two cores: ranks that wait in gloo's barrier, in
`all_reduce` or for the process group take 0.00 to 0.02, a rank that trains beside another load takes 0.4 and more."""

PATIENCE_S, PATIENCE_STEPS = 10.0, 3.0
"""Seconds, and times the longest step, that ranks may wait for each other with nobody computing. Chosen, not measured: an
exchange takes processor time, so that two ranks that both wait and both compute nothing for 5 s exchange nothing."""

_THREAD = re.compile(r"^(Current thread|Thread|Stack)\b")
_FRAME = re.compile(r'^\s+File "(?P<path>[^"]*)", line (?P<line>\d+|\?+) in (?P<function>.*)$')
_COMMUNICATION = re.compile(
    r"/torch/distributed/(distributed_c10d|rendezvous|device_mesh|c10d_logger|_functional_collectives)\.py$"
)
_COMPILING = re.compile(r"/(torch/(_inductor|_dynamo|_functorch|utils/cpp_extension)|triton)\b")
_WAITS = {
    "threading.py": {"wait", "join", "acquire", "_wait_for_tstate_lock"},
    "queue.py": {"get", "put", "join"},
    "selectors.py": {"select"},
    "socket.py": {"readinto", "accept", "recv"},
    "ssl.py": {"read", "recv", "recv_into"},
    "subprocess.py": {"wait", "_wait", "_try_wait", "communicate", "_communicate"},
    "connection.py": {"poll", "wait", "_poll", "_recv", "recv", "accept"},
    "popen_fork.py": {"poll", "wait"},
    "_base.py": {"result", "wait", "as_completed"},
    "streams.py": {"synchronize", "wait"},
    "api.py": {"_run", "_invoke_run"},  # torchrun's agent
}
_MAX_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack: file, line as text, function."""

    path: str
    line: str
    function: str

    @property
    def text(self) -> str:
        """Return `function (file:line)`."""
        return f"{self.function} ({self.path.rsplit('/', 1)[-1]}:{self.line})"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a process stood at the time limit.

    Attributes:
        frames: of its main thread, the innermost first; () if it left no stack.
        cores: processor time that it took in the last seconds, per second; None if it was gone, or not measured.
    """

    frames: tuple[Frame, ...] = ()
    cores: float | None = None

    @property
    def communicates(self) -> str:
        """What it waits for other ranks in (`barrier`), or ""."""
        found = [frame for frame in self.frames[:_MAX_FRAMES] if _COMMUNICATION.search(frame.path)]
        named = [frame.function for frame in found if frame.function not in ("wrapper", "inner")]
        return named[-1] if named else ""

    @property
    def waits_in(self) -> str:
        """What it waits in, "" if it does not."""
        if self.communicates:
            return self.communicates
        inner = self.frames[0] if self.frames else None
        if inner is not None and inner.function in _WAITS.get(inner.path.rsplit("/", 1)[-1], ()):
            return inner.function
        return ""

    @property
    def is_compiling(self) -> bool:
        """Whether it stands in a compiler's code."""
        return any(_COMPILING.search(frame.path) for frame in self.frames)

    def to_data(self) -> dict[str, Any]:
        """Return it as an event's data."""
        frames = [frame.text for frame in self.frames[:_MAX_FRAMES]]
        return {"cores": self.cores, "waits_in": self.waits_in, "frames": frames}


@dataclass(frozen=True, slots=True)
class Silence:
    """What is known at the time limit.

    Attributes:
        quiet_s: time without a sign (a step; before the first one any event, or output), seconds.
        eventless_s: time without a step or an event, seconds.
        timeout_s: the time limit, seconds.
        standings: of the program's processes, by pid.
        ranks: each rank's own record.
        has_gpu: whether the program may use a GPU: then a wait for it looks like work.
    """

    quiet_s: float
    eventless_s: float
    timeout_s: float
    standings: Mapping[int, Standing]
    ranks: Mapping[int, ProcessRecord]
    has_gpu: bool = False

    @property
    def is_hang(self) -> bool:
        """Whether nothing comes and nobody computes; sooner where all ranks only wait for each other, whatever they print."""
        if self.busy_cores >= BUSY_CORES:
            return False
        if self.quiet_s >= QUIET_SHARE * self.timeout_s:
            return True
        return self._all_wait_for_ranks and self.eventless_s >= self._patience_s

    @property
    def _patience_s(self) -> float:
        """Time without a step or an event after which ranks that all wait for each other will wait for ever, seconds."""
        usual_s = max((record.longest_gap_s for record in self.ranks.values()), default=0.0)
        return min(QUIET_SHARE * self.timeout_s, max(PATIENCE_S, PATIENCE_STEPS * usual_s))

    @property
    def busy_cores(self) -> float:
        """Processor time per second of all processes that do not stand in a wait."""
        return sum(standing.cores or 0.0 for pid, standing in self.standings.items() if self._computes(pid, standing))

    def _computes(self, pid: int, standing: Standing) -> bool:
        if standing.waits_in:
            return False
        is_rank = any(record.pid == pid for record in self.ranks.values())
        return not (self.has_gpu and is_rank) or standing.is_compiling

    @property
    def _all_wait_for_ranks(self) -> bool:
        standings = [self.standings.get(record.pid) for record in self.ranks.values()]
        return bool(standings) and all(standing is not None and standing.communicates for standing in standings)

    @property
    def dead_ranks(self) -> tuple[int, ...]:
        """Ranks whose process is gone while another one is still there, and that did not leave by themselves."""
        pids = {pid for pid, standing in self.standings.items() if standing.cores is not None}
        if not any(record.pid in pids for record in self.ranks.values()):
            return ()
        looked_at = {node_of_pid(pid) for pid in pids}  # of a node that was not looked at, nothing is known
        return tuple(
            rank
            for rank, record in self.ranks.items()
            if record.pid not in pids and node_of_pid(record.pid) in looked_at and not _has_left(record)
        )

    def describe(self) -> str:
        """Return what a person should read, without the time limit itself."""
        num_steps = max((len(record.steps) for record in self.ranks.values()), default=0)
        what = "step" if num_steps else "sign of a step"
        if self.is_hang:
            return "; ".join([f"no {what} for {self.eventless_s if not num_steps else self.quiet_s:.0f} s", *self._waits()])
        if self.busy_cores < BUSY_CORES:
            return "it was still making steps" if num_steps else "it still showed signs of life before its first step"
        return f"no {what} for {self.quiet_s:.0f} s, but it was computing ({self.busy_cores:.1f} cores)"

    def _waits(self) -> list[str]:
        found = []
        for rank, record in self.ranks.items():
            standing = self.standings.get(record.pid)
            if rank in self.dead_ranks or _has_left(record):
                found.append(f"rank {rank} has ended")
            elif standing is not None and standing.waits_in:
                found.append(f"rank {rank} waits in {standing.waits_in}")
        world_size = max((record.world_size for record in self.ranks.values()), default=0)
        if len(self.ranks) < world_size:
            found.append(f"only {len(self.ranks)} of {world_size} ranks came")
        return found


def _has_left(record: ProcessRecord) -> bool:
    """Return whether a process came to its own end with status 0."""
    return record.has_event("exit") and record.exit_code in (0, None)


def read_frames(text: str) -> tuple[Frame, ...]:
    """Return the main thread's frames of what faulthandler wrote, the innermost first; () without any.

    It is the thread that took the signal, else the last one; of several dumps the last counts.
    """
    threads: list[tuple[bool, list[Frame]]] = []
    for line in text.splitlines():
        if head := _THREAD.match(line):
            threads.append((head[1] != "Thread", []))
        elif threads and (found := _FRAME.match(line)):
            threads[-1][1].append(Frame(found["path"], found["line"], found["function"]))
    current = [frames for is_current, frames in threads if is_current]
    chosen: Sequence[Frame] = current[-1] if current else threads[-1][1] if threads else ()
    return tuple(chosen)
