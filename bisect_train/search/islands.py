"""Bad stretches before the culprit: the history was bad there, and became good again. Where do they begin and end?

The belief allows for such islands but does not look for them. That is done here, after the answer:

    looks    the longest stretches of versions that were never judged are cut by a few runs, one of each version, until none
             is longer than an eighth of the history before the culprit, or the looks are spent (MAX_LOOKS, and no more than a
             fifth of what the bisection has run)
    edges    a stretch that is bad has its ends narrowed by bisection: one run of a version decides unless it says nothing

A stretch that rests on little is run once more before it is told. All these runs are a part of their own (number ISLANDS), and
never move the answer. How long a stretch could still be unseen follows from the evidence of the plan, which holds the looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.terms import PROVED, Island, Known, Phase, Plan, Request, Rules
from bisect_train.verdict.evidence import SYMPTOM_NATS, judge_variant
from bisect_train.verdict.outcome import Observation
from bisect_train.verdict.proof import ClaimKind

ISLANDS = -1
MAX_ISLANDS = 2
MAX_ISLAND_RUNS = 24
MAX_RUNS_OF_VERSION = 2
MAX_LOOKS = 6
RUNS_PER_LOOK = 5  # of the bisection, for each look that may be made
UNSEEN_SHARE = 8  # a stretch of this part of the history before the culprit is to be seen
MIN_UNSEEN = 2  # shorter stretches are not looked for
SURE_NATS = SYMPTOM_NATS - 1e-9  # of a bad stretch that is told without another run
DECIDED = (VerdictKind.GOOD, VerdictKind.BAD)


def plan_islands(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with the bad stretches before the culprits, or the runs that look for them and for their edges.

    Args:
        rules, known: of the whole bisection.
        plan: with its answer.
    """
    answer = plan.answer
    if answer is None or answer.status not in PROVED:
        return plan
    culprit = min(idx for item in answer.culprits for idx in item.changes)
    runs_of = _runs_of(known, culprit)
    found, num_spent, evidence = _evidence_before(rules, known, plan, runs_of)
    plan = replace(plan, evidence=evidence)
    islands = _islands_in(found, culprit)[-MAX_ISLANDS:]
    wanted = _looks(rules, known, plan.evidence, culprit, num_spent=num_spent)
    if not wanted and sum(run.part == ISLANDS for run in known.observations) < MAX_ISLAND_RUNS:
        wanted = _wanted(rules, known, islands, found, runs_of)
    if wanted:
        return replace(plan, phase=Phase.REST, wanted=wanted, answer=None, own=answer)
    return replace(plan, answer=replace(answer, islands=tuple(islands)))


def looks_during_proof(rules: Rules, known: Known, plan: Plan) -> tuple[Request, ...]:
    """Return the looks that are wanted once the culprit is proved that is being proved, () where no single change is.

    Args:
        rules, known: of the whole bisection.
        plan: of the proof; its runs count for how many looks may be made.
    """
    sick = [result.claim.sick for result in plan.claims if result.claim.kind is ClaimKind.PARENT]
    if len(sick) != 1 or not sick[0].is_prefix or sick[0].prefix < 1:
        return ()
    culprit = sick[0].prefix - 1
    _, num_spent, evidence = _evidence_before(rules, known, plan, _runs_of(known, culprit))
    num_coming = sum(request.part != ISLANDS for request in plan.wanted)
    return _looks(rules, known, evidence, culprit, num_spent=num_spent, num_coming=num_coming)


def _evidence_before(
    rules: Rules, known: Known, plan: Plan, runs_of: Mapping[int, Sequence[Observation]]
) -> tuple[dict[int, Evidence], int, dict[int, Evidence]]:
    """Return what the versions before the culprit show, how many looks were made, and the plan's evidence with theirs."""
    found = {version: judge_variant(runs, plan.ends, rules.ends.metric) for version, runs in sorted(runs_of.items())}
    looked_at = {run.point.prefix for run in known.observations if run.part == ISLANDS} & found.keys()
    seen = {**plan.evidence, **{version: found[version] for version in looked_at}}
    return found, len(looked_at), dict(sorted(seen.items()))


def _runs_of(known: Known, culprit: int) -> dict[int, list[Observation]]:
    """Return the runs of the versions before the culprit, those of proofs and parts left out."""
    runs_of: dict[int, list[Observation]] = {}
    for run in known.observations:
        if run.attempt == 0 and run.part in (0, ISLANDS) and run.point.is_prefix and 0 < run.point.prefix < culprit:
            runs_of.setdefault(run.point.prefix, []).append(run)
    return runs_of


def _is_usable(rules: Rules, known: Known, version: int) -> bool:
    return version not in rules.skipped and version not in known.marks and Point(version) not in known.unbuildable


# ---- looks --------------------------------------------------------------------------------------------------------


def _looks(
    rules: Rules, known: Known, evidence: Mapping[int, Evidence], culprit: int, *, num_spent: int, num_coming: int = 0
) -> tuple[Request, ...]:
    """Return the looks that run and those to start; () when no stretch is too long, or the looks are spent.

    `num_coming`: other runs that are wanted, and count for the looks that may be made.
    """
    last = min(culprit, rules.first_free + 1)  # a state with some of the free changes was never the project's
    num_runs = sum(run.part != ISLANDS for run in known.observations) + num_coming
    budget = min(MAX_LOOKS, max(1, num_runs // RUNS_PER_LOOK)) - num_spent
    longest = max(MIN_UNSEEN, (last - 1) // UNSEEN_SHARE)
    judged = [version for version, item in evidence.items() if 0 < version < last and item.verdict in DECIDED]
    free = [version for version in range(1, last) if version not in evidence and _is_usable(rules, known, version)]
    if not spread_versions([0, *judged, last], free, longest=longest, num=budget):
        return ()
    running = [request for request in sorted(known.in_flight) if request.part == ISLANDS]
    edges = sorted({0, *judged, *(request.point.prefix for request in running if request.point.prefix < last), last})
    left = [version for version in free if version not in edges]
    new = spread_versions(edges, left, longest=longest, num=budget - len(running))
    return (*running, *(Request(Point(version), 0, part=ISLANDS) for version in new))


def spread_versions(edges: Sequence[int], free: Sequence[int], *, longest: int, num: int) -> list[int]:
    """Return at most `num` versions that cut the stretches between `edges` evenly, so that none is longer than need be.

    Args:
        edges: versions that are known, in order, both ends among them.
        free: versions that may be chosen, in order.
        longest: a stretch of so many versions between two edges is short enough.
        num: versions, at most; `longest` is raised until they are enough.
    """
    stretches = [(low, high, [version for version in free if low < version < high]) for low, high in pairwise(edges)]
    stretches = [stretch for stretch in stretches if stretch[2]]
    while sum(nums := [min(len(usable), (high - low - 1) // (longest + 1)) for low, high, usable in stretches]) > max(0, num):
        longest += 1
    chosen: list[int] = []
    for (low, high, usable), count in zip(stretches, nums, strict=True):
        for idx in range(count):
            place = low + (high - low) * (idx + 1) / (count + 1)
            chosen.append(min(set(usable) - set(chosen), key=lambda version: (abs(version - place), version)))
    return sorted(chosen)


# ---- edges --------------------------------------------------------------------------------------------------------


def _islands_in(found: Mapping[int, Evidence], culprit: int) -> list[Island]:
    """Return the stretches of BAD versions; the good end, and the version just before the culprit, are GOOD."""
    decided = [(0, VerdictKind.GOOD)]
    decided += [(version, item.verdict) for version, item in found.items() if item.verdict in DECIDED]
    decided.append((culprit, VerdictKind.GOOD))
    groups = [(kind, [version for version, _ in group]) for kind, group in groupby(decided, key=lambda pair: pair[1])]
    return [
        Island(groups[idx - 1][1][-1], versions[0], versions[-1], groups[idx + 1][1][0])
        for idx, (kind, versions) in enumerate(groups)
        if kind is VerdictKind.BAD
    ]


def _wanted(
    rules: Rules,
    known: Known,
    islands: list[Island],
    found: Mapping[int, Evidence],
    runs_of: Mapping[int, list[Observation]],
) -> tuple[Request, ...]:
    versions: list[int] = []
    for island in islands:
        doubtful = _version_to_repeat(rules, known, island, found, runs_of)
        if doubtful is not None:
            versions.append(doubtful)
            continue
        for low, high in ((island.good_before, island.first_bad), (island.last_bad, island.good_again)):
            version = _middle(rules, known, runs_of, low, high)
            versions += [] if version is None else [version]
    seeds = {version: len({run.seed_idx for run in runs_of.get(version, ())}) for version in versions}
    return tuple(Request(Point(version), seed_idx, part=ISLANDS) for version, seed_idx in seeds.items())


def _version_to_repeat(
    rules: Rules, known: Known, island: Island, found: Mapping[int, Evidence], runs_of: Mapping[int, list[Observation]]
) -> int | None:
    """Return a version of a bad stretch to run once more, where all of its evidence together is weak; else None."""
    bad = [version for version in found if island.first_bad <= version <= island.last_bad]
    if math.fsum(found[version].nats for version in bad) >= SURE_NATS:
        return None
    few = [v for v in bad if len(runs_of[v]) < MAX_RUNS_OF_VERSION and _is_usable(rules, known, v)]
    return min(few, key=lambda version: (-found[version].nats, version), default=None)


def _middle(rules: Rules, known: Known, runs_of: Mapping[int, list[Observation]], low: int, high: int) -> int | None:
    """Return the version nearest to the middle that can still tell something, None if there is none."""
    middle = (low + high) / 2.0
    usable = [
        version
        for version in range(low + 1, high)
        if _is_usable(rules, known, version) and len(runs_of.get(version, ())) < MAX_RUNS_OF_VERSION
    ]
    return min(usable, key=lambda version: (abs(version - middle), version), default=None)
