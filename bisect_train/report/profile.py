"""What torch's profiler says of two sides: the operations that take longer, and the shares of communication, data and copies.

Times are each operation's own (without what it calls), of rank 0, per step. What is left of a step's wall time is outside of
torch's operations: Python, and waiting. The profiler slows a step, so its times are for comparing, never evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.core.fingerprint import Fingerprint

PROFILE_EVENT = "profile"
NUM_OPERATIONS = 5
MIN_GROWTH = 0.01  # of the wall time of a healthy step; chosen, not measured
MIN_GROWTH_BYTES = 1024
COMMUNICATION = re.compile(r"^(c10d::|_c10d_functional::|gloo:|nccl:|nccl|ncclDevKernel|mpi:|ucc:|record_param_comms)")
COPIES = re.compile(r"^(aten::(copy_|_to_copy|_local_scalar_dense|_pin_memory|pin_memory)$|Memcpy|Memset)")
DATA = re.compile(r"^enumerate\(DataLoader\)")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation's own cost in a step: seconds on the CPU and on the device, and bytes that it allocates and keeps."""

    cpu_s: float = 0.0
    device_s: float = 0.0
    kept_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """A profiled run, per step.

    Attributes:
        num_steps: that were profiled.
        step_s: wall time of a step, seconds.
        data_s: of it, waiting for the data loader; None where that was not recorded.
        operations: by name.
    """

    num_steps: int
    step_s: float
    data_s: float | None
    operations: Mapping[str, Operation]

    @property
    def has_device(self) -> bool:
        """Whether any operation ran on a device."""
        return any(item.device_s > 0.0 for item in self.operations.values())

    def share(self, pattern: re.Pattern[str]) -> float:
        """Return the share (0 to 1) of a step that operations of these names take, on the slower of CPU and device."""
        chosen = [item for name, item in self.operations.items() if pattern.match(name)]
        return max(sum(item.cpu_s for item in chosen), sum(item.device_s for item in chosen)) / self.step_s

    @property
    def share_outside(self) -> float:
        """Share (0 to 1) of a step outside torch's operations, as seen from the CPU."""
        inside_s = sum(item.cpu_s for name, item in self.operations.items() if not COMMUNICATION.match(name))
        return max(0.0, 1.0 - inside_s / self.step_s)


def read_profile(fingerprint: Fingerprint) -> Profile | None:
    """Return the profile of rank 0, None where there is none."""
    record = fingerprint.ranks[0] if fingerprint.ranks else None
    events = [event for event in record.events if event.name == PROFILE_EVENT] if record else []
    if record is None or not events:
        return None
    data: Mapping[str, Any] = events[-1].data
    num_steps, wall_s = int(data["steps"]), float(data["wall_s"])
    if num_steps < 1 or wall_s <= 0.0:
        return None
    last = (events[-1].step or 0) + 1
    waits = [step.data_s for step in record.steps if last - num_steps <= step.step < last and step.data_s is not None]
    operations = {
        str(name): Operation(cpu_s / num_steps, device_s / num_steps, kept / num_steps)
        for name, cpu_s, device_s, _, kept in data["operations"]
    }
    others = data.get("others", {})
    operations["other operations"] = Operation(others.get("cpu_s", 0.0) / num_steps, others.get("device_s", 0.0) / num_steps)
    return Profile(num_steps, wall_s / num_steps, sum(waits) / len(waits) if waits else None, operations)


def compare_profiles(healthy: Profile, sick: Profile, *, is_memory: bool = False) -> tuple[str, ...]:
    """Return in sentences what takes longer on the sick side, the most first; with `is_memory`, what keeps more memory."""
    said = [f"a profiled step takes {_ms(healthy.step_s)} before the change and {_ms(sick.step_s)} with it"]
    if is_memory and (kept := _grown(healthy, sick, lambda item: item.kept_bytes, MIN_GROWTH_BYTES)):
        rows = [f"{name} {before / 1024:.3g} -> {after / 1024:.3g} KiB" for name, before, after in kept]
        said.append(f"operations that allocate more than they free, a step: {'; '.join(rows)}")
    kinds: list[tuple[str, Callable[[Operation], float]]] = [("CPU", lambda item: item.cpu_s)]
    if healthy.has_device or sick.has_device:
        kinds.insert(0, ("device", lambda item: item.device_s))
    for kind, read in kinds:
        grown = _grown(healthy, sick, read, MIN_GROWTH * healthy.step_s)
        rows = [f"{name} {_ms(before)} -> {_ms(after)}" for name, before, after in grown]
        if rows:
            said.append(f"operations that take more {kind} time of their own, a step: {'; '.join(rows)}")
    return (*said, _say_shares(healthy, sick))


def _grown(healthy: Profile, sick: Profile, read: Callable[[Operation], float], least: float) -> list[tuple[str, float, float]]:
    """Return (name, before, after) of the operations that grew by more than `least`, the most first."""
    names = healthy.operations.keys() | sick.operations.keys()
    none = Operation()
    rows = [(name, read(healthy.operations.get(name, none)), read(sick.operations.get(name, none))) for name in names]
    grown = sorted((row for row in rows if row[2] > 0.0 and row[2] - row[1] > least), key=lambda row: (row[1] - row[2], row[0]))
    return grown[:NUM_OPERATIONS]


def _say_shares(healthy: Profile, sick: Profile) -> str:
    shares = [("communication", healthy.share(COMMUNICATION), sick.share(COMMUNICATION))]
    waits = [profile.share(DATA) if profile.data_s is None else profile.data_s / profile.step_s for profile in (healthy, sick)]
    shares.append(("waiting for data", waits[0], waits[1]))
    shares.append(("copies", healthy.share(COPIES), sick.share(COPIES)))
    shares.append(("outside torch's operations", healthy.share_outside, sick.share_outside))
    return "shares of a step: " + "; ".join(f"{name} {before:.0%} -> {after:.0%}" for name, before, after in shares)


def _ms(seconds: float) -> str:
    return f"{1000.0 * seconds:.3g} ms"


def say_profiles(results: Sequence[Fingerprint], *, is_memory: bool = False) -> tuple[str, ...]:
    """Return what the profiles of (healthy, sick) say, () where one of them has none."""
    profiles = [read_profile(fingerprint) for fingerprint in results]
    if len(profiles) != 2 or profiles[0] is None or profiles[1] is None:
        return ()
    return compare_profiles(profiles[0], profiles[1], is_memory=is_memory)
