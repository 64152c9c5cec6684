"""Parameters that never get a gradient, never move, or lose their updates to their precision.

A gradient that is missing or zero at the first step alone is no fault (layers that start at zero), and neither is an expert
that no sample chose: names with `expert` in them are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView, names, number
from bisect_train.verdict.triage.symptoms import CHOSEN, find

MIN_STEPS = 5  # taken with a learning rate above 0: layers that start at zero pass gradients on after one or two. Chosen
MIN_UPDATES = 10  # before lost updates can be told; chosen, not measured
LOST_SHARE = (
    0.25  # of the weights moved; CASES.md 6 has 0.03 against 1.00, unused rows of an embedding leave 0.7. Chosen between
)
LOST_MARGIN = 0.25  # below the baseline's share; chosen, not measured
_LOW_PRECISION = frozenset({"param:bfloat16", "param:float16"})
_EXPERT = re.compile(r"expert", re.IGNORECASE)


def find_still_parameters(look: Look) -> Iterator[Finding]:
    """Tell of parameters without a gradient, else of those without an update."""
    if min((num_updates(look.run, rank) for rank in look.run.ranks), default=0) < MIN_STEPS:
        return
    known = (disconnected(look.base) | still(look.base)) if look.base is not None else set()
    without = disconnected(look.run) - known
    if without:
        yield _named("disconnected_parameters", without, look, "never get a gradient, or only zeros")
    if next(find_lost_updates(look), None) is not None:
        return
    frozen = still(look.run) - disconnected(look.run) - known
    if frozen:
        yield _named("frozen_parameters", frozen, look, "get a gradient and never change")


def disconnected(run: RunView) -> set[str]:
    """Return the parameters whose gradient is missing or zero at both recorded steps, on every rank that recorded them."""
    found: list[set[str]] = []
    for events in run.events("gradients").values():
        if len(events) > 1:
            first, last = (_without_gradient(events[idx].data) for idx in (0, -1))
            found.append(first & last)
    return _no_experts(set.intersection(*found)) if found else set()


def still(run: RunView) -> set[str]:
    """Return the parameters that require gradients and are bit by bit as before the first step, on every rank."""
    found = [set(names(events[-1].data.get("names"))) for events in run.events("still_params").values()]
    return _no_experts(set.intersection(*found)) if found else set()


def _without_gradient(data: dict[str, object]) -> set[str]:
    return {*names(data.get("missing")), *names(data.get("zero"))}


def _no_experts(found: set[str]) -> set[str]:
    return {name for name in found if not _EXPERT.search(name)}


def _named(symptom: str, found: set[str], look: Look, what: str) -> Finding:
    ordered = sorted(found)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    total = _num_parameters(look.run)
    evidence = [
        Evidence("parameters", ", ".join(ordered[:20]) + (" ..." if len(ordered) > 20 else "")),
        Evidence(
            "number of parameters",
            f"{len(ordered)} of {total}" if total else str(len(ordered)),
            "0",
            "every parameter that requires a gradient",
        ),
    ]
    summary = f"{', '.join(ordered[:3])}{more} {what}"
    return find(symptom, summary, evidence=evidence, needs_baseline=look.base is not None)


def _num_parameters(run: RunView) -> int:
    counts = [number(data.get("num")) or 0.0 for data in run.first_data("gradients").values()]
    counts += [number(data.get("of")) or 0.0 for data in run.first_data("still_params").values()]
    return int(max(counts, default=0.0))


def num_updates(run: RunView, rank: int) -> int:
    """Return how many steps of a rank were taken with a learning rate above 0."""
    return sum(not record.skipped and (not record.lr or max(record.lr) > 0.0) for record in run.steps.get(rank, {}).values())


def moved_share(run: RunView) -> float | None:
    """Return the last recorded share (0 to 1) of weights that moved, of the rank where it is least."""
    shares = []
    for steps in run.steps.values():
        known = [record.moved for _, record in sorted(steps.items()) if record.moved is not None]
        shares += known[-1:]
    return min(shares, default=None)


def find_lost_updates(look: Look) -> Iterator[Finding]:
    """Tell of weights that do not move: in low precision by itself, in any precision against the baseline."""
    run, share = look.run, moved_share(look.run)
    if share is None or min((num_updates(run, rank) for rank in run.ranks), default=0) < MIN_UPDATES:
        return
    kinds = {kind for steps in run.steps.values() for record in steps.values() for kind in record.dtypes}
    base = moved_share(look.base) if look.base is not None else None
    if base is not None:
        limit, source = base - LOST_MARGIN, f"{LOST_MARGIN:g} below the baseline; {CHOSEN}"
    elif look.base is None and kinds & _LOW_PRECISION and not _is_growing(run):
        limit, source = LOST_SHARE, CHOSEN
    else:
        return
    if share < limit:
        types = ", ".join(sorted(kind.removeprefix("param:") for kind in kinds if kind.startswith("param:")))
        rate = max((max(record.lr, default=0.0) for steps in run.steps.values() for record in steps.values()), default=0.0)
        evidence = [
            Evidence("share of weights that moved", f"{share:.2f}", f"at least {limit:.2f}", source),
            Evidence("types of the parameters", types or "unknown"),
            Evidence("largest learning rate", f"{rate:.6g}"),
        ]
        summary = f"only {share:.0%} of the weights moved in {min(map(len, run.steps.values()))} steps"
        yield find("lost_updates", summary, evidence=evidence, needs_baseline=base is not None)


def _is_growing(run: RunView) -> bool:
    """Return whether the learning rate is still warming up at the end: early updates are small on purpose."""
    rates = [max(record.lr) for record in run.steps[run.ranks[0]].values() if record.lr]
    return len(rates) > 1 and rates[-1] > rates[len(rates) // 2]
