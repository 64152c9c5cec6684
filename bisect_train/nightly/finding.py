"""What a night has found, as a value that is stored, shown and told; the same finding keeps its id over the nights."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class FindingKind(str, Enum):
    """What was found."""

    REGRESSION = "regression"  # the newest commit is worse than the last good one
    DRIFT = "drift"  # worse than a pinned baseline or than the nights before, by steps too small to be seen one by one
    UNTESTABLE = "untestable"  # the newest commit could not be compared: it does not start, or shows no metric


class FindingState(str, Enum):
    """Where a finding stands when it is told."""

    OPEN = "open"  # told for the first time
    UPDATED = "updated"  # still open, and more is known: a culprit after candidates, say
    CLOSED = "closed"  # fixed: the metric is back
    INTENDED = "intended"  # somebody has said that the change is meant


@dataclass(frozen=True, slots=True)
class FoundChange:
    """A change that was named: kind and id as in report.json (a commit's id is its 40 hex digits), one line for a person.

    Attributes:
        author: name of a commit's author, "" if unknown or no commit.
        email: of the author; a message names them only where that was asked for.
    """

    kind: str
    id: str
    title: str
    author: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, at one of its tellings.

    Attributes:
        id: letters, digits and dashes; the same for the same finding over all nights.
        revision: number of the telling, from 1: a message is new exactly if (id, revision) is.
        state: where it stands.
        kind: what was found.
        watch: name of the nightly watch that has found it.
        repo: path or address of the repository, for a person.
        branch: that is watched.
        title: a few words, such as `loss is worse on main since 1a2b3c4d`.
        summary: one sentence or two.
        details: further sentences, () if there are none.
        culprits: proved changes; () where none is isolated.
        candidates: changes that could be it, where none is isolated.
        is_confirmed: whether the proof of the answer has held; who is blamed in public rests on this.
        good, bad: commits that were compared, 40 hex digits.
        fixed_by: newest commit of the night that closed it, "" otherwise.
        bisection: id of the stored bisection, "" where none was run.
        report: report.json (schema 1) of the bisection, None where none was run.
        opened_s, changed_s: when it was first seen, and when this telling came about; seconds since the epoch.
        links: (words, address) pairs.
    """

    id: str
    revision: int
    state: FindingState
    kind: FindingKind
    watch: str
    repo: str
    branch: str
    title: str
    summary: str
    good: str
    bad: str
    opened_s: float
    changed_s: float
    details: tuple[str, ...] = ()
    culprits: tuple[FoundChange, ...] = ()
    candidates: tuple[FoundChange, ...] = ()
    is_confirmed: bool = False
    fixed_by: str = ""
    bisection: str = ""
    report: dict[str, Any] | None = None
    links: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """What a receiver drops a repeat by: a message that was sent twice has the same key."""
        return f"{self.id}.{self.revision}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict, `key` included."""
        return {"key": self.key, **asdict(self), "state": self.state.value, "kind": self.kind.value}

    @staticmethod
    def of_json(data: dict[str, Any]) -> Finding:
        """Return the finding that `to_json` wrote."""
        kept = {name: value for name, value in data.items() if name != "key"}
        kept["state"] = FindingState(data["state"])
        kept["kind"] = FindingKind(data["kind"])
        kept["details"] = tuple(data.get("details", ()))
        for name in ("culprits", "candidates"):
            kept[name] = tuple(FoundChange(**item) for item in data.get(name, ()))
        kept["links"] = tuple((pair[0], pair[1]) for pair in data.get("links", ()))
        return Finding(**kept)


def finding_id(watch: str, kind: FindingKind, *what: str) -> str:
    """Return the id of a finding: the same for the same watch, kind and what it is about (ids of changes, or ends)."""
    text = "\0".join((watch, kind.value, *what))
    return f"{kind.value}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
