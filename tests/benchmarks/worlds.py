"""The simulated worlds of the calibration: what each setting is, and which changes are true culprits.

N = 24 changes (index 0..23). Means are in seed standard deviations; the culprit shifts them by 3 to 10 where nothing else is
said. `null` settings have no culprit: whoever is named there is named wrongly, and so it is where the metric only drifts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.search.terms import Request
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind
from tests.support.simulated_regression import World

NUM_CHANGES = 24
GAPS = (3.0, 4.0, 6.0, 10.0)
SYMPTOM = "RuntimeError: boom"
NUM_NODES = 4
PROBES_PER_EPISODE = 10  # a node that is ill stays so for so many probes of the bisection
ILL_SHARE = 0.1


@dataclass
class Case:
    """One problem: a world, and the changes that make it worse."""

    world: World
    culprits: frozenset[int]


@dataclass
class TailedWorld(World):
    """Noise with the tails of Student's t with 3 degrees of freedom, scaled to unit spread."""

    def _outcome(self, request: Request) -> Outcome:
        noise = self._rng("tail", request.point.to_text(), request.seed_idx, request.attempt).standard_t(3) / math.sqrt(3.0)
        return _value_outcome(self.mean_of(request.point) + float(noise), request)


@dataclass
class SeedWorld(World):
    """Most of the noise is the seed's own, shared by all variants; `is_reversed` variants have it with the other sign."""

    is_reversed: Callable[[Point], bool] = lambda point: False
    shared_sd: float = 0.9

    def _outcome(self, request: Request) -> Outcome:
        shared = self.shared_sd * self._rng("seed", request.seed_idx).normal()
        own = math.sqrt(1.0 - self.shared_sd**2) * self._rng(request.point.to_text(), request.seed_idx).normal()
        sign = -1.0 if self.is_reversed(request.point) else 1.0
        return _value_outcome(self.mean_of(request.point) + sign * shared + own, request)


@dataclass
class NodeWorld(World):
    """Probes run on four nodes in turn; an ill node makes all its runs bad (by `ill_shift`, or failing) for ten probes.

    With `rates` a run fails with the rate of its side and shows no value of interest; with `logit_sd` every variant is off that
    rate by an amount of its own.
    """

    ill_shift: float = 0.0
    rates: tuple[float, float] | None = None
    logit_sd: float = 0.0
    ill_share: float = 0.0
    _num_runs: int = field(default=0, repr=False)

    def run(self, request: Request) -> Observation:
        """Return what a probe shows on the node whose turn it is."""
        node, episode = self._num_runs % NUM_NODES, self._num_runs // PROBES_PER_EPISODE
        is_ill = self._rng("ill", node, episode).random() < self.ill_share
        self._num_runs += 1
        found = super().run(request)
        if self.rates is not None:
            rate = self._rate_of(request.point, self.rates[self.mean_of(request.point) > 0.0])
            key = ("fails", request.point.to_text(), request.seed_idx, request.repeat)
            has_failed = is_ill or self._rng(*key).random() < rate
            outcome = (
                Outcome(OutcomeKind.FAILED, signature=SYMPTOM, reason=SYMPTOM) if has_failed else _value_outcome(0.0, request)
            )
            return replace(found, outcome=outcome)
        if is_ill and found.outcome.value is not None:
            return replace(found, outcome=_value_outcome(found.outcome.value + self.ill_shift, request))
        return found

    def _rate_of(self, point: Point, rate: float) -> float:
        """Return the variant's own rate, given that of its side."""
        if not self.logit_sd:
            return rate
        logit = math.log(rate / (1.0 - rate)) + self.logit_sd * float(self._rng("own rate", point.to_text()).normal())
        return 1.0 / (1.0 + math.exp(-logit))


def _value_outcome(value: float, request: Request) -> Outcome:
    digest = f"{request.point.to_text()}:{request.seed_idx}:{value!r}"
    return Outcome(OutcomeKind.MEASURED, value=float(value), digest=digest)


def _step(culprit: int, gap: float) -> Callable[[Point], float]:
    return lambda point: gap if point.holds(culprit) else 0.0


def _plan_of(seed: int) -> tuple[np.random.Generator, int, float]:
    rng = np.random.default_rng(7_000_000 + seed)
    return rng, int(rng.integers(NUM_CHANGES)), float(rng.choice(GAPS))


def _with_step(make: Callable[[int, int, float], World]) -> Callable[[int], Case]:
    def build(seed: int) -> Case:
        _, culprit, gap = _plan_of(seed)
        return Case(make(seed, culprit, gap), frozenset({culprit}))

    return build


def _without(make: Callable[[int], World]) -> Callable[[int], Case]:
    return lambda seed: Case(make(seed), frozenset())


def _unequal(seed: int, culprit: int, gap: float) -> World:
    """The bad side is three times as noisy; its shift is in its own spread."""
    world = World(mean_of=_step(culprit, 3.0 * gap), seed=seed)
    calm = world.run

    def run(request: Request) -> Observation:
        found = calm(request)
        value = found.outcome.value
        if value is None or not request.point.holds(culprit):
            return found
        mean = world.mean_of(request.point)
        return replace(found, outcome=_value_outcome(mean + 3.0 * (value - mean), request))

    world.run = run  # type: ignore[method-assign]
    return world


def _benign(seed: int, culprit: int, gap: float) -> World:
    """Ten more changes move the mean a little, up or down, by 0.3 each."""
    rng = np.random.default_rng(8_000_000 + seed)
    others = [idx for idx in range(NUM_CHANGES) if idx != culprit]
    steps = {int(idx): float(rng.choice((-0.3, 0.3))) for idx in rng.choice(others, 10, replace=False)}
    main = _step(culprit, gap)
    return World(mean_of=lambda point: main(point) + sum(size for idx, size in steps.items() if point.holds(idx)), seed=seed)


def _islands(seed: int) -> Case:
    """Good, bad, good, and bad again from the culprit on: an island of 2 to 5 versions, some versions before the culprit."""
    rng, _, gap = _plan_of(seed)
    length, space = int(rng.integers(2, 6)), int(rng.integers(1, 6))
    culprit = int(rng.integers(length + space, NUM_CHANGES))
    start = culprit - space - length

    def mean_of(point: Point) -> float:
        is_island = point.holds(start) and not point.holds(start + length)
        return gap if point.holds(culprit) or is_island else 0.0

    return Case(World(mean_of=mean_of, seed=seed), frozenset({culprit}))


def _broken_island(seed: int) -> Case:
    """A stretch that cannot run, an island right behind it, some good versions, and the culprit."""
    rng, _, gap = _plan_of(seed)
    length, broken, space = int(rng.integers(2, 6)), int(rng.integers(2, 6)), int(rng.integers(1, 5))
    culprit = int(rng.integers(length + broken + space, NUM_CHANGES))
    repaired = culprit - space
    works = repaired - length
    start = int(rng.integers(works - broken, works))

    def mean_of(point: Point) -> float:
        is_island = point.holds(start) and not point.holds(repaired)
        return gap if point.holds(culprit) or is_island else 0.0

    def is_broken(point: Point) -> bool:
        return point.holds(works - broken) and not point.holds(works)

    return Case(World(mean_of=mean_of, is_broken=is_broken, seed=seed), frozenset({culprit}))


def _drift(total: float) -> Callable[[Point], float]:
    return lambda point: total * sum(point.holds(idx) for idx in range(NUM_CHANGES)) / NUM_CHANGES


def _step_and_drift(seed: int, culprit: int, gap: float) -> World:
    main, rest = _step(culprit, gap), _drift(gap / 2.0)
    return World(mean_of=lambda point: main(point) + rest(point), seed=seed)


def _bits(seed: int, culprit: int, gap: float) -> World:
    """Runs repeat bitwise, and all other changes leave the bits alone."""
    return World(mean_of=_step(culprit, gap), class_of=lambda point: "bad" if point.holds(culprit) else "good", seed=seed)


def _flat(point: Point) -> float:
    return 0.0


# how a problem is built from its seed, by the name of the setting; the model's own problems first
SETTINGS: dict[str, Callable[[int], Case]] = {
    "clean": _with_step(lambda seed, culprit, gap: World(mean_of=_step(culprit, gap), seed=seed)),
    "bits": _with_step(_bits),
    "rates 0.05 and 0.9": _with_step(lambda s, c, gap: NodeWorld(mean_of=_step(c, gap), seed=s, rates=(0.05, 0.9))),
    "rates 0.1 and 0.7": _with_step(lambda s, c, gap: NodeWorld(mean_of=_step(c, gap), seed=s, rates=(0.1, 0.7))),
    "odd rates 0.1 and 0.7": _with_step(
        lambda s, c, gap: NodeWorld(mean_of=_step(c, gap), seed=s, rates=(0.1, 0.7), logit_sd=1.2)
    ),
    "heavy tails": _with_step(lambda seed, culprit, gap: TailedWorld(mean_of=_step(culprit, gap), seed=seed)),
    "5 % outliers": _with_step(lambda seed, c, gap: World(mean_of=_step(c, gap), seed=seed, outlier_share=0.05)),
    "unequal spread": _with_step(_unequal),
    "offsets 0.3": _with_step(lambda seed, c, gap: World(mean_of=_step(c, gap), seed=seed, offset_sd=0.3)),
    "offsets 0.6": _with_step(lambda seed, c, gap: World(mean_of=_step(c, gap), seed=seed, offset_sd=0.6)),
    "10 benign steps": _with_step(_benign),
    "islands": _islands,
    "broken stretch and island": _broken_island,
    "drift": _without(lambda seed: World(mean_of=_drift(8.0), seed=seed)),
    "step and drift": _with_step(_step_and_drift),
    "ill nodes: values": _with_step(
        lambda s, c, gap: NodeWorld(mean_of=_step(c, gap), seed=s, ill_shift=gap, ill_share=ILL_SHARE)
    ),
    "ill nodes: failures": _with_step(
        lambda s, c, gap: NodeWorld(mean_of=_step(c, gap), seed=s, rates=(0.02, 0.9), ill_share=ILL_SHARE)
    ),
    "shared seeds": _with_step(lambda seed, c, gap: SeedWorld(mean_of=_step(c, gap), seed=seed)),
    "broken pairing": _with_step(
        lambda seed, c, gap: SeedWorld(mean_of=_step(c, gap), seed=seed, is_reversed=lambda point: point.holds(c))
    ),
    "null": _without(lambda seed: World(mean_of=_flat, seed=seed)),
    "null: heavy tails": _without(lambda seed: TailedWorld(mean_of=_flat, seed=seed)),
    "null: offsets 0.6": _without(lambda seed: World(mean_of=_flat, seed=seed, offset_sd=0.6)),
    "null: failing at times": _without(lambda seed: NodeWorld(mean_of=_flat, seed=seed, rates=(0.2, 0.2))),
}
