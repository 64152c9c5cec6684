"""Read what the recorder wrote: one file per process, JSON lines, of which the last may be torn.

A rank may have several files: launchers and helper processes are recorded as well. The file with the most steps is the
rank's own. A line of a step replaces an earlier one of the same step (the recorder writes a provisional one first).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Event, RankRecord, StepRecord
from bisect_train_workers.process_record import ProcessRecord as ProcessRecord
from bisect_train_workers.whole_norms import WholeNorms

_PLAIN = (
    *("loss", "grad_norm", "clip_norm", "param_norm", "param_hash", "rng_hash", "batch_hash"),
    *("whole_grad_norm", "whole_param_norm"),
    *("step_s", "step_cpu_s", "step_cuda_s", "rss_mib", "cuda_mib", "self_s", "data_s", "moved", "samples", "collectives"),
)
_TOLD_ELSEWHERE = ("files_read",)  # see `read_sets`


class RecordReader:
    """Reads the files of a records folder, and only what was added since the last time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, ProcessRecord]] = {}

    def read(self) -> list[ProcessRecord]:
        """Return the records of all processes as far as they are written."""
        for path in sorted(self._folder.glob("rank*-pid*.jsonl")):
            offset, record = self._read.get(path, (0, ProcessRecord()))
            self._read[path] = (_take_lines(path, offset, record), record)
        return [record for _, record in self._read.values()]


def _take_lines(path: Path, offset: int, record: ProcessRecord) -> int:
    """Add the complete lines after `offset`; returns where the first incomplete one begins."""
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read()
    end = content.rfind(b"\n") + 1
    for text in content[:end].splitlines():
        try:
            record.take(json.loads(text))
        except (ValueError, RecursionError):  # torn, or nested beyond reason
            continue
    return offset + end


def pick_ranks(processes: Iterable[ProcessRecord]) -> dict[int, ProcessRecord]:
    """Return the process that is each rank's own, by rank."""
    chosen: dict[int, ProcessRecord] = {}
    for process in processes:
        if process.rank not in chosen or _likeness(process) > _likeness(chosen[process.rank]):
            chosen[process.rank] = process
    return dict(sorted(chosen.items()))


def _likeness(process: ProcessRecord) -> tuple[int, int, bool, float]:
    """Order processes of one rank: most steps, then ranks before their launcher, then torch, then the oldest."""
    return (
        len(process.steps),
        process.world_size,
        process.has_event("torch_imported"),
        -float(process.start.get("t", 0.0)),
    )


def to_rank_records(ranks: dict[int, ProcessRecord], *, num_steps: int | None) -> tuple[RankRecord, ...]:
    """Return the records in the fingerprint's form; steps after the `num_steps`-th are left out."""
    norms = WholeNorms(ranks)
    return tuple(
        RankRecord(
            rank,
            tuple(
                to_step_record({**process.steps[step], **norms.at(step)})
                for step in sorted(process.steps)
                if num_steps is None or step < num_steps
            ),
            tuple(_to_event(line) for line in process.events if line.get("name") not in _TOLD_ELSEWHERE),
        )
        for rank, process in ranks.items()
    )


def to_step_record(line: dict[str, Any]) -> StepRecord:
    """Return a step line in the fingerprint's form; what the line lacks is None."""
    return StepRecord(
        step=line["step"],
        micro=tuple(line.get("micro") or ()),
        lr=tuple(value for value in line.get("lr") or () if value is not None),
        missing_grads=int(line.get("missing_grads") or 0),
        skipped=bool(line.get("skipped")),
        dtypes=_merge_dtypes(line),
        **{name: line.get(name) for name in _PLAIN},
    )


def _merge_dtypes(line: dict[str, Any]) -> tuple[str, ...]:
    kinds: Sequence[tuple[str, Any]] = (
        ("param", line.get("param_dtypes")),
        ("grad", line.get("grad_dtypes")),
        ("autocast", line.get("autocast")),
    )
    merged = []
    for kind, names in kinds:
        parts = names.split(",") if isinstance(names, str) else names or ()
        merged += [f"{kind}:{name}" for name in parts]
    return tuple(merged)


def _to_event(line: dict[str, Any]) -> Event:
    data = line.get("data")
    return Event(str(line.get("name", "")), line.get("step"), data if isinstance(data, dict) else {})


def describe_processes(processes: Sequence[ProcessRecord], ranks: dict[int, ProcessRecord]) -> dict[str, str]:
    """Return what the recorder saw of the interpreter, torch and ranks, for the fingerprint's facts."""
    if not processes:
        return {}
    main = next(iter(ranks.values()))
    facts = {
        "python": main.start.get("python"),
        "executable": main.start.get("executable"),
        "recorder": main.start.get("recorder"),
        "channel": main.start.get("channel"),
        "world_size": main.world_size,
    }
    for line in main.events_named("torch_imported"):
        facts["torch"] = line.get("data", {}).get("version")
        facts["threads"] = line.get("data", {}).get("threads")
    for fact, event in (("stubs", "stub"), ("shims", "shim")):
        names = {str(line.get("data", {}).get("what")) for item in processes for line in item.events_named(event)}
        facts[fact] = ", ".join(sorted(names)) or None
    return {name: str(value) for name, value in facts.items() if value is not None}
