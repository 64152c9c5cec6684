"""What the next run of a version costs: nothing where another bisection has run it and its result may be taken over, more where
packages must be laid out first that no probe has had yet. How much more is learnt from the probes so far.

The costs are no part of what is stored. They only move the choice among versions that are worth a run, so a plan that is
rebuilt from the observations alone has the same belief and the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.coordinator.observing import request_of
from bisect_train.core.changes import ChangeKind, Point
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.probe import ProbeSpec
from bisect_train.core.question import Question
from bisect_train.search.line import OBSOLETE_MASS
from bisect_train.search.terms import Known, Plan, Request
from bisect_train.store.contract import Store

MAX_LOOKUPS = 512  # versions in question, at most: in a longer range results are looked up once it is narrowed to so many
UNKNOWN_BUILD_COST = (
    2.0  # of a first run in an environment, in units of a later one, until both were seen; chosen, not measured
)


class Costs:
    """Says which versions another bisection has run, each run looked up once, and which need packages that no probe has had.

    Args:
        question: what was asked.
        bisection_id: this bisection.
        space: the question's changes.
        store: where results lie.
        knowledge: says under which key, and whether a result may be taken over.
    """

    def __init__(
        self, question: Question, *, bisection_id: str, space: ChangeSpace, store: Store, knowledge: Knowledge
    ) -> None:
        self._question = question
        self._space = space
        self._knowledge = knowledge
        self._has_result: dict[str, bool] = {}
        self._environments: dict[Point, tuple[str, ...] | None] = {}
        self._can_reuse = question.limits.reuse and any(stored.id != bisection_id for stored in store.page(limit=2))
        has_packages = any(change.kind is ChangeKind.PACKAGE for change in space.changes)
        self._has_environments = has_packages or bool(question.settings.environment.files)

    def of(self, plan: Plan, known: Known) -> dict[int, float]:
        """Return the cost of the next run of each version in question that is not that of a typical one, in units of that.

        Args:
            plan: of the search, with its posterior.
            known: what the plan was made from.
        """
        below = np.cumsum(plan.posterior)[:-1]
        versions = (np.flatnonzero((below > OBSOLETE_MASS) & (below < 1.0 - OBSOLETE_MASS)) + 1).tolist()
        if len(versions) > MAX_LOOKUPS:
            return {}
        taken: dict[int, set[int]] = {}
        begun = [*map(request_of, known.observations), *known.in_flight]
        for request in begun:
            if request.attempt == 0 and request.point.is_prefix:
                taken.setdefault(request.point.prefix, set()).add(request.seed_idx)
        costs = self._costs_of_builds(versions, begun) if self._has_environments else {}
        if self._can_reuse:
            costs |= {version: 0.0 for version in versions if self._is_known(version, taken.get(version, set()))}
        return costs

    def _costs_of_builds(self, versions: Sequence[int], begun: Sequence[Request]) -> dict[int, float]:
        """Return the cost of each version whose packages no probe has had yet."""
        used = {self._environment_of(request.point) for request in begun}
        new = [version for version in versions if self._environment_of(Point(version)) not in used]
        return dict.fromkeys(new, self._build_cost()) if new else {}

    def _environment_of(self, point: Point) -> tuple[str, ...] | None:
        """Return the packages that are laid for a point; None where it cannot be built."""
        if point not in self._environments:
            try:
                self._environments[point] = self._space.variant(point).packages
            except UnbuildableError:
                self._environments[point] = None
        return self._environments[point]

    def _build_cost(self) -> float:
        """Return how much longer the first run in an environment takes than later ones, by the medians of those so far."""
        firsts: list[float] = []
        others: list[float] = []
        seen: set[tuple[str, ...] | None] = set()
        for point, wall_s in self._knowledge.durations():
            environment = self._environment_of(point)
            (others if environment in seen else firsts).append(wall_s)
            seen.add(environment)
        if not firsts or not others:
            return UNKNOWN_BUILD_COST
        return max(1.0, median(firsts) / max(median(others), 1e-9))

    def _is_known(self, version: int, taken: set[int]) -> bool:
        request = Request(Point(version), next(idx for idx in range(len(taken) + 1) if idx not in taken))
        try:
            variant = self._space.variant(request.point)
        except UnbuildableError:
            return False
        key = self._knowledge.key_of(request, ProbeSpec(variant, self._question.rung, request.seed_idx, request.repeat))
        if key not in self._has_result:
            self._has_result[key] = self._knowledge.has_result(key)
        return self._has_result[key]
