"""Runs one input of a target under a time limit, says what came of it, and makes a failing one smaller."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

from bisect_train.core.errors import BisectTrainError

LIMIT_S = 2.0
"""Processor time of one input, seconds."""
MAX_MESSAGE_CHARS = 7000
ROOT = Path(__file__).resolve().parents[2]
_OURS = ("bisect_train/", "workers/", "tests/fuzz/targets/")
Case = Any
"""An input: text, bytes, or lists, tuples and mappings of such and of plain values."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reader and the inputs that it is given.

    Attributes:
        name: one word or two with a dash.
        make: random numbers -> input.
        run: reads the input and checks what holds for any; what it raises beside `promised` is a failure.
        promised: the errors that the reader's contract names.
        share: its part of all inputs, relative to the others.
    """

    name: str
    make: Callable[[random.Random], Case]
    run: Callable[[Case], object]
    promised: tuple[type[Exception], ...]
    share: float = 1.0


class Kind(str, Enum):
    """What came of an input."""

    READ = "read"
    CLEAR = "clear error"
    CRASH = "crash"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Ran:
    """One input's run: what came of it, where (for failures, "" else), what was said, processor time in seconds."""

    kind: Kind
    place: str
    said: str
    cpu_s: float

    @property
    def is_failure(self) -> bool:
        """Whether the reader broke its promise."""
        return self.kind in (Kind.CRASH, Kind.HANG)


class TooSlow(BaseException):
    """The input has used up its time; no reader catches this."""


def case_of(target: Target, seed: int, number: int) -> Case:
    """Return an input by its number."""
    return target.make(random.Random(f"{seed}/{target.name}/{number}"))


def run_case(target: Target, case: Case, *, limit_s: float = LIMIT_S) -> Ran:
    """Read an input and say what came of it."""
    began_s = time.process_time()

    def ran(kind: Kind, place: str = "", said: str = "") -> Ran:
        return Ran(kind, place, said, time.process_time() - began_s)

    try:
        with _limited(limit_s):
            target.run(case)
    except target.promised as error:
        if problem := _problem_of(error):
            return ran(Kind.CRASH, place_of(error), problem)
        done = ran(Kind.CLEAR)
    except TooSlow as error:
        return ran(Kind.HANG, place_of(error), f"more than {limit_s:g} s")
    except Exception as error:
        return ran(Kind.CRASH, place_of(error), "".join(traceback.format_exception(error))[-6000:])
    else:
        done = ran(Kind.READ)
    # what a signal cannot interrupt (one call of C code) is only seen afterwards
    return Ran(Kind.HANG, "in one call", f"{done.cpu_s:.1f} s", done.cpu_s) if done.cpu_s > limit_s else done


def _problem_of(error: Exception) -> str:
    """Return why a promised error is not clear, "" if it is."""
    if not str(error).strip():
        return f"{type(error).__name__} without a word"
    if isinstance(error, BisectTrainError) and len(error.message) + len(error.hint) > MAX_MESSAGE_CHARS:
        return f"{type(error).__name__} of {len(error.message) + len(error.hint):,} characters"
    return ""


def place_of(error: BaseException) -> str:
    """Return what failed and where: type of the exception, file and function of the innermost frame of ours."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if name.startswith(_OURS):
            where = f"{name}:{frame.name}"
    return f"{type(error).__name__} in {where}"


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise TooSlow in the block once it has used so much processor time; the main thread only."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def shrink_case(target: Target, case: Case, place: str, *, budget_s: float = 20.0) -> Case:
    """Return a smaller input that fails at the same place; what was tried within so many seconds."""
    until_s = time.monotonic() + budget_s

    def fails(smaller: Case) -> bool:
        ran = run_case(target, smaller)
        return ran.is_failure and ran.place == place

    changed = True
    while changed and time.monotonic() < until_s:
        changed = False
        for smaller in _smaller(case):
            if time.monotonic() > until_s:
                break
            if fails(smaller):
                case, changed = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yield inputs with a part left out, large parts first."""
    if isinstance(case, (str, bytes)):
        size = len(case) // 2
        while size:
            for start in range(0, len(case), size):
                yield case[:start] + case[start + size :]
            size //= 2
    elif isinstance(case, dict):
        for key in case:
            yield {name: item for name, item in case.items() if name != key}
        for key, item in case.items():
            yield from ({**case, key: smaller} for smaller in _smaller(item))
    elif isinstance(case, (list, tuple)):
        if isinstance(case, list):
            yield from (case[:idx] + case[idx + 1 :] for idx in range(len(case)))
        for idx, item in enumerate(case):
            for smaller in _smaller(item):
                yield type(case)([*case[:idx], smaller, *case[idx + 1 :]])
