"""Time and memory: slow steps, waits for data, memory that is full or more than the baseline's.

Times of two single runs are compared by their medians and by their fastest steps, since a busy machine moves the first; a
measurement that interleaves runs decides in a bisection (metric `step_s`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from bisect_train.core.fingerprint import StepRecord
from bisect_train.verdict.divergence import MEMORY_FACTOR, SLOWER_FACTOR
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView, number
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say

WARM_UP_STEPS = 1  # the first step compiles and allocates; chosen, not measured
MIN_TIMES = 5  # steps before a median means anything; Source: Megatron-LM's functional tests (5 to 20 on short runs)
FASTEST_FACTOR = 1.3  # of the fastest steps; chosen, not measured
LONE_FACTOR = 10.0  # of median and fastest where only one healthy run is known: on busy machines a pair of runs of the same
# code was 8 times apart by the median (two ranks, load 12 on 2 cores); measured on 41 healthy programs
SPREAD_FACTOR = 1.1  # over the slowest healthy run of another seed; chosen, not measured
WAIT_SHARE = 0.5  # of a step; chosen, not measured
WAIT_S = 0.05  # of a step, so that a toy's wait for its loader is none; chosen, not measured
WAIT_SHARE_MARGIN = 0.2  # above the baseline's share; chosen, not measured
WAIT_FACTOR = 2.0  # times the baseline's wait; chosen, not measured
MIN_WAIT_S = 0.005  # chosen, not measured
FULL_SHARE = 0.95  # of the device; Source: FRAMEWORKS.md section 4
MORE_MIB = 64.0  # and at least so much more: the allocators of a small program move by tens of MiB. Chosen, not measured


def step_times(run: RunView, rank: int) -> list[float]:
    """Return the times of a rank's steps without the recorder's own and without the warm-up, seconds."""
    records = [record for _, record in sorted(run.steps.get(rank, {}).items())][WARM_UP_STEPS:]
    return [max(0.0, record.step_s - (record.self_s or 0.0)) for record in records if record.step_s is not None]


def find_slower(look: Look) -> Iterator[Finding]:
    """Tell of steps that take longer than in every healthy run, by median and by fastest step."""
    if look.base is None or not look.run.ranks or not look.base.ranks:
        return
    rank = look.run.ranks[0]
    mine, theirs = step_times(look.run, rank), step_times(look.base, look.base.ranks[0])
    if min(len(mine), len(theirs)) < MIN_TIMES:
        return
    others = [times for other in look.others if other.ranks and len(times := step_times(other, other.ranks[0])) >= MIN_TIMES]
    factors = (SLOWER_FACTOR, FASTEST_FACTOR) if others else (LONE_FACTOR, LONE_FACTOR)
    limit = max([factors[0] * median(theirs), *(SPREAD_FACTOR * median(times) for times in others)])
    fastest = factors[1] * max([min(theirs), *(min(times) for times in others)])
    if median(mine) > limit > 0.0 and min(mine) > fastest:
        source = f"{factors[0]:g} times the baseline's median, the fastest {factors[1]:g} times; {CHOSEN}"
        evidence = [
            Evidence("median time of a step", f"{say(median(mine))} s", f"at most {say(limit)} s", source, rank),
            Evidence("fastest step", f"{say(min(mine))} s", f"at most {say(fastest)} s", source, rank),
        ]
        summary = f"a step takes {say(median(mine))} s (median of {len(mine)}); in the baseline {say(median(theirs))} s"
        yield find("slower", summary, ranks=(rank,), evidence=evidence, needs_baseline=True)


def find_data_waits(look: Look) -> Iterator[Finding]:
    """Tell of steps that wait for data: for most of their time, or far more than in the baseline."""
    for rank in look.run.ranks:
        mine, theirs = _waits(look.run, rank), _waits(look.base, rank) if look.base is not None else None
        if mine is None or (look.base is not None and theirs is None):
            continue
        share, wait_s = mine
        limit, limit_s, source = WAIT_SHARE, WAIT_S, CHOSEN
        if theirs is not None:
            limit, limit_s = theirs[0] + WAIT_SHARE_MARGIN, max(MIN_WAIT_S, WAIT_FACTOR * theirs[1])
            source = f"the baseline's {theirs[0]:.0%} and {WAIT_SHARE_MARGIN:.0%} more; {CHOSEN}"
        if share > limit and wait_s > limit_s:
            evidence = [
                Evidence("share of the time that waits for data", f"{share:.0%}", f"at most {limit:.0%}", source, rank),
                Evidence("median wait of a step", f"{say(wait_s)} s", f"at most {say(limit_s)} s", source, rank),
            ]
            summary = f"{share:.0%} of the time on rank {rank} waits for data, {say(wait_s)} s a step"
            yield find("data_loading", summary, ranks=(rank,), evidence=evidence, needs_baseline=theirs is not None)
            return


def _waits(run: RunView, rank: int) -> tuple[float, float] | None:
    """Return (share of the time, median seconds a step) that a rank waits for its loader, None where it is not known."""
    records = [record for _, record in sorted(run.steps.get(rank, {}).items())][WARM_UP_STEPS:]
    known = [(record.data_s, record.step_s) for record in records if record.data_s is not None and record.step_s]
    total = sum(step_s for _, step_s in known)
    if len(known) < MIN_TIMES or total <= 0.0:
        return None
    return sum(data_s for data_s, _ in known) / total, median(data_s for data_s, _ in known)


def find_full_memory(look: Look) -> Iterator[Finding]:
    """Tell of a device of which nearly all memory was in use."""
    for rank, data in sorted(look.run.first_data("device").items()):
        total, peak = number(data.get("total_mib")), _peak(look.run, rank, lambda record: record.cuda_mib)
        if total and peak is not None and peak > FULL_SHARE * total:
            evidence = [
                Evidence(
                    "peak of memory in use",
                    f"{peak:.0f} MiB",
                    f"at most {FULL_SHARE:.0%} of {total:.0f} MiB",
                    "FRAMEWORKS.md section 4",
                    rank,
                )
            ]
            summary = f"{peak / total:.0%} of the device's {total:.0f} MiB were in use on rank {rank}"
            yield find("memory_full", summary, ranks=(rank,), evidence=evidence)


def find_more_memory(look: Look) -> Iterator[Finding]:
    """Tell of a peak of memory clearly above the baseline's and that of every healthy run."""
    if look.base is None:
        return
    kinds: tuple[tuple[str, Callable[[StepRecord], float | None]], ...] = (
        ("CUDA memory", lambda record: record.cuda_mib),
        ("resident memory", lambda record: record.rss_mib),
    )
    for what, read in kinds:
        for rank in look.run.ranks:
            mine = _peak(look.run, rank, read)
            known = [peak for view in (look.base, *look.others) if (peak := _peak(view, rank, read)) is not None]
            if mine is not None and known and mine > max(MEMORY_FACTOR * max(known), max(known) + MORE_MIB):
                source = f"{MEMORY_FACTOR:g} times the healthy runs', and {MORE_MIB:.0f} MiB; {CHOSEN}"
                evidence = [Evidence(f"peak of {what}", f"{mine:.0f} MiB", f"{max(known):.0f} MiB", source, rank)]
                summary = f"the peak of {what} on rank {rank} is {mine:.0f} MiB against {max(known):.0f} MiB"
                yield find("more_memory", summary, ranks=(rank,), evidence=evidence, needs_baseline=True)
                return


def _peak(run: RunView, rank: int, read: Callable[[StepRecord], float | None]) -> float | None:
    values = [value for record in run.steps.get(rank, {}).values() if (value := read(record)) is not None]
    return max(values, default=None)
