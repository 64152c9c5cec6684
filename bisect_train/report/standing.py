"""Where an unfinished bisection stands, in words."""

from __future__ import annotations

import numpy as np

from bisect_train.changes.space import ChangeSpace
from bisect_train.report.live_rest import list_activities
from bisect_train.report.words import label_change, say_count, say_pruned
from bisect_train.search.belief import credible_changes
from bisect_train.search.terms import Phase, Plan

PHASES = {
    Phase.ENDS: "proving that the good end and the bad end differ",
    Phase.BASE: "testing the merge base of the two ends",
    Phase.SEARCH: "narrowing the range",
    Phase.PROOF: "proving the answer with fresh runs",
    Phase.PARTNER: "looking for the change that it needs beside it",
    Phase.REST: "looking at the rest of the range",
    Phase.DONE: "done",
}
MAX_SHOWN = 5
LINE_WIDTH = 200


def render_standing(plan: Plan, space: ChangeSpace, *, num_probes: int) -> str:
    """Return a few lines: phase, what is known of the ends, the changes that are left, the probes so far."""
    lines = [f"phase     {PHASES[plan.phase]}"]
    lines += [f"          {text}" for text in list_activities(plan, space.changes)]
    lines.append(f"probes    {num_probes} finished")
    if plan.ends.reason:
        lines.append(f"ends      {plan.ends.reason}")
    if plan.inert:
        lines.append(f"not read  {say_pruned(len(plan.inert))}")
    if plan.posterior:
        left = credible_changes(np.asarray(plan.posterior), mass=0.99)
        verb = "holds" if len(left) == 1 else "hold"
        lines.append(f"left      {len(left)} of {say_count(len(space.changes), 'change')} {verb} 99 % of the belief")
        ranked = sorted(left, key=lambda idx: -plan.posterior[idx])[:MAX_SHOWN]
        lines += [_line_of(idx, plan.posterior[idx], space) for idx in ranked]
        if len(left) > MAX_SHOWN:
            lines.append(f"          ... and {len(left) - MAX_SHOWN} more")
    return "\n".join(lines)


def _line_of(idx: int, probability: float, space: ChangeSpace) -> str:
    change = space.changes[idx]
    return f"          {probability:6.1%}  {label_change(change, width=LINE_WIDTH)}"
