"""Which samples were trained on: the same on several ranks, coverage, and batches that are not the baseline's.

Ranks count as data parallel only where they hold the same parameters (`RunView.replica_groups`); tensor and pipeline parallel
ranks see the same data rightly. Sharded ranks cannot be told from those by themselves, so there it takes a baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say_ranks

HASH_DIGITS = 8  # of one sample
SAME_STEPS = 10  # first steps at which batches must be equal; chosen, not measured
MIN_SAME_STEPS = 2
NEW_EPOCH_SHARE = 0.95  # of samples that were seen before mark a new epoch; chosen, not measured
MAX_LOG_CHANCE = math.log(1e-6)  # of overlaps that draws with replacement would give; chosen: one false alarm in a million runs
COVERAGE_MARGIN = 0.02  # below the baseline's coverage; chosen, not measured
MIN_MISSING_SHARE = 0.02  # of the baseline's samples; chosen, not measured
_CHANCE_SOURCE = "chance of 1 in a million if samples were drawn with replacement"
_SPLITTING = "all_to_all"  # begins the names of calls that split a sequence: data may be shared


def split_samples(text: str | None) -> list[str]:
    """Return the samples' hashes of one step, in order."""
    text = text or ""
    return [text[idx : idx + HASH_DIGITS] for idx in range(0, len(text) - HASH_DIGITS + 1, HASH_DIGITS)]


def find_same_data(look: Look) -> Iterator[Finding]:
    """Tell of ranks with equal batches at all of the first steps: replicas, or ranks whose batches differ in the baseline."""
    same = _same_batches(look.run)
    if not same:
        return
    if look.peer is not None:
        same = [group for group in same if not _are_together(group, _same_batches(look.peer))]
    elif _splits_samples(look.run):
        return
    else:
        shared = [tuple(sorted(set(group) & set(other))) for group in same for other in look.run.replica_groups]
        same = [group for group in shared if len(group) > 1]
    for group in same:
        yield _same_data(look, group)


def _splits_samples(run: RunView) -> bool:
    """Return whether ranks may exchange parts of a sample (sequence parallel, rings, stages): the same data are right then."""
    calls = [event.data.get("op") for events in run.events("collective").values() for event in events]
    return run.has_point_to_point or any(str(call).startswith(_SPLITTING) for call in calls)


def _same_batches(run: RunView) -> list[tuple[int, ...]]:
    """Return groups of ranks whose batches are equal at every one of the first steps."""
    steps = run.shared_steps[:SAME_STEPS]
    if len(steps) < MIN_SAME_STEPS or len(run.steps) < 2:
        return []
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, records in run.steps.items():
        hashes = [records[step].batch_hash for step in steps]
        known = tuple(value for value in hashes if value)
        if len(known) == len(steps):
            groups.setdefault(known, []).append(rank)
    return [tuple(sorted(group)) for group in groups.values() if len(group) > 1]


def _are_together(group: Sequence[int], groups: Sequence[Sequence[int]]) -> bool:
    return any(set(group) <= set(other) for other in groups)


def _same_data(look: Look, group: Sequence[int]) -> Finding:
    steps = look.run.shared_steps[:SAME_STEPS]
    first = look.run.at(steps[0])
    source = "the baseline" if look.peer is not None else "ranks with the same parameters share the work"
    evidence = [
        Evidence(f"batch hash at step {steps[0]}", str(first[rank].batch_hash), "another on each rank", source, rank)
        for rank in group
    ]
    losses = {repr(first[rank].loss) for rank in group}
    if len(losses) == 1 and first[group[0]].loss is not None:
        evidence.append(Evidence(f"loss at step {steps[0]}", f"{losses.pop()}, equal to the last digit"))
    summary = f"{say_ranks(group)} had the same batches at all of the first {len(steps)} steps"
    return find("same_data", summary, ranks=group, step=steps[0], evidence=evidence, needs_baseline=look.peer is not None)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Samples of a run over some steps and ranks.

    Attributes:
        total: samples, with repeats.
        distinct: different ones.
        across: pairs of equal samples on different ranks, each sample and pair of ranks once.
        within: repeats of a sample on its own rank.
        ranks: on which samples came that others had, too.
    """

    total: int
    distinct: frozenset[str]
    across: int
    within: int
    ranks: tuple[int, ...]

    @property
    def share(self) -> float:
        """Distinct samples over samples, 0 to 1; 1 without any."""
        return len(self.distinct) / self.total if self.total else 1.0


def cover(run: RunView, ranks: Sequence[int], steps: Sequence[int]) -> Coverage:
    """Return the coverage of some steps of some ranks."""
    counts = {rank: Counter(_samples(run, rank, steps)) for rank in ranks}
    total = sum(sum(count.values()) for count in counts.values())
    where: dict[str, list[int]] = {}
    for rank, count in counts.items():
        for sample in count:
            where.setdefault(sample, []).append(rank)
    shared = [found for found in where.values() if len(found) > 1]
    return Coverage(
        total=total,
        distinct=frozenset(where),
        across=sum(len(found) * (len(found) - 1) // 2 for found in shared),
        within=sum(sum(count.values()) - len(count) for count in counts.values()),
        ranks=tuple(sorted({rank for found in shared for rank in found})),
    )


def _samples(run: RunView, rank: int, steps: Sequence[int]) -> list[str]:
    records = run.steps.get(rank, {})
    return [sample for step in steps if step in records for sample in split_samples(records[step].samples)]


def _first_epoch(run: RunView, ranks: Sequence[int]) -> list[int]:
    """Return the shared steps before nearly all samples of the rest were seen already: a new epoch begins there."""
    steps = run.shared_steps
    per_step = [[sample for rank in ranks for sample in _samples(run, rank, [step])] for step in steps]
    seen: set[str] = set()
    num_old = []
    for samples in per_step:
        num_old.append(sum(sample in seen for sample in samples))
        seen.update(samples)
    rest_old, rest = sum(num_old), sum(map(len, per_step))
    for idx in range(1, len(steps)):
        rest_old, rest = rest_old - num_old[idx - 1], rest - len(per_step[idx - 1])
        if num_old[idx] and rest_old >= NEW_EPOCH_SHARE * rest:
            return steps[:idx]
    return steps


def find_overlap(look: Look) -> Iterator[Finding]:
    """Tell of samples on several ranks: more than the baseline has, or none within a rank though many across."""
    run, base = look.run, look.peer
    if len(run.steps) < 2 or next(find_same_data(look), None) is not None:
        return
    if base is not None:
        steps = run.steps_with(base)
        mine, theirs = cover(run, run.ranks, steps), cover(base, base.ranks, steps)
        if _batch_sizes(run, steps) != _batch_sizes(base, steps):
            return
        if mine.total and theirs.total and mine.share < theirs.share - COVERAGE_MARGIN and mine.across > theirs.across:
            yield _overlap(mine, f"{theirs.share:.2f}", "the baseline", needs_baseline=True)
        return
    if _splits_samples(run):
        return
    for group in run.replica_groups:
        mine = cover(run, group, _first_epoch(run, group))
        # of pairs drawn alike, a share of (W - 1) / W lies across ranks; that all of them do has this share to their number
        log_chance = mine.across * math.log((len(group) - 1) / len(group))
        if mine.within == 0 and log_chance < MAX_LOG_CHANCE and mine.share < 1.0 - COVERAGE_MARGIN:
            yield _overlap(mine, "1.00, as within each rank", _CHANCE_SOURCE, needs_baseline=False)


def _batch_sizes(run: RunView, steps: Sequence[int]) -> dict[int, int]:
    """Return the samples of a step by rank: its largest number, since the last batch of an epoch may be smaller."""
    return {rank: max((len(_samples(run, rank, [step])) for step in steps), default=0) for rank in run.ranks}


def _overlap(mine: Coverage, expected: str, source: str, *, needs_baseline: bool) -> Finding:
    evidence = [
        Evidence("coverage: distinct samples / samples", f"{mine.share:.2f}", expected, source),
        Evidence("samples that another rank had, too", f"{mine.across} of {mine.total}"),
        Evidence("samples that came twice on one rank", str(mine.within)),
    ]
    summary = f"{mine.across} of {mine.total} samples came on more than one rank: coverage {mine.share:.2f}"
    return find("overlapping_samples", summary, ranks=mine.ranks, evidence=evidence, needs_baseline=needs_baseline)


def find_missing_samples(look: Look) -> Iterator[Finding]:
    """Tell of samples of the baseline that no rank has, where the run has hardly any that the baseline lacks.

    Smaller batches come less far, and one rank alone leaves none to others: both are other data, and no more.
    """
    run, base = look.run, look.peer
    if base is None or len(run.steps) < 2:
        return
    steps = run.steps_with(base)
    if _batch_sizes(run, steps) != _batch_sizes(base, steps):
        return
    mine, theirs = cover(run, run.ranks, steps), cover(base, base.ranks, steps)
    missing, new = theirs.distinct - mine.distinct, mine.distinct - theirs.distinct
    if mine.total and len(missing) > MIN_MISSING_SHARE * len(theirs.distinct) and 10 * len(new) <= len(missing):
        share = len(missing) / len(theirs.distinct)
        evidence = [
            Evidence("distinct samples", str(len(mine.distinct)), str(len(theirs.distinct)), "the baseline"),
            Evidence("share of samples never seen", f"{share:.2f}", f"at most {MIN_MISSING_SHARE:.2f}", CHOSEN),
        ]
        summary = f"{len(missing)} of {len(theirs.distinct)} samples of the baseline never come in {len(steps)} steps"
        yield find("missing_samples", summary, evidence=evidence, needs_baseline=True)


def find_changed_data(look: Look) -> Iterator[Finding]:
    """Tell of the first step whose batch is not the baseline's, with raw values of both."""
    run, base = look.run, look.peer
    if base is None:
        return
    for step in run.steps_with(base):
        mine, theirs = run.at(step), base.at(step)
        ranks = [rank for rank in mine if rank in theirs and _differ(mine[rank].batch_hash, theirs[rank].batch_hash)]
        if ranks:
            yield _changed(look, step, ranks)
            return


def _differ(one: str | None, other: str | None) -> bool:
    return bool(one) and bool(other) and one != other


def _changed(look: Look, step: int, ranks: Sequence[int]) -> Finding:
    assert look.peer is not None
    rank = ranks[0]
    evidence = [
        Evidence(
            f"batch hash at step {step}",
            str(look.run.at(step)[rank].batch_hash),
            str(look.peer.at(step)[rank].batch_hash),
            "the baseline",
            rank,
        ),
        *_values(look, step, rank),
    ]
    steps = look.run.steps_with(look.peer)
    sets = [cover(view, view.ranks, steps) for view in (look.run, look.peer)]
    is_reordered = bool(sets[0].distinct) and sets[0].distinct == sets[1].distinct and sets[0].total == sets[1].total
    more = "; over all steps the samples are the same, in another order" if is_reordered else ""
    sizes = [_batch_sizes(view, steps).get(rank, 0) for view in (look.run, look.peer)]
    if all(sizes) and sizes[0] != sizes[1]:
        more = f"; a step of rank {rank} has {sizes[0]} samples against {sizes[1]}"
    summary = f"the batches differ from the baseline's from step {step} on{more}"
    return find("data_changed", summary, ranks=ranks, step=step, evidence=evidence, needs_baseline=True)


def _values(look: Look, step: int, rank: int) -> list[Evidence]:
    """Return the first recorded values of both batches, of this step where they were kept, else of the first batch."""
    pair = [_values_at(view, step, rank) for view in (look.run, look.peer) if view is not None]
    if any(values is None for values in pair):
        return []
    return [Evidence("first values of the batch", _short(pair[0]), _short(pair[1]), "the baseline", rank)]


def _values_at(view: RunView, step: int, rank: int) -> object:
    for event in view.events("batch").get(rank, ()):
        if event.data.get("step", event.step) == step and event.data.get("values"):
            return event.data["values"]
    first = view.first_data("first_batch").get(rank, {}).get("values")
    return first if step == min(view.steps.get(rank, {}), default=None) and first else None


def _short(values: object) -> str:
    text = str(values)
    return text if len(text) <= 300 else f"{text[:297]}..."
