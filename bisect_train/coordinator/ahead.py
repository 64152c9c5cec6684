"""Which seeds come soon: a worker that forks programs needs some seconds before it can fork the first of another seed."""

from __future__ import annotations

from bisect_train.search.attempts import SEEDS_PER_ATTEMPT
from bisect_train.search.terms import Phase, Plan
from bisect_train.verdict.ends import FIRST_LOOK

MAX_AHEAD = 2


def seeds_ahead(plan: Plan, seed_idx: int) -> tuple[int, ...]:
    """Return the seed indices that come soon beside `seed_idx`, soonest first, at most `MAX_AHEAD`.

    They are those that the plan wants; before it knows whether the ends repeat themselves, those of the first look at them;
    and behind a search the first seed of its proof.
    """
    wanted = [request.seed_idx for request in plan.wanted]
    if plan.phase is Phase.ENDS and seed_idx == 0:
        wanted += range(FIRST_LOOK)
    elif plan.phase is Phase.SEARCH:
        wanted.append(SEEDS_PER_ATTEMPT)
    return tuple(dict.fromkeys(idx for idx in wanted if idx != seed_idx))[:MAX_AHEAD]
