"""What the next run of a version costs: nothing where another bisection has run it, and its result may be taken over.

The costs are no part of what is stored. They only move the choice among versions that are worth a run, so a plan that is
rebuilt from the observations alone has the same belief and the same answer.
"""

from __future__ import annotations

import numpy as np

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.coordinator.observing import request_of
from bisect_train.core.changes import Point
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.probe import ProbeSpec
from bisect_train.core.question import Question
from bisect_train.search.line import OBSOLETE_MASS
from bisect_train.search.terms import Known, Plan, Request
from bisect_train.store.contract import Store

MAX_LOOKUPS = 512  # versions in question, at most: in a longer range results are looked up once it is narrowed to so many


class Costs:
    """Looks up which versions another bisection has run; each run once.

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
        self._can_reuse = question.limits.reuse and any(stored.id != bisection_id for stored in store.list())

    def of(self, plan: Plan, known: Known) -> dict[int, float]:
        """Return 0 for each version that is still in question and whose next run is known already; {} where there is none.

        Args:
            plan: of the search, with its posterior.
            known: what the plan was made from.
        """
        below = np.cumsum(plan.posterior)[:-1]
        versions = np.flatnonzero((below > OBSOLETE_MASS) & (below < 1.0 - OBSOLETE_MASS)) + 1
        if not self._can_reuse or len(versions) > MAX_LOOKUPS:
            return {}
        taken: dict[int, set[int]] = {}
        begun = [*map(request_of, known.observations), *known.in_flight]
        for request in begun:
            if request.attempt == 0 and request.point.is_prefix:
                taken.setdefault(request.point.prefix, set()).add(request.seed_idx)
        return {version: 0.0 for version in versions.tolist() if self._is_known(version, taken.get(version, set()))}

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
