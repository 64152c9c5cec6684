"""Norms of a whole model whose pieces lie on several ranks, from what each rank recorded of its own. Pure.

A square counts once: of a DTensor's piece the recorder says itself which share of the whole this rank has. Of plain tensors it
cannot know whether other ranks hold the same (DDP), a part (ZeRO 1 and 2, pipeline stages) or a shard (FSDP's first version):
ranks whose parameters are the same, bit for bit, are holders of the same piece.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from bisect_train_workers.process_record import ProcessRecord

Holders = Mapping[int, int]


class WholeNorms:
    """The whole norms of a run's steps."""

    def __init__(self, ranks: Mapping[int, ProcessRecord]) -> None:
        """Take the ranks' records, as far as they are there."""
        self._ranks = ranks
        self._holders = find_holders(ranks)

    def at(self, step: int) -> dict[str, float]:
        """Return `combine` of a step; {} where a rank has no line of it."""
        lines = {rank: process.steps[step] for rank, process in self._ranks.items() if step in process.steps}
        return combine(lines, self._holders) if len(lines) == len(self._ranks) else {}


def find_holders(ranks: Mapping[int, ProcessRecord]) -> Holders:
    """Return for each rank how many ranks hold the plain tensors that it steps, itself included; {} where that is not known.

    Replicas that have parted, or never were equal, are told from pieces: each steps all of a model that began equal.
    """
    if len(ranks) < 2 or len(ranks) != next(iter(ranks.values())).world_size:
        return {}
    if not all(process.has_event("process_group") for process in ranks.values()):
        return {}
    keys = {rank: _identity(process) for rank, process in ranks.items()}
    if None in keys.values():
        return {}
    counts = Counter(keys.values())
    return {rank: counts[key] for rank, key in keys.items()}


def _identity(process: ProcessRecord) -> Hashable | None:
    """Return what is equal for ranks that hold the same plain tensors; None where nothing was recorded of them."""
    line = next((process.steps[step] for step in sorted(process.steps) if "num_params" in process.steps[step]), None)
    if line is None:
        return None
    began: Mapping[str, Any] = next((event.get("data", {}) for event in process.events_named("initial_params")), {})
    is_all = "param_shares" not in line and began.get("num_trained") == line["num_params"]
    if is_all:
        return ("began", str(began.get("param_hash")))
    return ("stepped", str(line.get("plain_hash", line.get("param_hash"))))


def combine(lines: Mapping[int, Mapping[str, Any]], holders: Holders) -> dict[str, float]:
    """Return `whole_grad_norm`, `whole_param_norm` and `clip_norm`, as far as a step's norms are made of pieces.

    Args:
        lines: the step's line by rank.
        holders: see `find_holders`.
    """
    if len(lines) < 2:
        return {}
    found: dict[str, float] = {}
    is_replicated = len(holders) == len(lines) and set(holders.values()) == {len(lines)}
    for name, key in (("whole_grad_norm", "grad"), ("whole_param_norm", "param")):
        squares = [_share(line, key, holders.get(rank)) for rank, line in lines.items()]
        has_pieces = any(f"{key}_shares" in line for line in lines.values())
        if (has_pieces or not is_replicated) and all(square is not None for square in squares):
            found[name] = _root(math.fsum(_numbers(squares)))
    shares = [line.get("clip_share") for line in lines.values()]
    if all(share is not None for share in shares):
        found["clip_norm"] = _root(math.fsum(_numbers(shares)))
    return found


def _share(line: Mapping[str, Any], key: str, num_holders: int | None) -> float | None:
    """Return this rank's share of the whole square; None where it is not known."""
    plain, share = line.get(f"{key}_shares") or (_plain_square(line, key), 0.0)
    if plain is None:
        return float(share) if f"{key}_shares" in line else None
    return None if num_holders is None else float(plain) / num_holders + float(share)


def _plain_square(line: Mapping[str, Any], key: str) -> float | None:
    if key == "grad":
        return line.get("grad_sq")
    norm = line.get("param_norm")
    return None if norm is None else float(norm) * float(norm)  # which may be infinite; `**` would raise


def _numbers(values: list[Any]) -> list[float]:
    """Return the values as numbers that `fsum` can add: one that is not finite makes the sum NaN."""
    numbers = [float(value) for value in values]
    return numbers if all(map(math.isfinite, numbers)) else [math.nan]


def _root(square: float) -> float:
    return math.sqrt(square) if square >= 0.0 else math.nan
