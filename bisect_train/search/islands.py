"""Bad stretches before the culprit: the history was bad there, and became good again. Where do they begin and end?

The belief allows for such islands but does not look for them: what the search has not seen stays unseen, and the report says
how long a stretch that may be. The edges of those that it did see are narrowed here, by bisection, after the answer: one run of
a version decides unless it says nothing. These runs are a part of their own (number ISLANDS), and never move the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from bisect_train.core.changes import Point
from bisect_train.core.verdict import VerdictKind
from bisect_train.search.terms import PROVED, Island, Known, Phase, Plan, Request, Rules
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation

ISLANDS = -1
MAX_ISLANDS = 2
MAX_ISLAND_RUNS = 24
MAX_RUNS_OF_VERSION = 2
DECIDED = (VerdictKind.GOOD, VerdictKind.BAD)


def plan_islands(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with the bad stretches before the culprits, or the runs that their edges want.

    Args:
        rules, known: of the whole bisection.
        plan: with its answer.
    """
    if plan.answer is None or plan.answer.status not in PROVED:
        return plan
    culprit = min(idx for item in plan.answer.culprits for idx in item.changes)
    runs_of = _runs_of(known, culprit)
    kinds = {version: judge_variant(runs, plan.ends, rules.ends.metric).verdict for version, runs in sorted(runs_of.items())}
    islands = _islands_in(kinds, culprit)[-MAX_ISLANDS:]
    num_runs = sum(run.part == ISLANDS for run in known.observations)
    wanted = _wanted(rules, known, islands, runs_of) if num_runs < MAX_ISLAND_RUNS else ()
    if wanted:
        return replace(plan, phase=Phase.REST, wanted=wanted, answer=None, own=plan.answer)
    return replace(plan, answer=replace(plan.answer, islands=tuple(islands)))


def _runs_of(known: Known, culprit: int) -> dict[int, list[Observation]]:
    """Return the runs of the versions before the culprit, those of proofs and parts left out."""
    runs_of: dict[int, list[Observation]] = {}
    for run in known.observations:
        if run.attempt == 0 and run.part in (0, ISLANDS) and run.point.is_prefix and 0 < run.point.prefix < culprit:
            runs_of.setdefault(run.point.prefix, []).append(run)
    return runs_of


def _islands_in(kinds: Mapping[int, VerdictKind], culprit: int) -> list[Island]:
    """Return the stretches of BAD versions; the good end, and the version just before the culprit, are GOOD."""
    decided = [(0, VerdictKind.GOOD)]
    decided += [(version, kind) for version, kind in kinds.items() if kind in DECIDED]
    decided.append((culprit, VerdictKind.GOOD))
    groups = [(kind, [version for version, _ in group]) for kind, group in groupby(decided, key=lambda pair: pair[1])]
    return [
        Island(groups[idx - 1][1][-1], versions[0], versions[-1], groups[idx + 1][1][0])
        for idx, (kind, versions) in enumerate(groups)
        if kind is VerdictKind.BAD
    ]


def _wanted(rules: Rules, known: Known, islands: list[Island], runs_of: Mapping[int, list[Observation]]) -> tuple[Request, ...]:
    requests = []
    for island in islands:
        for low, high in ((island.good_before, island.first_bad), (island.last_bad, island.good_again)):
            version = _middle(rules, known, runs_of, low, high)
            if version is not None:
                num_runs = len({run.seed_idx for run in runs_of.get(version, ())})
                requests.append(Request(Point(version), num_runs, part=ISLANDS))
    return tuple(requests)


def _middle(rules: Rules, known: Known, runs_of: Mapping[int, list[Observation]], low: int, high: int) -> int | None:
    """Return the version nearest to the middle that can still tell something, None if there is none."""
    middle = (low + high) / 2.0
    usable = [
        version
        for version in range(low + 1, high)
        if version not in rules.skipped
        and Point(version) not in known.unbuildable
        and version not in known.marks
        and len(runs_of.get(version, ())) < MAX_RUNS_OF_VERSION
    ]
    return min(usable, key=lambda version: (abs(version - middle), version), default=None)
