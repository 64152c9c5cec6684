"""What every store promises; `tests/contracts/test_store_contract.py` holds each implementation to it.

Ownership: a bisection belongs to the coordinator that holds its lock. Only this one appends to it, except for
`request_cancel`, which anyone may call. Everybody may read at any time. Where the lock is a lease (a database that several
machines share), a coordinator that was not heard of for too long loses it: from then on its writes are refused with
MachineError, those that wait for a lock already too.

Watching: `updates` tells which bisections have news, `events` what is new in one. Both can be read in pages.

Durability: when a writing call has returned, what it wrote survives the death of the process; an event is there as a
whole or not at all. Events of one bisection are numbered 1, 2, 3 ... without gaps.

Values are JSON as Python writes it: NaN and Infinity are kept, tuples come back as lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question

MARKED = "marked"
UNDONE = "undone"
LIFECYCLE = {
    "started": "running",
    "interrupted": "interrupted",
    "cancelled": "cancelled",
    "finished": "finished",
    MARKED: "changed",
    UNDONE: "changed",
}
"""Event -> status of the bisection while it is the last of these; "created" before the first."""

CANCEL_REQUESTED = "cancel_requested"
PROBE_FINISHED = "probe_finished"
PROBE_REUSED = "probe_reused"
SPENDING = ("probe_lost", "probe_cancelled")
"""Events that say with `wall_s` what a probe used that has no result."""
PAGE = 100


@dataclass(frozen=True, slots=True)
class StoredBisection:
    """A bisection as stored.

    Attributes:
        id: 8 hex digits; later bisections sort after earlier ones.
        created_s: seconds since the epoch.
        question: what was asked, `core.question.Question.to_json`.
        title: one line for a person.
        status: created, running, interrupted, cancelled, finished or changed (a person marked something or took it back since
            it last ran), by its last lifecycle event. A coordinator that was killed leaves "running" behind: ask `is_running`.
        answer: the report of the last "finished" event (its `answer`), None unless finished: once something was marked or
            taken back, it is no longer the answer.
    """

    id: str
    created_s: float
    question: dict[str, Any]
    title: str
    status: str
    answer: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something that happened in a bisection.

    Attributes:
        seq: number from 1.
        kind: what.
        time_s: when, seconds since the epoch.
        data: details, as they were stored; {} where there is a problem.
        problem: why the details cannot be read, "" if they can.
    """

    seq: int
    kind: str
    time_s: float
    data: dict[str, Any]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoredProbe:
    """A probe's result in a bisection.

    Attributes:
        key: identity of the probe (`core.probe.probe_key`).
        bisection_id: where it was finished or reused.
        spec: what was run, as given to `save_result` or `reuse_result`.
        result: what came back.
        time_s: when it was stored, seconds since the epoch.
    """

    key: str
    bisection_id: str
    spec: dict[str, Any]
    result: ProbeResult
    time_s: float


@dataclass(frozen=True, slots=True)
class Update:
    """That something happened in a bisection: an event, or a step of the queue; later ones have higher numbers."""

    number: int
    bisection_id: str


class Store(Protocol):
    """Keeps bisections.

    Unknown ids raise InputError; a database that cannot be used raises MachineError.
    """

    def create(self, question: dict[str, Any], *, title: str) -> str:
        """Store a question and return the new bisection's id."""

    def load(self, id_or_prefix: str) -> StoredBisection:
        """Return a bisection by its id, by the beginning of it, or the newest for "last".

        Raises:
            InputError: none or several have this id.
        """

    def list(self) -> tuple[StoredBisection, ...]:
        """Return all bisections, the newest first."""

    def page(self, *, limit: int = PAGE, before: str | None = None, parts: bool = True) -> tuple[StoredBisection, ...]:
        """Return some of them, the newest first.

        Args:
            limit: at most so many.
            before: id of the last one of the page before.
            parts: also those that look inside what others have named (`part_of` in the question).
        Raises:
            InputError: there is no bisection `before`.
        """

    def updates(self, after: int, *, limit: int = PAGE) -> tuple[Update, ...]:
        """Return which bisections have news with numbers above `after`, in order, each once with its last number.

        Who goes on from the last number that was returned misses nothing, whatever is written at the same time.
        """

    def last_update(self) -> int:
        """Return the highest number of an update so far, to watch from now on; 0 in an empty store."""

    def append(self, bisection_id: str, kind: str, data: dict[str, Any]) -> int:
        """Append one event in one transaction and return its number."""

    def events(self, bisection_id: str, *, after: int = 0, limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Return the events numbered above `after`, in order; at most `limit`. One that is torn says so in its `problem`."""

    def save_result(self, bisection_id: str, key: str, result: ProbeResult, *, spec: dict[str, Any]) -> None:
        """Store a probe's result and the event "probe_finished" {key, spec} in one transaction.

        A key that this bisection has already is left as it is, and no event is appended: the first observation counts.
        """

    def reuse_result(self, bisection_id: str, key: str, spec: dict[str, Any]) -> None:
        """Note with the event "probe_reused" {key, spec} that a known result counts here too; again nothing if it does.

        Raises:
            InputError: there is no result with this key.
        """

    def find_result(self, key: str) -> ProbeResult | None:
        """Return the result that was first stored under this key by any bisection, or None."""

    def find_probe(self, prefix: str) -> StoredProbe:
        """Return a finished probe by its key or the beginning of it.

        Raises:
            InputError: none or several keys begin like this.
        """

    def results(self, bisection_id: str) -> tuple[StoredProbe, ...]:
        """Return the results that count in a bisection, in the order of finishing or reusing."""

    def lock(self, bisection_id: str) -> AbstractContextManager[None]:
        """Return a context in which no other coordinator, of this or another process, can have this bisection.

        Raises:
            InputError: another one has it; names its process.
        """

    def is_running(self, bisection_id: str) -> bool:
        """Return whether a coordinator holds the lock."""

    def request_cancel(self, bisection_id: str) -> None:
        """Ask the coordinator to stop, with an event."""

    def cancel_requested(self, bisection_id: str) -> bool:
        """Return whether that was asked since the bisection was last started.

        Raises:
            MachineError: this process held the lock, and has lost it.
        """

    def close(self) -> None:
        """Give back connections; can be called twice."""


def status_of(events: Sequence[StoredEvent]) -> tuple[str, dict[str, Any] | None]:
    """Return the status and the answer that the events of a bisection give."""
    for event in reversed(events):
        if event.kind in LIFECYCLE:
            answer = event.data.get("answer") if event.kind == "finished" else None
            return LIFECYCLE[event.kind], answer if isinstance(answer, dict) else None
    return "created", None


def is_cancel_requested(kinds: Sequence[str]) -> bool:
    """Return whether cancelling was asked for after the last start, given the kinds of the events in order."""
    for kind in reversed(kinds):
        if kind in (CANCEL_REQUESTED, "started"):
            return kind == CANCEL_REQUESTED
    return False


def pick_prefix(wanted: str, ids: Sequence[str], *, what: str, hint: str) -> str:
    """Return the one id that is, or begins with, what was asked for; `ids` are sorted.

    Raises:
        InputError: none or several do.
    """
    if wanted in ids:
        return wanted
    found = [item for item in ids if wanted and item.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"there is no {what} {wanted!r}", hint=hint)
    some = ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")
    raise InputError(f"{wanted!r} is ambiguous: {len(found)} {what}s begin like this ({some})", hint=hint)


BISECTION_HINT = "`bisect-train list` shows the stored bisections"
PROBE_HINT = "`bisect-train log` shows the probes of a bisection"


def no_bisection(bisection_id: str) -> InputError:
    """Return the error for an id that no bisection has."""
    return InputError(f"there is no bisection {bisection_id!r}", hint=BISECTION_HINT)


def no_result(key: str) -> InputError:
    """Return the error for a key that no result has."""
    return InputError(f"there is no result of a probe {key!r}", hint=PROBE_HINT)


def lock_held(bisection_id: str, pid: str) -> InputError:
    """Return the error for a bisection that another coordinator has.

    Args:
        bisection_id: what is being run.
        pid: its process, on another machine with its name (`12 on node3`); "" if it cannot be told.
    """
    who = f"process {pid}" if pid else "another process"
    return InputError(
        f"bisection {bisection_id} is being run by {who}",
        hint=f"watch it with `bisect-train status {bisection_id}`, stop it with `bisect-train cancel {bisection_id}`",
    )


def whole_in(question: dict[str, Any]) -> str:
    """Return the id of the bisection that a question is about a part of, or ""."""
    return str(question.get("part_of") or "")


def gpus_in(question: dict[str, Any]) -> float:
    """Return how many GPUs one probe of a question uses; of a question that nobody can read as many as it says by itself."""
    found = question.get("settings")
    settings: dict[str, Any] = found if isinstance(found, dict) else {}
    gpus = settings.get("gpus")
    if not isinstance(gpus, (int, float)):
        return 0.0
    if not settings.get("ranks_per_node"):
        return float(gpus)
    try:
        return Question.of_json(question).gpus_of_probe
    except MachineError:
        return float(gpus)


def next_id(created_s: float, is_taken: Sequence[str]) -> str:
    """Return a new bisection's id: the second of its creation in hex, or the next one that is free."""
    number = int(created_s)
    taken = frozenset(is_taken)
    while f"{number:08x}" in taken:
        number += 1
    return f"{number:08x}"
