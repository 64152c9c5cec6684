"""Which runs must not rest on one node's word: those that surprise, and those on which an answer hangs. Pure.

    repeat     what shows that runs repeat themselves does so on two nodes
    surprise   a version is bad before one that is good: one of them may be a node's fault, most likely the one that contradicts
               most others. A run that fails where values decide
    answer     the first fresh run of each state that a proof rests on, on each node that ran one. Where no culprit is proved:
               the least and the greatest value of each end, and the runs beside the candidates

What is wanted is run again elsewhere as a run of the part `NODE_CHECK`, which no search and no proof ever counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.search.terms import PROVED, Plan, Rules
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.outcome import Observation, OutcomeKind

NODE_CHECK = -3
"""Number of the part of a run that asks another node about a run that is known."""

CHECK_REPEAT = 1000
"""Its repeats count from here, so that no run of a search has its key."""

MAX_CANDIDATES = 3
OF_VALUES = (Criterion.EXACT, Criterion.STATISTICAL)
FAILED = (OutcomeKind.FAILED, OutcomeKind.NO_METRIC, OutcomeKind.UNSEEN, OutcomeKind.UNTESTABLE)
NodeOf = Callable[[Observation], str]


def deciding_runs(
    plan: Plan,
    observations: Sequence[Observation],
    rules: Rules,
    *,
    node_of: NodeOf,
    is_noise: bool = False,
) -> list[Observation]:
    """Return the runs that a second node should see, the most urgent first.

    Args:
        plan: by these observations.
        observations: all that count, in any order.
        node_of: where a run was made, "" where that is unknown.
        is_noise: whether runs do not repeat themselves, so that one of them says little: failures are seen again, what a
            single node ran of a state in a proof, and the extremes where no culprit is proved.
    """
    runs = sorted((run for run in observations if node_of(run)), key=_order)
    is_proved = plan.answer is None or plan.answer.status in PROVED
    extremes = [] if is_proved else _extremes(runs, rules)
    if is_noise:
        return list(dict.fromkeys([*_failed(plan, runs), *_of_lonely_proofs(runs, node_of), *extremes]))
    repeats = [run for run in runs if run.repeat and run.attempt == 0]  # begun at once, they may run beside their first run
    found = [*repeats, *_conflicting(plan, runs), *_failed(plan, runs), *_of_proofs(runs, node_of), *extremes]
    return list(dict.fromkeys(found if is_proved else [*found, *_beside_candidates(plan, runs)]))


def _order(run: Observation) -> tuple[int, Point, int, int, int]:
    return run.attempt, run.point, run.seed_idx, run.repeat, run.part


def _conflicting(plan: Plan, runs: Sequence[Observation]) -> list[Observation]:
    """Return the runs of the versions that contradict most others: bad before a good one, or good after a bad one."""
    shown = {version: item.verdict for version, item in plan.evidence.items() if item.num_runs}
    bad = [version for version, verdict in shown.items() if verdict is VerdictKind.BAD]
    good = [version for version, verdict in shown.items() if verdict is VerdictKind.GOOD]
    num_conflicts = {version: sum(other > version for other in good) for version in bad}
    num_conflicts |= {version: sum(other < version for other in bad) for version in good}
    most_first = sorted((version for version, num in num_conflicts.items() if num), key=lambda v: (-num_conflicts[v], v))
    of_version: dict[Point, list[Observation]] = {}
    for run in runs:
        if run.attempt == 0:
            of_version.setdefault(run.point, []).append(run)
    return [run for version in most_first for run in of_version.get(Point(version), [])]


def _failed(plan: Plan, runs: Sequence[Observation]) -> list[Observation]:
    """Return the first failing run of each state, unless failing is what the bad end does."""
    if plan.ends.status is EndsStatus.OPEN:
        return []
    if plan.ends.status is EndsStatus.SEPARATED and plan.ends.criterion not in OF_VALUES:
        return []
    firsts: dict[Point, Observation] = {}
    for run in runs:
        if run.outcome.kind in FAILED:
            firsts.setdefault(run.point, run)
    return list(firsts.values())


def _of_proofs(runs: Iterable[Observation], node_of: NodeOf) -> list[Observation]:
    """Return of each attempt and state the first fresh run on each node."""
    seen: set[tuple[int, int, Point, str]] = set()
    found = []
    for run in runs:
        place = (run.part, run.attempt, run.point, node_of(run))
        if run.attempt > 0 and place not in seen:
            seen.add(place)
            found.append(run)
    return found


def _of_lonely_proofs(runs: Sequence[Observation], node_of: NodeOf) -> list[Observation]:
    """Return what `_of_proofs` does, of the states that one node alone ran in an attempt."""
    nodes_of: dict[tuple[int, int, Point], set[str]] = {}
    for run in runs:
        nodes_of.setdefault((run.part, run.attempt, run.point), set()).add(node_of(run))
    return [run for run in _of_proofs(runs, node_of) if len(nodes_of[run.part, run.attempt, run.point]) == 1]


def _extremes(runs: Iterable[Observation], rules: Rules) -> list[Observation]:
    """Return of each end the runs with the least and the greatest value."""
    found = []
    for point in (rules.good_point, rules.bad_point):
        at = [run for run in runs if run.point == point and run.attempt == 0 and run.outcome.value is not None]
        if at:
            found += [min(at, key=_value_of), max(at, key=_value_of)]
    return found


def _value_of(run: Observation) -> float:
    return run.outcome.value or 0.0


def _beside_candidates(plan: Plan, runs: Iterable[Observation]) -> list[Observation]:
    """Return the runs of the versions on both sides of the most probable changes that the answer leaves."""
    assert plan.answer is not None
    beside = {Point(idx + offset) for idx, _ in plan.answer.candidates[:MAX_CANDIDATES] for offset in (0, 1)}
    return [run for run in runs if run.point in beside and run.attempt == 0]
