"""What a run of inputs came to, as values that travel between processes and are shown as a table."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.engine import Case


@dataclass(slots=True)
class Failure:
    """One way in which a reader broke its promise: kind, where, what was said, number of the first input, how many did it."""

    kind: str
    place: str
    said: str
    number: int
    num: int = 1


@dataclass(slots=True)
class Tally:
    """Inputs of one target.

    Attributes:
        target: its name.
        num, num_clear: inputs, and those of them that ended with a clear error.
        slowest_s, slowest_number: processor time of the slowest input, and which one it was.
        peak_mib: most memory of the process, MiB.
        failures: by place.
    """

    target: str
    num: int = 0
    num_clear: int = 0
    slowest_s: float = 0.0
    slowest_number: int = 0
    peak_mib: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)

    def join(self, other: Tally) -> None:
        """Add what another process counted."""
        self.num += other.num
        self.num_clear += other.num_clear
        self.peak_mib = max(self.peak_mib, other.peak_mib)
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest_number = other.slowest_s, other.slowest_number
        for place, failure in other.failures.items():
            if place in self.failures:
                self.failures[place].num += failure.num
            else:
                self.failures[place] = failure

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)

    @staticmethod
    def of_json(data: dict[str, Any]) -> Tally:
        """Return what `to_json` wrote."""
        return Tally(**{**data, "failures": {place: Failure(**item) for place, item in data["failures"].items()}})


def table_of(tallies: Sequence[Tally]) -> str:
    """Return a Markdown table: target, inputs, clear errors, crashes and hangs, the slowest input, memory."""
    rows = [("target", "inputs", "clear errors", "crashes", "hangs", "slowest", "memory")]
    for tally in tallies:
        rows.append(_row(tally.target, [tally]))
    if len(tallies) > 1:
        rows.append(_row("all", tallies))
    widths = [max(len(row[idx]) for row in rows) for idx in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    rule = "|" + "|".join(" " + "-" * width + (":" if idx else "-") for idx, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _row(name: str, tallies: Sequence[Tally]) -> tuple[str, ...]:
    failures = [failure for tally in tallies for failure in tally.failures.values()]
    num_crashes, num_hangs = (sum(item.num for item in failures if item.kind == kind) for kind in ("crash", "hang"))
    slowest = max((tally.slowest_s for tally in tallies), default=0.0)
    peak = max((tally.peak_mib for tally in tallies), default=0)
    num, num_clear = sum(tally.num for tally in tallies), sum(tally.num_clear for tally in tallies)
    return name, f"{num:,}", f"{num_clear:,}", str(num_crashes), str(num_hangs), f"{slowest:.2f} s", f"{peak} MiB"


def save_case(path: Path, target: str, case: Case, *, place: str, said: str) -> None:
    """Write a failing input, to be run again by `--replay`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"target": target, "place": place, "case": _plain(case), "said": said}, indent=1))


def load_case(path: Path) -> tuple[str, Case]:
    """Return target and input of a saved case."""
    data = json.loads(path.read_text())
    return data["target"], _case(data["case"])


def _plain(case: Case) -> Any:
    """Return a case as JSON-able data; what JSON does not know is marked by its type."""
    if isinstance(case, bytes):
        return {"bytes": base64.b64encode(case).decode()}
    if isinstance(case, tuple):
        return {"tuple": [_plain(item) for item in case]}
    if isinstance(case, dict):
        return {"dict": [[key, _plain(item)] for key, item in case.items()]}
    return [_plain(item) for item in case] if isinstance(case, list) else case


def _case(data: Any) -> Case:
    if isinstance(data, list):
        return [_case(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "bytes":
        return base64.b64decode(value)
    return tuple(map(_case, value)) if kind == "tuple" else {key: _case(item) for key, item in value}
