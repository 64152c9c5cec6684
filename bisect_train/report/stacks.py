"""Dumped stacks of processes that did not answer, with where each stands as triage reads it."""

from __future__ import annotations

from bisect_train.core.probe import ProbeResult
from bisect_train.report.triage_parts import StackPart
from bisect_train.report.words import shorten
from bisect_train.verdict.triage.waits import read_wait

LAUNCHER = "launcher"
MAX_STACK = 6000  # characters of one process's stacks that a report carries, the last ones: its main thread comes last


def list_stacks(result: ProbeResult) -> tuple[StackPart, ...]:
    """Return the dumped stacks of a run, by rank."""
    parts = [_part(name, text) for name, text in result.stacks]
    return tuple(sorted(parts, key=lambda part: (part.rank is None, part.rank or 0, part.name)))


def _part(name: str, text: str) -> StackPart:
    """Return one process's stacks; a launcher carries the environment of rank 0, and is none."""
    wait, kept = read_wait(name, text), text[-MAX_STACK:]
    if wait is None:
        # not written by Python itself, another dumper's perhaps: its first frame is said as it stands
        return StackPart(
            name, None, shorten(next((line for line in text.splitlines() if line.startswith((" ", "\t"))), ""), 160), kept
        )
    return StackPart(LAUNCHER, None, wait.place, kept) if wait.is_launcher else StackPart(name, wait.rank, wait.place, kept)
