"""Whether gradients were averaged over the ranks once: by norms before clipping, and by their equality between ranks.

Clipping hides a wrong factor in everything that comes after it, so the norm before it is compared. Only the first steps count:
a wrong factor changes the weights, and the norms then differ for other reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from bisect_train.verdict.divergence import is_same_batch
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say

FIRST_STEPS = 3  # chosen, not measured
FIRST_RATIO_SHARE = 0.02  # from 1/W or W at the first step, where weights and data are equal; chosen, not measured
LATER_RATIO_SHARE = 0.25  # at the median of the first steps; chosen, not measured
SAME_LOSS_SHARE = 0.01  # a loss that has the factor, too, is scaled, and not its gradient alone; chosen, not measured
_AVERAGING = ("all_reduce", "all_gather", "all_gather_into_tensor", "broadcast", "reduce")


def find_averaging(look: Look) -> Iterator[Finding]:
    """Tell of gradients that are W times too small or too large against the baseline, else of ranks that keep their own."""
    run, base = look.run, look.peer
    if len(run.steps) < 2:
        return
    found = _by_itself(run) if base is None else _by_ratio(run, base) or _by_baseline_equality(run, base)
    if found is not None:
        yield found


def ratios(run: RunView, base: RunView) -> list[tuple[int, float]]:
    """Return (step, norm of the run / norm of the baseline) of the first steps that both have."""
    mine, theirs = run.pre_clip_norms, base.pre_clip_norms
    return [
        (step, mine[step] / theirs[step]) for step in sorted(mine.keys() & theirs.keys())[:FIRST_STEPS] if theirs[step] > 0.0
    ]


def _by_ratio(run: RunView, base: RunView) -> Finding | None:
    found, size = ratios(run, base), run.world_size
    if not found or found[0][0] != min(run.shared_steps, default=-1) or not _is_same_work(run, base, found[0][0]):
        return None
    for symptom, factor in (("gradients_averaged_twice", 1.0 / size), ("gradients_not_averaged", float(size))):
        is_first = math.isclose(found[0][1], factor, rel_tol=FIRST_RATIO_SHARE)
        if is_first and math.isclose(median(ratio for _, ratio in found), factor, rel_tol=LATER_RATIO_SHARE):
            shown = f"1/{size}" if factor < 1.0 else str(size)
            return _by_factor(symptom, shown, found, run, base)
    return None


def _is_same_work(run: RunView, base: RunView, step: int) -> bool:
    """Return whether a step has the loss, the number of micro-batches and, where they are known, the batches of the baseline.

    Two micro-batches whose losses are not divided have twice the gradient, too.
    """
    pairs = [(record, base.at(step).get(rank)) for rank, record in run.at(step).items()]
    if any(other is None or not is_same_batch(record, other) for record, other in pairs):
        return False
    return _has_same_loss(run, base, step)


def _has_same_loss(run: RunView, base: RunView, step: int) -> bool:
    mine, theirs = dict(run.losses).get(step), dict(base.losses).get(step)
    return mine is not None and theirs is not None and math.isclose(mine, theirs, rel_tol=SAME_LOSS_SHARE)


def _by_factor(symptom: str, shown: str, found: Sequence[tuple[int, float]], run: RunView, base: RunView) -> Finding:
    step = found[0][0]
    mine, theirs = run.pre_clip_norms[step], base.pre_clip_norms[step]
    evidence = [
        Evidence(f"gradient norm before clipping at step {step}", say(mine), say(theirs), "the baseline"),
        Evidence(
            "ratio to the baseline, first steps",
            ", ".join(f"{ratio:.4f}" for _, ratio in found),
            "1",
            f"the ratio {shown} is told within {FIRST_RATIO_SHARE:.0%}; {CHOSEN}",
        ),
        Evidence("ranks", str(run.world_size)),
    ]
    share = f"{shown} of" if shown.startswith("1/") else f"{shown} times"
    summary = f"the gradient norm before clipping is {share} the baseline's from step {step} on, with {run.world_size} ranks"
    return find(symptom, summary, ranks=run.ranks, step=step, evidence=evidence, needs_baseline=True)


def _by_baseline_equality(run: RunView, base: RunView) -> Finding | None:
    """Return a finding where gradients are equal on all ranks in the baseline, and each rank's own in the run."""
    steps = run.steps_with(base)[:FIRST_STEPS]
    if not steps or not all(_are_equal(base, step) is True and _are_equal(run, step) is False for step in steps):
        return None
    return _own_gradients(
        run, run.ranks, steps[0], "equal on all ranks, as in the baseline", "the baseline", needs_baseline=True
    )


def averages_now_and_then(run: RunView) -> bool:
    """Return whether ranks part on purpose (local SGD): some steps make no collective call, others reduce whole tensors."""
    calls = [record.collectives for steps in run.steps.values() for record in steps.values() if record.collectives]
    is_idle = any(text.startswith("0:") for text in calls)
    entered = [event for events in run.events("collective").values() for event in events if (event.step or 0) > 0]
    return is_idle and any(event.data.get("shape") and event.data.get("op") in _AVERAGING for event in entered)


def _by_itself(run: RunView) -> Finding | None:
    """Return a finding where replicas have gradients of their own, and their parameters part with the first step."""
    sampled = run.sampled_steps
    for group in run.replica_groups:
        parted = [len({run.param_hashes(step).get(rank) for rank in group}) == len(group) for step in sampled]
        if all(parted) and not averages_now_and_then(run) and _are_equal(run, sampled[0], group) is False:
            return _own_gradients(
                run, group, sampled[0], "equal on all ranks", "the parameters part with this step", needs_baseline=False
            )
    return None


def _are_equal(run: RunView, step: int, group: Sequence[int] | None = None) -> bool | None:
    """Return whether the ranks' gradients as the optimizer got them have one norm, to six digits; None where unknown."""
    norms = [record.grad_norm for rank, record in run.at(step).items() if group is None or rank in group]
    known = [value for value in norms if value is not None and math.isfinite(value)]
    if len(known) < 2 or len(known) < len(norms):
        return None
    return max(known) - min(known) <= 1e-6 * max(known)


def _own_gradients(
    run: RunView, ranks: Sequence[int], step: int, expected: str, source: str, *, needs_baseline: bool
) -> Finding:
    records = run.at(step)
    evidence = [
        Evidence(f"gradient norm at step {step}", say(records[rank].grad_norm), expected, source, rank)
        for rank in ranks
        if rank in records
    ]
    summary = f"each rank steps with a gradient of its own from step {step} on: gradients are not averaged"
    return find("gradients_not_averaged", summary, ranks=ranks, step=step, evidence=evidence, needs_baseline=needs_baseline)
