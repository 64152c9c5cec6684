"""One run as the rules look at it: steps by rank, events by name, and what ranks have to do with each other.

Ranks are named by their rank number, not by their place in the record. Nothing here raises on a record with holes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bisect_train.core.fingerprint import Event, Fingerprint, StepRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.divergence import norm_before_clipping

LARGEST = 1e100  # far above what single precision holds, and its square is a double still
REPLICA_SQUARE_SHARE = 0.75
"""Share of the initial squared parameter norm that each rank must hold to count as a replica: shards of W >= 2 ranks add up
to 1, so they cannot all hold more than half (ZeRO shards start from equal full parameters). Chosen between 1/2 and 1."""


@dataclass(frozen=True)
class RunView:
    """A run by rank and step; what many rules ask for is worked out once (which slots do not allow).

    Attributes:
        result: the probe's result.
        steps: by rank, then by 0-based step.
    """

    result: ProbeResult
    steps: Mapping[int, Mapping[int, StepRecord]]

    @staticmethod
    def of(result: ProbeResult) -> RunView:
        """Return the view of a probe's result."""
        ranks = result.fingerprint.ranks
        return RunView(result, {rank.rank: {step.step: step for step in rank.steps} for rank in ranks})

    @staticmethod
    def of_fingerprint(fingerprint: Fingerprint) -> RunView:
        """Return the view of a fingerprint without stacks and log."""
        return RunView.of(ProbeResult("", fingerprint))

    @property
    def fingerprint(self) -> Fingerprint:
        """What was recorded."""
        return self.result.fingerprint

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that were recorded, in order."""
        return tuple(sorted(self.steps))

    @property
    def has_stepped(self) -> bool:
        """Whether any rank made a step."""
        return any(self.steps.values())

    @cached_property
    def shared_steps(self) -> list[int]:
        """Steps that every rank made, in order."""
        if not self.steps:
            return []
        return sorted(set.intersection(*(set(steps) for steps in self.steps.values())))

    def steps_with(self, other: RunView) -> list[int]:
        """Return the steps that every rank of both runs made, in order."""
        theirs = set(other.shared_steps)
        return [step for step in self.shared_steps if step in theirs]

    def at(self, step: int) -> dict[int, StepRecord]:
        """Return the ranks' records of one step."""
        return {rank: steps[step] for rank, steps in sorted(self.steps.items()) if step in steps}

    def rows(self) -> Iterator[tuple[int, dict[int, StepRecord]]]:
        """Yield (step, records by rank) for each step that any rank made, in order."""
        for step in sorted(set().union(*(steps.keys() for steps in self.steps.values()))):
            yield step, self.at(step)

    def events(self, name: str) -> dict[int, list[Event]]:
        """Return the events of this name by rank; ranks without one are left out."""
        found: dict[int, list[Event]] = {}
        for rank in self.fingerprint.ranks:
            mine = [event for event in rank.events if event.name == name and isinstance(event.data, dict)]
            if mine:
                found.setdefault(rank.rank, []).extend(mine)
        return found

    def first_data(self, name: str) -> dict[int, dict[str, Any]]:
        """Return the data of each rank's first event of this name."""
        return {rank: events[0].data for rank, events in self.events(name).items()}

    @property
    def has_point_to_point(self) -> bool:
        """Whether any rank sends to another one, or receives from it: pipelines and rings do."""
        return bool(self.events("point_to_point"))

    @property
    def facts(self) -> dict[str, str]:
        """Versions and settings seen from inside."""
        return dict(self.fingerprint.facts)

    @property
    def world_size(self) -> int:
        """Number of ranks as the program sees it; as many as recorded where it does not say."""
        said = [_whole(data.get("world_size")) for events in self.events("process_group").values() for data in _data(events)]
        return max([len(self.steps), _whole(self.facts.get("world_size")), *said])

    @cached_property
    def losses(self) -> list[tuple[int, float]]:
        """(step, mean loss of the ranks that report one), NaN where any of them is not finite."""
        found = []
        for step, records in self.rows():
            known = [value for record in records.values() if (value := loss_of(record)) is not None]
            if known:
                found.append((step, sum(known) / len(known) if all(map(math.isfinite, known)) else math.nan))
        return found

    @cached_property
    def pre_clip_norms(self) -> dict[int, float]:
        """The gradient norm before clipping of each step that was not skipped, over all ranks.

        Ranks that agree to all digits have the whole norm (averaged, or summed by the clipping itself). Shards are squares
        to add; else ranks hold gradients of their own, and their root mean square is taken.
        """
        is_sharded, found = self.is_sharded, {}
        for step, records in self.rows():
            values = [
                value
                for record in records.values()
                if not record.skipped and (value := norm_before_clipping(record)) is not None and 0.0 <= value < LARGEST
            ]
            if values and len(values) == len(records):
                found[step] = _combine(values, is_sharded=is_sharded)
        return found

    @cached_property
    def sampled_steps(self) -> list[int]:
        """The steps at which every rank has a parameter hash."""
        return [step for step in self.shared_steps if all(record.param_hash for record in self.at(step).values())]

    def param_hashes(self, step: int) -> dict[int, str]:
        """Return the parameter hashes of one step, by rank."""
        return {rank: record.param_hash for rank, record in self.at(step).items() if record.param_hash}

    def initial_hashes(self) -> dict[int, str]:
        """Return the hash of the parameters before the first step, by rank."""
        first = self.first_data("initial_params")
        return {rank: str(data["param_hash"]) for rank, data in first.items() if data.get("param_hash")}

    @property
    def is_sharded(self) -> bool:
        """Whether the ranks hold different parameters and none is a replica of another."""
        sampled = self.sampled_steps
        if len(self.steps) < 2 or not sampled or self.replica_groups:
            return False
        return len(set(self.param_hashes(sampled[0]).values())) == len(self.steps)

    @cached_property
    def replica_groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of at least two ranks that hold, or held at the start, the same parameters (data parallel).

        Equal hashes after a step make replicas. Equal initial parameters do so only where the optimizer of each rank holds
        nearly all of them: ranks that keep a shard of an optimizer's parameters start equal, too.
        """
        sampled = self.sampled_steps
        after = self.param_hashes(sampled[0]) if sampled else {}
        keys: dict[str, set[int]] = {}
        for rank, value in after.items():
            keys.setdefault(f"after:{value}", set()).add(rank)
        for rank, value in self.initial_hashes().items():
            if sampled and self._holds_all(rank, sampled[0]):
                keys.setdefault(f"before:{value}", set()).add(rank)
        return _merge([group for group in keys.values() if len(group) > 1])

    def _holds_all(self, rank: int, step: int) -> bool:
        before = number(self.first_data("initial_params").get(rank, {}).get("param_norm"))
        record = self.steps.get(rank, {}).get(step)
        after = record.param_norm if record else None
        if before is None or after is None or not math.isfinite(before) or not math.isfinite(after):
            return False
        return after * after >= REPLICA_SQUARE_SHARE * before * before > 0.0


def _data(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [event.data for event in events]


def _whole(value: object) -> int:
    """Return a value as a whole number, 0 where it is none."""
    try:
        return int(str(value))
    except ValueError:
        return 0


def _merge(groups: Sequence[set[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the groups with those that share a rank made one."""
    merged: list[set[int]] = []
    for group in groups:
        apart = [other for other in merged if not other & group]
        merged = [*apart, group.union(*(other for other in merged if other & group))]
    return tuple(sorted(tuple(sorted(group)) for group in merged))


def _combine(values: Sequence[float], *, is_sharded: bool) -> float:
    if len(set(values)) == 1:
        return values[0]
    total = sum(value * value for value in values)
    return math.sqrt(total if is_sharded else total / len(values))


def is_usable(value: float) -> bool:
    """Return whether a value can be averaged and squared: what is larger was no number of a training."""
    return math.isfinite(value) and abs(value) < LARGEST


def number(value: object) -> float | None:
    """Return a recorded value as a finite float, None where it is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    return float(value) if is_number else None  # type: ignore[arg-type]


def names(value: object) -> list[str]:
    """Return a recorded list of names, [] where it is none."""
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def loss_of(record: StepRecord) -> float | None:
    """Return the loss of a step, that is NaN where one of its micro-batches is not finite."""
    if any(not math.isfinite(value) for value in record.micro):
        return math.nan
    return record.loss


def rates(record: StepRecord) -> tuple[float, ...]:
    """Return the finite learning rates of a step."""
    return tuple(value for value in record.lr if math.isfinite(value))
