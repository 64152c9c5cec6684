"""One process of a fuzzing run: a range of one target's inputs under a limit of memory."""

from __future__ import annotations

import gc
import json
import mmap
import multiprocessing
import os
import resource
import struct
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.engine import Target, case_of, run_case
from tests.fuzz.results import Failure, Tally
from tests.fuzz.targets import TARGETS

MEMORY_MIB = 1024
"""Memory that inputs may take beyond what the process needs before the first one."""
COUNTER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Part:
    """Inputs `first` to `end` (without) of a target."""

    target: str
    seed: int
    first: int
    end: int


class Child:
    """A process that runs a part, started at once.

    Args:
        part: what it runs.
        folder: where it may write; a folder of its own is made there.
    """

    def __init__(self, part: Part, folder: Path) -> None:
        self.part = part
        self.is_stuck = False
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        (self._folder / "progress").write_bytes(COUNTER.pack(part.first))
        self._seen, self._since_t = -1, time.monotonic()
        self._process = multiprocessing.get_context("fork").Process(target=_run_part, args=(part, self._folder))
        self._process.start()

    @property
    def number(self) -> int:
        """The input at hand."""
        return int(COUNTER.unpack((self._folder / "progress").read_bytes())[0])

    def is_alive(self, *, stuck_s: float) -> bool:
        """Return whether it still runs; it is killed where one input takes so many seconds on the clock."""
        if not self._process.is_alive():
            return False
        if self.number != self._seen:
            self._seen, self._since_t = self.number, time.monotonic()
        if time.monotonic() - self._since_t > stuck_s:
            self.is_stuck = True
            self._process.kill()
            self._process.join()
        return not self.is_stuck

    def tally(self) -> Tally | None:
        """Return what it has counted, None where it died before its end."""
        result = self._folder / "result"
        return Tally.of_json(json.loads(result.read_text())) if result.exists() else None

    def said(self) -> str:
        """Return how it ended and the end of what it printed."""
        text = (self._folder / "said").read_text(errors="replace")
        return f"the process ended with {self._process.exitcode}: {text[-2000:]}"


def _run_part(part: Part, folder: Path) -> None:
    """Run a part in a process of its own; the number of the input at hand stands in a file all the time."""
    with (folder / "said").open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    tempfile.tempdir = str(folder)  # what is left behind goes with it
    warnings.simplefilter("ignore")
    gc.freeze()
    target = TARGETS[part.target]
    with (folder / "progress").open("r+b") as file, mmap.mmap(file.fileno(), COUNTER.size) as progress:
        run_case(target, case_of(target, part.seed, part.first))  # what is loaded with the first input is not its memory
        _limit_memory()
        tally = run_range(target, part.seed, part.first, part.end, progress)
    (folder / "written").write_text(json.dumps(tally.to_json()))
    (folder / "written").rename(folder / "result")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_MIB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_range(target: Target, seed: int, first: int, end: int, progress: mmap.mmap | None = None) -> Tally:
    """Run inputs of a target in this process and count what came of them."""
    tally = Tally(target.name)
    for number in range(first, end):
        if progress is not None:
            COUNTER.pack_into(progress, 0, number)
        ran = run_case(target, case_of(target, seed, number))
        tally.num += 1
        tally.num_clear += ran.kind.value == "clear error"
        if ran.cpu_s > tally.slowest_s:
            tally.slowest_s, tally.slowest_number = ran.cpu_s, number
        if ran.is_failure:
            known = tally.failures.setdefault(ran.place, Failure(ran.kind.value, ran.place, ran.said, number, 0))
            known.num += 1
    tally.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return tally
