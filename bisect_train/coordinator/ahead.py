"""What comes soon: seeds (a worker that forks programs needs some seconds before it can fork the first of another one), and
the ends of the next rung.
"""

from __future__ import annotations

from collections.abc import Iterator

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.core.probe import ProbeSpec, Rung
from bisect_train.search.ahead import first_look_requests
from bisect_train.search.attempts import SEEDS_PER_ATTEMPT
from bisect_train.search.terms import Phase, Plan, Request, Rules
from bisect_train.verdict.ends import FIRST_LOOK

MAX_AHEAD = 2


def seeds_ahead(plan: Plan, seed_idx: int) -> tuple[int, ...]:
    """Return the seed indices that come soon beside `seed_idx`, soonest first, at most `MAX_AHEAD`.

    They are those that the plan wants; before it knows whether the ends repeat themselves, those of the first look at them;
    and from the last seed of that look on the first seed of the proof: a search may take less time than its process to start.
    """
    wanted = [request.seed_idx for request in plan.wanted]
    if plan.phase is Phase.ENDS and seed_idx == 0:
        wanted += range(FIRST_LOOK)
    elif plan.phase is Phase.SEARCH or (plan.phase is Phase.ENDS and seed_idx == FIRST_LOOK - 1):
        wanted.append(SEEDS_PER_ATTEMPT)
    return tuple(dict.fromkeys(idx for idx in wanted if idx != seed_idx))[:MAX_AHEAD]


def runs_ahead(knows: Knowledge, rules: Rules, space: ChangeSpace, rung: Rung) -> Iterator[tuple[str, Request, ProbeSpec]]:
    """Yield key, request and spec of the first runs of the ends on the next rung that are not known yet.

    Args:
        knows: what is known on that rung.
        rules: of the search, they say where the ends lie.
        space: of the question.
        rung: the next one.
    """
    known = {(run.point, run.seed_idx, run.repeat) for run in knows.known([], 1).observations}
    for request in first_look_requests(rules):
        spec = ProbeSpec(space.variant(request.point), rung, request.seed_idx, request.repeat)
        key = knows.key_of(request, spec)
        if (request.point, request.seed_idx, request.repeat) not in known and not knows.has_result(key):
            yield key, request, spec
