"""Workers that would stand idle begin what most likely comes next.

On a large cluster the time of a bisection is that of its rounds, each as long as its slowest probe. So the first look at the
ends is begun as a whole, and the looks for bad stretches before the culprit while the culprit is being proved. These runs are
the ones that would be wanted a round later, and count as they would then; those that are wanted no more are cancelled. Where
few workers are idle (MIN_SLOTS) nothing is begun: what a first run shows often spares the others.
"""

from __future__ import annotations

from dataclasses import replace

from bisect_train.core.verdict import Criterion
from bisect_train.search.islands import looks_during_proof
from bisect_train.search.terms import Known, Phase, Plan, Request, Rules
from bisect_train.verdict.ends import FIRST_LOOK

MIN_SLOTS = 8


def first_look_requests(rules: Rules) -> list[Request]:
    """Return the runs that the ends of any rung take first, seed by seed."""
    runs = [(0, 0), *([] if rules.ends.repeats_known else [(0, 1)]), *((idx, 0) for idx in range(1, FIRST_LOOK))]
    ends = (rules.good_point, rules.bad_point)
    return [Request(point, rules.first_seed + seed_idx, repeat) for seed_idx, repeat in runs for point in ends]


def with_runs_ahead(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with what idle workers begin.

    Args:
        rules, known: of the whole bisection.
        plan: what is wanted now.
    """
    num_idle = known.slots - len(plan.wanted)
    if known.slots < MIN_SLOTS or num_idle <= 0 or plan.answer is not None:
        return plan
    coming: tuple[Request, ...] = ()
    if plan.phase is Phase.ENDS:
        coming = _first_look(rules, known)
    elif plan.phase is Phase.PROOF:
        coming = looks_during_proof(rules, known, plan)
    new = [request for request in coming if request not in plan.wanted]
    return replace(plan, wanted=(*plan.wanted, *new[:num_idle]))


def _first_look(rules: Rules, known: Known) -> tuple[Request, ...]:
    """Return the runs of the first look at the ends that are not known yet, where values are most likely to decide."""
    asked = rules.ends
    if asked.has_judge or asked.criterion is Criterion.SYMPTOM or asked.metric.is_paired:
        return ()
    seen = {(run.point, run.seed_idx, run.repeat) for run in known.observations if run.part == 0 and run.attempt == 0}
    wanted = first_look_requests(rules)
    return tuple(request for request in wanted if (request.point, request.seed_idx, request.repeat) not in seen)
