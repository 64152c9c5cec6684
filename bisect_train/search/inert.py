"""The search of a line in which some changes are inert: the program reads nothing of them.

Versions that only inert changes part are one program under several names, here a *group*. The line is searched with one version
for each group: its runs are pooled, a run of the same seed that two of its versions had counts once, and nothing is run twice.
An inert change is still doubted and not denied: it keeps at most a thousandth of the belief in a change that is not, and all of
them together a thousandth of everything, which no run can raise.

A group whose own runs disagree (one version good and another bad, or other bits where runs repeat) was no group: what the
program reads was not all known. Then none of its changes is taken for inert. So it is where one group holds both ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.search.line import Belief, Line, search_line
from bisect_train.search.terms import Known, Request, Rules
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.evidence import MAX_NATS, judge_variant
from bisect_train.verdict.outcome import Observation

INERT_SHARE = 0.001  # as much as no single probe outweighs: ln 1000


@dataclass(frozen=True, slots=True)
class Groups:
    """Versions 0..N in groups.

    Attributes:
        num_changes: N.
        kept: indices of the changes that are not inert, in order; group g begins right after change kept[g - 1].
    """

    num_changes: int
    kept: tuple[int, ...]

    @staticmethod
    def of(num_changes: int, inert: Iterable[int]) -> Groups:
        """Return the groups that inert changes make."""
        found = frozenset(inert)
        return Groups(num_changes, tuple(idx for idx in range(num_changes) if idx not in found))

    @property
    def num_groups(self) -> int:
        """How many there are; the first holds version 0, the last version N."""
        return len(self.kept) + 1

    def group_of(self, version: int) -> int:
        """Return the group of a version."""
        return bisect_left(self.kept, version)

    def versions_of(self, group: int) -> range:
        """Return the versions of a group."""
        first = self.kept[group - 1] + 1 if group else 0
        last = self.kept[group] if group < len(self.kept) else self.num_changes
        return range(first, last + 1)


def trusted_inert(line: Line, rules: Rules, known: Known, ends: Ends) -> frozenset[int]:
    """Return the inert changes without those of groups that contradict themselves."""
    inert = frozenset(idx for idx in known.inert if 0 <= idx < line.num_changes)
    if not inert:
        return inert
    groups = Groups.of(line.num_changes, inert)
    runs_of: dict[int, dict[int, list[Observation]]] = {}
    for run in known.observations:
        if (version := line.version_at(run.point)) is not None:
            runs_of.setdefault(groups.group_of(version), {}).setdefault(version, []).append(run)
    marked = {group: version for version in line.marks for group in [groups.group_of(version)]}
    broken = set()
    for group in {*runs_of, *marked, 0, groups.num_groups - 1}:
        versions = groups.versions_of(group)
        if len(versions) > 1 and _is_contradicted(versions, runs_of.get(group, {}), line, rules, ends):
            broken |= {*versions[:-1]}
    return inert - broken


def _is_contradicted(
    versions: range, runs_of: Mapping[int, Sequence[Observation]], line: Line, rules: Rules, ends: Ends
) -> bool:
    kinds = {judge_variant(list(runs), ends, rules.ends.metric).verdict for runs in runs_of.values()}
    kinds |= {line.marks[version] for version in versions if version in line.marks}
    kinds |= {VerdictKind.GOOD} if 0 in versions else set()
    kinds |= {VerdictKind.BAD} if line.num_changes in versions else set()
    if {VerdictKind.GOOD, VerdictKind.BAD} <= kinds:
        return True
    good_digests = ends.good_digests if rules.good_is_base else {}
    at_ends = {0: good_digests, line.num_changes: ends.bad_digests}
    return ends.do_bits_repeat and _has_other_bits(runs_of, [at_ends[end] for end in at_ends if end in versions])


def _has_other_bits(runs_of: Mapping[int, Sequence[Observation]], at_ends: Sequence[Mapping[int, str]]) -> bool:
    """Return whether two versions, or one and an end in its group, showed different bits on one seed."""
    digests: dict[int, set[str]] = {}
    for run in (run for runs in runs_of.values() for run in runs):
        if run.outcome.digest and not run.outcome.is_early:
            digests.setdefault(run.seed_idx, set()).add(run.outcome.digest)
    for known in at_ends:
        for seed_idx, digest in known.items():
            digests.setdefault(seed_idx, set()).update({digest} - {""})
    return any(len(found) > 1 for found in digests.values())


def search_without_inert(line: Line, rules: Rules, known: Known, ends: Ends) -> Belief:
    """Return the belief over a line of versions k = `Point(k)` and the runs that it wants, none of them for an inert change."""
    inert = trusted_inert(line, rules, known, ends)
    if not inert:
        return search_line(line, rules, known, ends)
    belief = _Folded(line, known, Groups.of(line.num_changes, inert)).search(rules, ends)
    return replace(belief, inert=inert)


class _Folded:
    """A line with one version for each group, and the way back."""

    def __init__(self, line: Line, known: Known, groups: Groups) -> None:
        self._line = line
        self._known = known
        self._groups = groups
        self._unbuildable = {point.prefix for point in known.unbuildable if point.is_prefix}
        self._has_run = {run.point.prefix for run in known.observations if self._is_inside(run.point)}
        self._has_run |= {request.point.prefix for request in known.in_flight if self._is_inside(request.point)}
        self._begun: dict[Request, Request] = {}
        self._stands: dict[int, int] = {}

    def search(self, rules: Rules, ends: Ends) -> Belief:
        """Search the groups, and say what was found of the versions."""
        line, groups = self._folded_line(), self._groups
        known = replace(
            self._known, observations=self._folded_runs(), in_flight=self._folded_requests(), unbuildable={}, inert=frozenset()
        )
        belief = search_line(line, rules, known, ends)
        share = min(1.0 / len(groups.kept), 1.0 / max(1, groups.num_changes - len(groups.kept))) * INERT_SHARE
        posterior = np.full(groups.num_changes, share)
        rest = 1.0 - share * (groups.num_changes - len(groups.kept))
        posterior[list(groups.kept)] = np.asarray(belief.posterior) * rest
        evidence = self._evidence_of_ends()
        for group, item in belief.evidence.items():
            run = self._version_for(group)
            for version in groups.versions_of(group):
                evidence[version] = item if version == run else replace(item, num_runs=0, reason=_say_same(run))
        wanted = tuple(self._unfolded(request) for request in belief.wanted)
        return Belief(tuple(posterior.tolist()), dict(sorted(evidence.items())), wanted, belief.num_judged)

    def _evidence_of_ends(self) -> dict[int, Evidence]:
        """Return what the ends say of the versions in their groups; like a person's mark it rests on no run of its own."""
        first, last = (self._groups.versions_of(group) for group in (0, self._groups.num_groups - 1))
        good = {version: Evidence(VerdictKind.GOOD, -MAX_NATS, 0, _say_same(0)) for version in first[1:]}
        bad = {version: Evidence(VerdictKind.BAD, MAX_NATS, 0, _say_same(self._line.num_changes)) for version in last[:-1]}
        return good | bad

    def _folded_line(self) -> Line:
        line, groups = self._line, self._groups
        place = {idx: num for num, idx in enumerate(groups.kept)}
        inside = range(1, groups.num_groups - 1)
        blocked = {*line.skipped, *self._unbuildable}
        touched = {groups.group_of(version) for version in blocked if 0 < version < line.num_changes}
        return Line(
            num_changes=len(groups.kept),
            point_of=Point,
            skipped=frozenset(group for group in touched if group in inside and blocked.issuperset(groups.versions_of(group))),
            doubts={place[idx]: nats for idx, nats in line.doubts.items() if idx in place},
            marks={group: mark for version, mark in line.marks.items() if (group := groups.group_of(version)) in inside},
            costs={
                group: line.costs.get(self._version_for(group), 1.0)
                for group in {groups.group_of(version) for version in line.costs}
                if group in inside
            },
        )

    def _folded_runs(self) -> list[Observation]:
        """Return the runs of groups between the ends; of those that two versions had in common the first counts."""
        found: dict[tuple[int, int, int, int], Observation] = {}
        for run in self._known.observations:
            group = self._group_at(run.point)
            if group is not None:
                found.setdefault((group, run.attempt, run.seed_idx, run.repeat), replace(run, point=Point(group)))
        return list(found.values())

    def _folded_requests(self) -> list[Request]:
        for request in sorted(self._known.in_flight):
            group = self._group_at(request.point)
            if group is not None:
                self._begun.setdefault(replace(request, point=Point(group)), request)
        return list(self._begun)

    def _unfolded(self, request: Request) -> Request:
        """Return a request of a group as one of the version that stands for it; a running one as it was begun."""
        return self._begun.get(request) or replace(request, point=Point(self._version_for(request.point.prefix)))

    def _version_for(self, group: int) -> int:
        """Return the version that stands for a group: one that has runs, or whose result is there already, else the first."""
        if group not in self._stands:
            self._stands[group] = self._choose(self._groups.versions_of(group))
        return self._stands[group]

    def _choose(self, versions: range) -> int:
        usable = [version for version in versions if version not in self._unbuildable and version not in self._line.skipped]
        with_runs = [version for version in versions if version in self._has_run]
        free = [version for version in usable if self._line.costs.get(version, 1.0) == 0.0]
        best = with_runs or free or usable or versions
        return best[0]

    def _group_at(self, point: Point) -> int | None:
        if not self._is_inside(point):
            return None
        group = self._groups.group_of(point.prefix)
        return group if 0 < group < self._groups.num_groups - 1 else None

    def _is_inside(self, point: Point) -> bool:
        return self._line.version_at(point) is not None


def _say_same(version: int) -> str:
    return f"as version {version}: the program reads nothing of what changed between them"
