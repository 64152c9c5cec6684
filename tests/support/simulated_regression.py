"""A simulated world for the search: variants with true means, offsets, seeds, bitwise classes, broken stretches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Answer, Known, Plan, Request, Rules
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind


@dataclass
class World:
    """`mean_of` gives a point's true mean in seed sd; `class_of` its bitwise class (None: unlike any other point)."""

    mean_of: Callable[[Point], float]
    offset_sd: float = 0.0
    noise_sd: float = 1.0
    seed_sd: float = 0.0  # of what the same seed adds to every variant
    outlier_share: float = 0.0
    is_broken: Callable[[Point], bool] = lambda point: False
    signature_of: Callable[[Point], str] = lambda point: ""
    failure_rate_of: Callable[[Point], float] = lambda point: 1.0  # of points with a signature
    class_of: Callable[[Point], str | None] = lambda point: None
    repeats_bitwise: bool = True
    unbuildable: dict[Point, str] = field(default_factory=dict)
    seed: int = 0

    def run(self, request: Request) -> Observation:
        """Return what a probe at this request shows; the same request gives the same result."""
        return Observation(
            request.point,
            request.seed_idx,
            request.repeat,
            request.attempt,
            request.proof_of,
            self._outcome(request),
            request.part,
        )

    def _outcome(self, request: Request) -> Outcome:
        point = request.point
        if self.is_broken(point):
            return Outcome(OutcomeKind.FAILED, signature="ImportError: broken", reason="ImportError")
        signature = self.signature_of(point)
        if signature and self._rng("failure", request).random() < self.failure_rate_of(point):
            return Outcome(OutcomeKind.FAILED, signature=signature, reason=signature)
        cls = self.class_of(point) or point.to_text()
        rng = self._rng(cls, request.seed_idx)
        value = self.mean_of(point) + self.offset_sd * self._rng("offset", cls).normal() + self.noise_sd * rng.normal()
        value += self.seed_sd * self._rng("seed", request.seed_idx).normal()
        if self.outlier_share and self._rng("outlier", cls, request.seed_idx).random() < self.outlier_share:
            value += 20 * self._rng("size", cls, request.seed_idx).normal()
        again = "" if self.repeats_bitwise else f":{request.repeat}"
        return Outcome(OutcomeKind.MEASURED, value=value, digest=f"{cls}:{request.seed_idx}{again}")

    def _rng(self, *key: object) -> np.random.Generator:
        text = f"{self.seed}/" + "/".join(map(str, key))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def step_world(num_changes: int, culprit: int, gap: float, **more: object) -> World:
    """Return a world with one culprit (index from 0) that shifts the mean by `gap`; every version has its own bits."""
    return World(mean_of=lambda point: gap if point.holds(culprit) else 0.0, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Solved:
    """How a simulated bisection ended and what it cost."""

    answer: Answer
    plan: Plan
    num_probes: int
    num_rounds: int
    num_attempts: int = 0


def solve(world: World, rules: Rules, *, slots: int = 2, max_probes: int = 600) -> Solved:
    """Run a bisection in rounds: all wanted probes of a round finish before the next plan."""
    observations: list[Observation] = []
    unbuildable: dict[Point, str] = {}
    num_rounds = 0
    while len(observations) < max_probes:
        plan = make_plan(rules, Known(observations, unbuildable, (), slots))
        if plan.answer is not None:
            attempts = {run.attempt for run in observations} - {0}
            return Solved(plan.answer, plan, len(observations), num_rounds, len(attempts))
        assert plan.wanted, "a plan without an answer must want something"
        num_rounds += 1
        for request in plan.wanted[:slots]:
            if request.point in world.unbuildable:
                unbuildable[request.point] = world.unbuildable[request.point]
            else:
                observations.append(world.run(request))
    raise AssertionError(f"no answer after {max_probes} probes")
