"""Parameters that never get a gradient, never move, or lose their updates to their precision.

A gradient that is missing or zero at the first step alone is no fault (layers that start at zero), and neither is an expert
that no sample chose: names with `expert` in them are left out. Gradients are known of the first and the last step only; what
moved in between may have had one (layers that are dropped now and then, tasks that take turns). Weight decay moves what has
zeros for a gradient, too: only where the norm of all gradients is 0 at every step is it sure that nothing had one.
Recorded lists of names may be cut. What is in such a list is sure, what is not in it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Named:
    """Parameters by name.

    Attributes:
        names: those that are known; experts are left out.
        num: how many there are, where the list was cut at least.
        is_whole: whether `names` has all of them.
    """

    names: frozenset[str] = frozenset()
    num: int = 0
    is_whole: bool = True


def find_still_parameters(look: Look) -> Iterator[Finding]:
    """Tell of parameters without a gradient, else of those without an update."""
    if min((num_updates(look.run, rank) for rank in look.run.ranks), default=0) < MIN_STEPS:
        return
    told = _news(disconnected(look.run), look.base, disconnected)
    if told.num:
        yield _named("disconnected_parameters", told, look, "never get a gradient, or only zeros")
    without = without_gradient(look.run)
    if not without.is_whole or _stays_rightly(look) or next(find_lost_updates(look), None) is not None:
        return
    told = _news(frozen(look.run), look.base, frozen)
    if told.num:
        yield _named("frozen_parameters", told, look, "get a gradient and never change")


def _news(found: Named, base: RunView | None, read: Callable[[RunView], Named]) -> Named:
    """Return what the baseline does not have as well; where its lists were cut, only if it has fewer."""
    if base is None:
        return found
    theirs, (without, kept) = read(base), (disconnected(base), still(base))
    new = found.names - without.names - kept.names
    is_known = without.is_whole and kept.is_whole
    num = found.num - len(found.names - new) if is_known else found.num - theirs.num
    return Named(new, num, found.is_whole and is_known) if num > 0 else Named()


def without_gradient(run: RunView) -> Named:
    """Return the parameters that had no gradient, or zeros, at both recorded steps, on every rank that recorded them."""
    pairs = [(events[0].data, events[-1].data) for events in run.events("gradients").values() if len(events) > 1]
    return _shared([_without(data) for pair in pairs for data in pair], _total(run))


def still(run: RunView) -> Named:
    """Return the parameters that require gradients and are bit by bit as before the first step, on every rank."""
    last = [events[-1].data for events in run.events("still_params").values()]
    return _shared([_listed(names(data.get("names")), number(data.get("num"))) for data in last], _total(run))


def disconnected(run: RunView) -> Named:
    """Return the parameters without a gradient at both recorded steps; of those that moved only if nothing ever had one."""
    has_still = bool(run.events("still_params")) and not _is_without_any(run)
    return _shared([without_gradient(run), *([still(run)] if has_still else [])], _total(run))


def _is_without_any(run: RunView) -> bool:
    """Return whether the gradient was 0 at every step of every rank, and the parameters did not grow, as decay alone has it.

    Parameters that grow had gradients, which were zeroed before they were looked at.
    """
    records = [[record for _, record in sorted(steps.items())] for steps in run.steps.values()]
    norms = [[record.param_norm for record in of_rank if record.param_norm is not None] for of_rank in records]
    is_zero = all(record.grad_norm == 0.0 and not record.clip_norm for of_rank in records for record in of_rank)
    return is_zero and all(bool(known) and known[-1] <= known[0] for known in norms)


def frozen(run: RunView) -> Named:
    """Return the parameters that never moved and had a gradient at one recorded step; takes whole lists of gradients."""
    kept, without = still(run), without_gradient(run)
    found = kept.names - without.names
    return Named(found, len(found) if kept.is_whole else max(len(found), kept.num - without.num), kept.is_whole)


def _without(data: dict[str, object]) -> Named:
    nums = [number(data.get(name)) for name in ("num_missing", "num_zero")]
    found = {*names(data.get("missing")), *names(data.get("zero"))}
    return _listed(found, None if None in nums else sum(num or 0.0 for num in nums))


def _listed(found: Iterable[str], num: float | None) -> Named:
    """Return a recorded list; `num` is how many there are with those that were cut off."""
    listed = set(found)
    kept = frozenset(name for name in listed if not _EXPERT.search(name))
    num_cut = max(0, int(num or 0.0) - len(listed))
    return Named(kept, len(kept) + num_cut, is_whole=num_cut == 0)


def _shared(parts: Sequence[Named], total: int) -> Named:
    """Return what several lists have in common.

    Of lists that were cut, as many as must be: k sets of n1, n2, ... of N parameters share at least n1 + n2 + ... - (k - 1) N.
    Two that are cut alike, to equal names out of equally many, are taken for one.
    """
    if not parts:
        return Named()
    parts = list(dict.fromkeys(parts))
    found, is_whole = frozenset.intersection(*(part.names for part in parts)), all(part.is_whole for part in parts)
    least = 0 if is_whole or not total else sum(part.num for part in parts) - (len(parts) - 1) * total
    return Named(found, max(len(found), least), is_whole)


def _total(run: RunView) -> int:
    """Return the number of parameters of the rank that has most, 0 where it is not known."""
    nums = [number(data.get("num")) for data in run.first_data("gradients").values()]
    nums += [number(data.get("of")) for data in run.first_data("still_params").values()]
    return int(max((num or 0.0 for num in nums), default=0.0))


def _stays_rightly(look: Look) -> bool:
    """Return whether parameters may stay as they are though they get gradients, where no baseline tells which do.

    In low precision a weight of 1 outlives updates below its rounding (the scale of a LayerNorm), and a parameter group whose
    rate is 0 throughout is frozen on purpose.
    """
    return look.base is None and (bool(_types(look.run) & _LOW_PRECISION) or _has_frozen_group(look.run))


def _has_frozen_group(run: RunView) -> bool:
    """Return whether the learning rate of a parameter group is 0 at every step, on any rank."""
    for steps in run.steps.values():
        rows = [record.lr for record in steps.values() if record.lr]
        if any(all(rate == 0.0 for rate in group) for group in zip(*rows, strict=False)):
            return True
    return False


def _types(run: RunView) -> set[str]:
    return {kind for steps in run.steps.values() for record in steps.values() for kind in record.dtypes}


def _named(symptom: str, found: Named, look: Look, what: str) -> Finding:
    ordered, total, least = sorted(found.names), _total(look.run), "" if found.is_whole else "at least "
    share = f"{least}{found.num} of {total}" if total else f"{least}{found.num}"
    num_more = found.num - len(ordered[:3])
    more = f" and {least}{num_more} more" if num_more else ""
    shown = f"{', '.join(ordered[:3])}{more}" if ordered else f"{share} parameters"
    listed = ", ".join(ordered[:20]) + (" ..." if found.num > 20 else "") if ordered else "names were not kept"
    evidence = [
        Evidence("parameters", listed),
        Evidence("number of parameters", share, "0", "every parameter that requires a gradient"),
    ]
    return find(symptom, f"{shown} {what}", evidence=evidence, needs_baseline=look.base is not None)


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
    kinds = _types(run)
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
