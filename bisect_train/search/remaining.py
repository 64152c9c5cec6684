"""How many runs a bisection will still take, as far as its plan tells: for a person who waits, not for any decision."""

from __future__ import annotations

import math

from bisect_train.search.terms import Phase, Plan

NUM_STATES = 6  # of a proof: both ends, the two sides of the change, the bad end without it, the good end with it
RUNS_PER_STATE = {True: 2, False: 3}  # where runs repeat bit for bit, and where they do not
RUNS_PER_BIT = {True: 1.0, False: 1.6}  # of a search; 1.6: 15 runs on 128 commits at 4 seed sd, less 4 for the ends


def runs_left(plan: Plan, num_changes: int) -> int:
    """Return about how many runs are still to come, those that are running included.

    0 where there is an answer, and in phases that end where something is found: nothing tells how long these are.

    Args:
        plan: the last one.
        num_changes: of the whole range.
    """
    if plan.answer is not None or plan.phase in (Phase.PARTNER, Phase.REST, Phase.DONE):
        return 0
    is_exact = plan.ends.do_bits_repeat or plan.ends.are_seeds_inert
    num_proof = NUM_STATES * RUNS_PER_STATE[is_exact]
    if plan.phase in (Phase.ENDS, Phase.BASE):
        return len(plan.wanted) + math.ceil(RUNS_PER_BIT[is_exact] * math.log2(max(2, num_changes))) + num_proof
    if plan.phase is Phase.SEARCH:
        return max(len(plan.wanted), math.ceil(RUNS_PER_BIT[is_exact] * _bits(plan))) + num_proof
    return len(plan.wanted)


def _bits(plan: Plan) -> float:
    """Return the entropy of the belief over the changes."""
    return -math.fsum(p * math.log2(p) for p in plan.posterior if p > 0.0)
