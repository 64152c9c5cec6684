"""What one process of a probe recorded: the lines of its file, as they came."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bisect_train_workers.record_lines import clean_line


@dataclass(slots=True)
class ProcessRecord:
    """One process's file.

    Attributes:
        start: its start line, {} without one.
        steps: last line of each step, by step.
        events: event lines in order.
        num_starts: programs that wrote to it, one after the other in the same process (`os.exec`).
    """

    start: dict[str, Any] = field(default_factory=dict)
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    num_starts: int = 0

    @property
    def rank(self) -> int:
        """Rank in the process group if there is one, else that of the environment."""
        return int(self._of_group("rank", self.start.get("rank", 0)))

    @property
    def world_size(self) -> int:
        """Number of ranks, as this process sees it."""
        return int(self._of_group("world_size", self.start.get("world_size", 1)))

    @property
    def pid(self) -> int:
        """Process id, 0 if it is not known."""
        return int(self.start.get("pid") or 0)

    @property
    def longest_gap_s(self) -> float:
        """Longest time between two steps that follow each other, seconds; 0 with less than two."""
        times = [float(self.steps[step].get("t", 0.0)) for step in sorted(self.steps)]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    @property
    def exit_code(self) -> int | None:
        """Exit status that its end was recorded with, None if none was."""
        codes = [line.get("data", {}).get("code") for line in self.events_named("exit")]
        return codes[-1] if codes and isinstance(codes[-1], int) else None

    @property
    def last_event_t(self) -> float:
        """When its last event was written, seconds since the epoch; 0 without one."""
        return max((float(line.get("t", 0.0)) for line in self.events), default=0.0)

    @property
    def last_progress_t(self) -> float:
        """When its last step was written, seconds since the epoch; 0 without one."""
        return max((float(line.get("t", 0.0)) for line in self.steps.values()), default=0.0)

    @property
    def written_outside(self) -> list[str]:
        """Absolute paths outside the checkout that it wrote, as its last event about them says."""
        lines = self.events_named("outside_files")
        return [str(path) for path in lines[-1].get("data", {}).get("written", ())] if lines else []

    def has_event(self, name: str) -> bool:
        """Return whether an event of this name was recorded."""
        return any(line.get("name") == name for line in self.events)

    def events_named(self, name: str) -> list[dict[str, Any]]:
        """Return the event lines of this name, in order."""
        return [line for line in self.events if line.get("name") == name]

    def take(self, read: Any) -> None:
        """Add one line of the file; what is none is passed over."""
        line = clean_line(read)
        if line is None:
            return
        kind = line["type"]
        if kind == "start":
            self.start = line
            self.num_starts += 1
        elif kind == "event":
            self.events.append(line)
        else:
            self.steps[line["step"]] = line

    def _of_group(self, name: str, default: Any) -> Any:
        for event in ("process_group", "process_group_begin"):  # the second one where the group was never made
            groups = [line["data"] for line in self.events_named(event) if name in line.get("data", {})]
            if groups:
                return groups[-1][name]
        return default
