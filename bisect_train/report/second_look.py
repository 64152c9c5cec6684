"""What a second run with torch's own checks on said: the operation that gave NaN, the collectives that do not match.

The texts are those of torch 2: `python_anomaly_mode.cpp`, `ProcessGroupWrapper.cpp`, and `monitoredBarrier` in
`ProcessGroupGloo.cpp`.
"""

from __future__ import annotations

import re

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import ProbeResult
from bisect_train.report.stacks import list_stacks
from bisect_train.report.triage_parts import SecondLook
from bisect_train.report.words import say_ending
from bisect_train.verdict.triage.failure_text import operation_of
from bisect_train.verdict.triage.finding import SecondRun

_DETECTED = re.compile(r"Error detected in (?P<name>\w+)\.")
_FORWARD = re.compile(r'^(?:\[[^\]]*\]:)?\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>.+)$')
_RUNNING = re.compile(r"\[Rank (?P<rank>\d+)\] Running collective: CollectiveFingerPrint\((?P<print>.*)$")
_PARTS = {
    "op": re.compile(r"OpType=(\w+)"),
    "shape": re.compile(r"TensorShape=\[([^\]]*)\]"),
    "dtype": re.compile(r"TensorDtypes=(\w+)"),
    "number": re.compile(r"SequenceNumber=(\d+)"),
}
_MISMATCH = re.compile(
    r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d+) is running collective: "
    r"CollectiveFingerPrint\((?P<print>.*?), but Rank "
)
_MISSING = re.compile(r"Ranks? (?P<ranks>[\d, ]+) failed to pass monitoredBarrier")


def read_second_look(kind: SecondRun, result: ProbeResult, *, key: str) -> SecondLook:
    """Return what a finished second run said beyond the first."""
    said = _read_anomaly(result) if kind is SecondRun.ANOMALY else _read_detail(result)
    ending = result.fingerprint.ending
    if not said and ending.kind is EndingKind.KILLED:  # torch 2.13 does that to DistributedDataParallel under DETAIL
        said = [f"it was {say_ending(ending)}, before it could say more: torch's own checks may break a program"]
    return SecondLook(kind, tuple(said), key)


def _text_of(result: ProbeResult) -> str:
    """Return the output and the recorded exceptions of a run."""
    raised = [
        str(event.data.get(name, ""))
        for record in result.fingerprint.ranks
        for event in record.events
        if event.name == "exception"
        for name in ("message", "traceback")
    ]
    return "\n".join([result.log_tail, result.fingerprint.ending.message, *raised])


def _read_anomaly(result: ProbeResult) -> list[str]:
    text = _text_of(result)
    returned, detected = operation_of(text), _DETECTED.search(text)
    found = returned or ((detected.group("name"), 0) if detected else None)
    if found is None:
        return []
    name, number = found
    said = [f"{name}, the backward pass of {_operation(name)}, gave the first NaN (its output number {number})"]
    frames = _forward_frames(text[detected.end() :]) if detected else []
    return [*said, *(f"its forward pass was called from {frame}" for frame in frames[-1:])]


def _operation(backward: str) -> str:
    """Return the operation that a backward function belongs to: `sqrt` of `SqrtBackward0`."""
    return re.sub(r"Backward\d*$", "", backward).lower() or backward


def _forward_frames(text: str) -> list[str]:
    """Return the places of a traceback, the innermost last."""
    frames = []
    for line in text.splitlines()[1:]:
        match = _FORWARD.match(line)
        if match:
            name = "/".join(match.group("file").split("/")[-2:])
            frames.append(f"{match.group('where')} ({name}:{match.group('line')})")
        elif "(Triggered internally" in line or line.startswith("Traceback"):
            break
    return frames


def _read_detail(result: ProbeResult) -> list[str]:
    text = _text_of(result)
    said = []
    last: dict[int, str] = {}
    for line in text.splitlines():
        if match := _RUNNING.search(line):
            last[int(match.group("rank"))] = _say_collective(match.group("print"))
    if len(set(last.values())) > 1:
        said.append("the ranks' last collective calls differ: " + "; ".join(f"rank {k}: {last[k]}" for k in sorted(last)))
    elif own := {int(match.group("rank")): _say_collective(match.group("print")) for match in _MISMATCH.finditer(text)}:
        # what such a message says of the other rank may be a call of the check itself
        said.append("the ranks call different collectives: " + "; ".join(f"rank {k} calls {own[k]}" for k in sorted(own)))
    for ranks in dict.fromkeys(match.group("ranks").strip() for match in _MISSING.finditer(text)):
        said.append(f"rank {ranks} never came to a collective call that the others wait in")
    places = [f"rank {part.rank} waits at {part.waits_at}" for part in list_stacks(result) if part.rank is not None]
    return [*said, *(places if said else [])]


def _say_collective(text: str) -> str:
    found = {name: match.group(1) for name, pattern in _PARTS.items() if (match := pattern.search(text))}
    shape = f" of [{found['shape']}]" if "shape" in found else ""
    dtype = f" {found['dtype'].lower()}" if "dtype" in found else ""
    return f"{found.get('op', 'unknown').lower()}{shape}{dtype} (call {found.get('number', '?')})"
