"""Learning rates that stall, jump, or are not those of the baseline; per parameter group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say

SAME_RATE_SHARE = 1e-6  # relative; two ways to compute one schedule agree to this. Chosen, not measured
JUMP_FACTOR = 10.0  # over the largest rate so far: warm restarts come back to it, drops are schedules. Chosen, not measured
MIN_JUMP_STEPS = 5  # with a rate above 0 before a jump: exponential warm-ups grow fast at their start. Chosen, not measured
ZERO_STEPS = 5  # in a row; a rate of 0 at step 0 is a real warm-up (nanoGPT), at the end a real decay. Chosen, not measured
FIRST_STEPS = 10  # within which a stall at 0 begins; chosen, not measured
MIN_SERIES = 3  # steps of a series that may be called constant; chosen, not measured

Rates = dict[int, tuple[float, ...]]


def find_rate_faults(look: Look) -> Iterator[Finding]:
    """Tell of the nearest fault of the learning rate: stalled, else a jump, else other than the baseline's."""
    mine = rates_of(look.run)
    theirs = rates_of(look.base) if look.base is not None else {}
    if look.base is None:
        found = _zero(mine) or _jump(mine)
    else:
        found = _stall(mine, theirs) or _new_jump(mine, theirs) or _difference(mine, theirs)
    if found is not None:
        yield found


def rates_of(run: RunView) -> Rates:
    """Return the learning rates of the lowest rank that recorded them, by step."""
    for rank in run.ranks:
        found = {step: record.lr for step, record in sorted(run.steps[rank].items()) if record.lr}
        if found:
            return found
    return {}


def _zero(mine: Rates) -> Finding | None:
    run_length, started = 0, 0
    for step, rates in sorted(mine.items()):
        if any(rate != 0.0 for rate in rates):
            run_length = 0
            continue
        started = step if run_length == 0 else started
        run_length += 1
        if run_length >= ZERO_STEPS and started < FIRST_STEPS:
            evidence = [Evidence("learning rates", "0 in all groups", f"above 0 within {ZERO_STEPS} steps", CHOSEN)]
            return find(
                "lr_stalls", f"the learning rate is 0 in all groups from step {started} on", step=started, evidence=evidence
            )
    return None


def _jump(mine: Rates) -> Finding | None:
    """Return the first growth by 10 over everything before, in any group."""
    largest: dict[int, float] = {}
    num_steps: dict[int, int] = {}
    for step, rates in sorted(mine.items()):
        for idx, rate in enumerate(rates):
            before = largest.get(idx, 0.0)
            if num_steps.get(idx, 0) >= MIN_JUMP_STEPS and math.isfinite(rate) and rate > JUMP_FACTOR * before > 0.0:
                limit = f"at most {JUMP_FACTOR:g} x {say(before)}"
                evidence = [Evidence(f"learning rate of group {idx} at step {step}", say(rate), limit, CHOSEN)]
                summary = f"the learning rate of group {idx} jumps from at most {say(before)} to {say(rate)} at step {step}"
                return find("lr_jumps", summary, step=step, evidence=evidence)
            if math.isfinite(rate) and rate > 0.0:
                largest[idx] = max(before, rate)
                num_steps[idx] = num_steps.get(idx, 0) + 1
    return None


def _new_jump(mine: Rates, theirs: Rates) -> Finding | None:
    """Return a jump that the baseline does not have at the same step."""
    found, known = _jump(mine), _jump(theirs)
    if found is None or found.step is None or (known is not None and known.step == found.step):
        return None
    other = Evidence(
        f"learning rates at step {found.step}", _list(mine[found.step]), _list(theirs.get(found.step, ())), "the baseline"
    )
    return replace(found, evidence=(*found.evidence, other), needs_baseline=True)


def _stall(mine: Rates, theirs: Rates) -> Finding | None:
    """Return a finding where a group's rate never moves, though it does in the baseline over the same steps."""
    shared = sorted(mine.keys() & theirs.keys())
    if len(shared) < MIN_SERIES:
        return None
    num_groups = min(min(len(mine[step]), len(theirs[step])) for step in shared)
    for idx in range(num_groups):
        ours, others = ([rates[step][idx] for step in shared] for rates in (mine, theirs))
        if len(set(map(repr, ours))) == 1 and _spread(others) > SAME_RATE_SHARE:
            shown = f"{say(min(others))} to {say(max(others))}"
            evidence = [
                Evidence(f"learning rate of group {idx}", f"{say(ours[0])} at all {len(ours)} steps", shown, "the baseline")
            ]
            summary = f"the learning rate of group {idx} stays at {say(ours[0])}; in the baseline it goes from {shown}"
            return find("lr_stalls", summary, step=shared[0], evidence=evidence, needs_baseline=True)
    return None


def _difference(mine: Rates, theirs: Rates) -> Finding | None:
    for step in sorted(mine.keys() & theirs.keys()):
        ours, others = mine[step], theirs[step]
        groups = [idx for idx, pair in enumerate(zip(ours, others, strict=False)) if _differ(*pair)]
        if groups or len(ours) != len(others):
            named = f"group{'s' if len(groups) != 1 else ''} {', '.join(map(str, groups))}" if groups else "number of groups"
            evidence = [Evidence(f"learning rates at step {step}", _list(ours), _list(others), "the baseline")]
            summary = (
                f"the learning rates differ from the baseline's at step {step}: {named}: {_list(ours)} against {_list(others)}"
            )
            return find("lr_differs", summary, step=step, evidence=evidence, needs_baseline=True)
    return None


def _differ(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) != math.isnan(other)
    return not math.isclose(one, other, rel_tol=SAME_RATE_SHARE)


def _spread(values: list[float]) -> float:
    largest = max(map(abs, values))
    return (max(values) - min(values)) / largest if largest > 0.0 and all(map(math.isfinite, values)) else 0.0


def _list(rates: tuple[float, ...]) -> str:
    return "[" + ", ".join(map(repr, rates)) + "]"
