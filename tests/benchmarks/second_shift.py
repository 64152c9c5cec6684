"""Goal G11: is a second change of half the size noticed, and is none alleged where there is only one? Whole bisections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bisect_train.core.question import Metric
from bisect_train.search.terms import RemarkKind, Rules
from bisect_train.verdict.end_terms import EndRules
from tests.support.simulated_regression import World, solve

NUM_CHANGES = 128
GAP = 4.0
SLOTS = 8
MAX_PROBES = 3000
MIN_FLAGGED, MAX_FALSE = 0.80, 0.03
MIN_ANSWERS = 0.5  # of the problems: below that a share of the answers proves nothing

Map = Callable[[Callable[..., object], Sequence[object]], Iterator[object]]


@dataclass(frozen=True)
class Seen:
    """How one bisection ended: somebody was named, only true changes, all of them; and whether it says that there is more."""

    is_named: bool = False
    is_right: bool = False
    is_complete: bool = False
    is_flagged: bool = False


def flag_second(second: float, seed: int) -> Seen:
    """Run one bisection to its answer.

    Args:
        second: size of the second shift in units of the first; 0 for none.
        seed: of the problem.
    """
    rng = np.random.default_rng(11_000 + seed)
    first_idx, second_idx = (int(idx) for idx in rng.choice(NUM_CHANGES, 2, replace=False))
    world = World(lambda point: GAP * (point.holds(first_idx) + second * point.holds(second_idx)), seed=seed)
    answer = solve(world, Rules(NUM_CHANGES, EndRules(Metric())), slots=SLOTS, max_probes=MAX_PROBES).answer
    if answer.status not in ("isolated", "several"):
        return Seen()
    named = {idx for culprit in answer.culprits for idx in culprit.changes}
    true = {first_idx, second_idx} if second else {first_idx}
    has_rest = any(remark.kind is RemarkKind.UNEXPLAINED for remark in answer.remarks)
    return Seen(True, named <= true, named == true, answer.status == "several" or has_rest)


def rows_of_second_shift(num_problems: int, each: Map) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield how often a second shift is flagged, of the bisections that name somebody, and how often falsely."""
    for second, goal in ((0.5, f">= {MIN_FLAGGED:.0%}"), (1.0, ""), (0.0, f"<= {MAX_FALSE:.0%}")):
        seen: list[Seen] = list(each(partial(flag_second, second), range(num_problems)))  # type: ignore[arg-type]
        named = [item for item in seen if item.is_named]
        flagged, wrong, complete = (
            sum(getattr(item, name) for item in named) for name in ("is_flagged", "is_named", "is_complete")
        )
        wrong -= sum(item.is_right for item in named)
        share = flagged / max(1, len(named))
        is_met = bool(named) and (share >= MIN_FLAGGED if second else share <= MAX_FALSE)
        said = f"{flagged} of {len(named)} answers say that there is more ({share:.0%}), {wrong} wrong"
        said += f", both named in {complete}" if second else ""
        said += f"; {num_problems - len(named)} of {num_problems} name nobody"
        more = f", a second one of {second:.1f} of it" if second else " alone"
        met = f"{goal}: {'yes' if is_met else '**no**'}" if goal else ""
        if goal and len(named) < MIN_ANSWERS * num_problems:
            met = f"{goal}: **no**, too few answers to tell"
        yield "G11", f"shift {GAP:.0f} sd{more}, N = {NUM_CHANGES}, whole bisections", said, met, "none of them looks for it"
