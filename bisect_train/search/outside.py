"""Candidates around versions that cannot run: is the culprit among them at all?

A stretch that cannot be tested hides which of its changes did it, so nothing is put to the proof, and a history that was bad
behind the stretch, good again, and bad for another reason in the end would be answered with the wrong candidates. One
comparison tells: the bad end without the whole set of candidates, and without the rest of the stretches that they lie in.

    healthy            the set holds a culprit
    still bad          it does not, or there is another: what these runs say counts against every change of the set, the search
                       goes on, and the set stays in the answer
    cannot be built    a few versions behind the set are run in its place, those in the longest stretches without a verdict

These runs belong to the search. At most MAX_SETS sets are tested, by at most MAX_RUNS_OF_SET runs each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from bisect_train.core.changes import Point, make_point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.islands import DECIDED, MIN_UNSEEN, spread_versions
from bisect_train.search.terms import Answer, Known, Phase, Plan, Request, Rules
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation

MIN_SET = 2
MAX_SETS = 3
MAX_RUNS_OF_SET = 3
MAX_VERSIONS_BEHIND = 4

Sets = Mapping[tuple[int, ...], Evidence]


def judged_sets(rules: Rules, known: Known, ends: Ends) -> dict[tuple[int, ...], Evidence]:
    """Return what the bad end without a set of changes shows, by set."""
    runs_of: dict[tuple[int, ...], list[Observation]] = {}
    for run in known.observations:
        point = run.point
        if run.attempt == 0 and point.prefix == rules.num_changes and len(point.minus) >= MIN_SET:
            runs_of.setdefault(point.minus, []).append(run)
    return {without: judge_variant(runs, ends, rules.ends.metric) for without, runs in sorted(runs_of.items())}


def doubts_of_sets(sets: Sets) -> dict[int, float]:
    """Return what these runs say against changes: with the culprit in the set it would have been healthy. Nats (<= 0)."""
    doubts: dict[int, float] = {}
    for without, item in sets.items():
        if item.nats > 0:
            doubts |= {idx: doubts.get(idx, 0.0) - item.nats for idx in without}
    return doubts


def check_candidates(rules: Rules, known: Known, plan: Plan) -> Plan:
    """Return the plan with its candidates tested as a set, or the runs that this needs.

    Args:
        rules, known: of one range.
        plan: of its search, with the answer.
    """
    answer = plan.answer
    if answer is None or answer.status != "candidates" or not answer.candidates:
        return plan
    sets = judged_sets(rules, known, plan.ends)
    broken = _broken_versions(rules, known, plan)
    chosen = _with_whole_stretches({idx for idx, _ in answer.candidates}, broken)
    if not (sets or any(version - 1 in chosen and version in chosen for version in broken)):
        return plan
    point = make_point(rules.num_changes, minus=chosen)
    has_run_out = chosen not in sets and len(sets) >= MAX_SETS
    if point.prefix == rules.num_changes and len(chosen) >= MIN_SET and not has_run_out:
        if point in known.unbuildable:
            return _look_behind(rules, known, plan, chosen)
        num = sum(run.point == point and run.attempt == 0 for run in known.observations)
        is_open = chosen not in sets or sets[chosen].verdict not in (VerdictKind.GOOD, VerdictKind.UNTESTABLE)
        if is_open and num < MAX_RUNS_OF_SET:
            return replace(plan, phase=Phase.SEARCH, wanted=(Request(point, num),), answer=None)
        if sets[chosen].verdict is VerdictKind.UNTESTABLE:
            return _look_behind(rules, known, plan, chosen)
    return replace(plan, answer=_with_sets(plan, answer, sets, chosen))


def _broken_versions(rules: Rules, known: Known, plan: Plan) -> set[int]:
    """Return the versions between the ends that are known not to run."""
    broken = {version for version, item in plan.evidence.items() if item.verdict is VerdictKind.UNTESTABLE}
    broken |= rules.skipped | {point.prefix for point in known.unbuildable if point.is_prefix}
    return {version for version in broken if 0 < version < rules.num_changes}


def _with_whole_stretches(chosen: set[int], broken: Collection[int]) -> tuple[int, ...]:
    """Return changes, with those that no version tells from them: nothing between the two can run."""
    closed = set(chosen)
    for idx in chosen:
        for step, edge in ((1, 1), (-1, 0)):
            other = idx
            while other + edge in broken:  # version k lies between the changes k - 1 and k
                other += step
                closed.add(other)
    return tuple(sorted(closed))


def _look_behind(rules: Rules, known: Known, plan: Plan, chosen: tuple[int, ...]) -> Plan:
    """Return the plan with versions behind the candidates to run, or with an answer that says what could not be tested."""
    first, last = chosen[-1] + 1, rules.num_changes
    judged = [version for version, item in plan.evidence.items() if first < version < last and item.verdict in DECIDED]
    free = [
        version
        for version in range(first, last)
        if version not in {*plan.evidence, *rules.skipped, *known.marks} and Point(version) not in known.unbuildable
    ]
    num = MAX_VERSIONS_BEHIND - len(judged)
    wanted = spread_versions([first, *judged, last], free, longest=MIN_UNSEEN, num=num)
    if wanted:
        return replace(plan, phase=Phase.SEARCH, wanted=tuple(Request(Point(version), 0) for version in wanted), answer=None)
    assert plan.answer is not None
    said = "the bad end without all of them cannot be run, so that the culprit may lie elsewhere"
    return replace(plan, answer=replace(plan.answer, reason=f"{plan.answer.reason}; {said}"))


def _with_sets(plan: Plan, answer: Answer, sets: Sets, chosen: tuple[int, ...]) -> Answer:
    """Return the answer with every set without which the bad end stayed bad, and what was seen of its own."""
    stayed_bad = {idx for without, item in sets.items() if item.verdict is VerdictKind.BAD for idx in without}
    every = {*chosen, *stayed_bad}
    ranked = sorted(((idx, plan.posterior[idx]) for idx in every), key=lambda pair: (-pair[1], pair[0]))
    verdict = sets[chosen].verdict if chosen in sets else None
    said = {
        VerdictKind.GOOD: "without all of them the bad end is healthy",
        VerdictKind.BAD: "without all of them the bad end is still bad: at least one other change makes it worse too",
    }
    reason = f"{answer.reason}; {said[verdict]}" if verdict in said else answer.reason
    return replace(answer, candidates=tuple(ranked), reason=reason)
