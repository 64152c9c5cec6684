"""Dumped stacks of processes that wait: which rank waits where, and who called it."""

from __future__ import annotations

import re

from bisect_train.core.probe import ProbeResult
from bisect_train.report.triage_parts import StackPart
from bisect_train.report.words import shorten

_FRAME = re.compile(r'^\s+File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<name>.+?)\s*$')
_RANK = re.compile(r"rank(\d+)")
_LIBRARY = re.compile(r"(site|dist)-packages/|/lib/python3[^/]*/|^<frozen |/_bisect_train_recorder/")
_LAUNCHER = re.compile(r"torch/distributed/(elastic/agent|run\.py)")
LAUNCHER = "launcher"
MAX_STACK = 6000  # characters of one process's stacks that a report carries, the last ones: its main thread comes last


def list_stacks(result: ProbeResult) -> tuple[StackPart, ...]:
    """Return the dumped stacks of a run, by rank."""
    parts = [_part(name, text) for name, text in result.stacks]
    return tuple(sorted(parts, key=lambda part: (part.rank is None, part.rank or 0, part.name)))


def _part(name: str, text: str) -> StackPart:
    """Return one process's stacks; a launcher carries the environment of rank 0, and is none."""
    is_launcher = _LAUNCHER.search(text) is not None
    rank = None if is_launcher else rank_of(name)
    return StackPart(LAUNCHER if is_launcher else name, rank, waits_at(text), text[-MAX_STACK:])


def rank_of(name: str) -> int | None:
    """Return the rank that the name of a stack says, None if it says none."""
    found = _RANK.search(name)
    return int(found.group(1)) if found else None


def waits_at(text: str) -> str:
    """Return where the main thread of a dumped stack waits, and the line of the program that led there; "" if unknown."""
    frames = [match.groupdict() for line in _main_thread(text) if (match := _FRAME.match(line))]
    if not frames:
        return shorten(next((line for line in text.splitlines() if line.startswith((" ", "\t"))), ""), 160)
    inner = frames[0]
    own = next((frame for frame in frames if not _LIBRARY.search(frame["file"])), None)
    place = f"{inner['name']} ({_short(inner['file'])}:{inner['line']})"
    return place if own in (None, inner) else f"{place}, called from {own['name']} ({_short(own['file'])}:{own['line']})"


def _main_thread(text: str) -> list[str]:
    """Return the lines of the thread that was interrupted, the program's own; all of them where none is marked."""
    lines = text.splitlines()
    begins = next((idx for idx, line in enumerate(lines) if line.startswith("Current thread")), None)
    if begins is None:
        return lines
    rest = lines[begins + 1 :]
    ends = next((idx for idx, line in enumerate(rest) if line.startswith(("Thread ", "Current thread"))), len(rest))
    return rest[:ends]


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])
