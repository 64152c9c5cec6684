"""Nights without a training: commits are numbers, a world says what each trains to, the real rules prove the ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bisect_train.core.changes import Point
from bisect_train.core.errors import NotDelivered, UnbuildableError
from bisect_train.core.question import Metric
from bisect_train.nightly.finding import Finding, FoundChange
from bisect_train.nightly.night import NightReport, Watchman, run_night
from bisect_train.nightly.state import WatchState, read_state
from bisect_train.nightly.terms import Compared, Comparison, History, Level, Role, Standing, Tonight
from bisect_train.store.nightly_contract import NightlyLog
from bisect_train.store.nightly_memory import MemoryNightlyLog
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind

METRIC = Metric("loss")
WATCH = "main"
FIRST_MADE = 1_000_000_000
STANDINGS = {
    EndsStatus.SAME: Standing.SAME,
    EndsStatus.BETTER: Standing.SAME,
    EndsStatus.SEPARATED: Standing.WORSE,
    EndsStatus.GOOD_UNTESTABLE: Standing.UNTESTABLE,
    EndsStatus.BAD_UNTESTABLE: Standing.UNTESTABLE,
}


def name_of(idx: int) -> str:
    """Return the 40 digits of commit number `idx`."""
    return f"{idx:08x}" * 5


def idx_of(commit: str) -> int:
    return int(commit[:8], 16)


class Killed(BaseException):
    """The night was killed here."""


@dataclass
class World:
    """What commits train to.

    Attributes:
        level_of: loss of a commit, in seed standard deviations.
        noise: standard deviation of a run.
        seed_noise: of what a seed adds to all commits.
        commit_noise: of what a commit adds to all its runs.
        is_broken: whether a commit cannot be run.
        is_copy: whether a commit has the bits of the one before it.
        on_top: level of a commit with changes on top, given both; changes add up unless this says otherwise.
    """

    level_of: Callable[[int], float] = lambda idx: 0.0
    noise: float = 1.0
    seed_noise: float = 0.0
    commit_noise: float = 0.0
    is_broken: Callable[[int], bool] = lambda idx: False
    is_copy: Callable[[int], bool] = lambda idx: False
    on_top: Callable[[int, tuple[int, ...]], float] | None = None
    seed: int = 0
    made: dict[int, float] = field(default_factory=dict)

    def put_on_top(self, commit: str, changes: tuple[str, ...]) -> str:
        """Return a commit that nobody committed."""
        idx, added = idx_of(commit), tuple(map(idx_of, changes))
        made = FIRST_MADE + len(self.made)
        by_sum = self.level_of(idx) + sum(self.level_of(change) - self.level_of(change - 1) for change in added)
        self.made[made] = self.on_top(idx, added) if self.on_top else by_sum
        return name_of(made)

    def run(self, idx: int, seed_idx: int) -> Outcome:
        """Return what a run shows; the same run gives the same."""
        if self.is_broken(idx):
            return Outcome(OutcomeKind.UNTESTABLE, reason="it does not start")
        origin = idx
        while self.is_copy(origin):
            origin -= 1
        noise = np.random.default_rng([self.seed, origin, seed_idx]).normal()
        of_seed = np.random.default_rng([self.seed, 1_000_000, seed_idx]).normal()
        of_commit = np.random.default_rng([self.seed, 2_000_000, origin]).normal()
        level = self.made[origin] if origin in self.made else self.level_of(origin)
        value = level + self.noise * noise + self.seed_noise * of_seed + self.commit_noise * of_commit
        return Outcome(OutcomeKind.MEASURED, value=value, digest=f"{origin}:{seed_idx}")


@dataclass
class Place:
    """A place that is told; `fails` makes it be down."""

    id: str = "place"
    got: list[Finding] = field(default_factory=list)
    earlier: list[dict[str, Any] | None] = field(default_factory=list)
    fails: bool = False

    @property
    def name(self) -> str:
        return f"the {self.id}"

    def tell(self, finding: Finding, *, earlier: dict[str, Any] | None) -> dict[str, Any]:
        if self.fails:
            raise NotDelivered("it is down")
        self.got.append(finding)
        self.earlier.append(earlier)
        return {"how": "sent", "place": str(len(self.got))}

    def said(self) -> list[tuple[str, str]]:
        """Return state and kind of what was told, repeats of a key once."""
        by_key = {finding.key: (finding.state.value, finding.kind.value) for finding in self.got}
        return list(by_key.values())


class Commits:
    """A history in one line."""

    def is_ancestor(self, commit: str, of: str) -> bool:
        return idx_of(commit) <= idx_of(of)


@dataclass
class Runs:
    """Compares commits of a world by the real rules for the ends; what is worse is blamed on the last step between them."""

    world: World
    min_effect: float | None = None
    max_seeds: int = 8
    asked: list[Comparison] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    can_prove: bool = True
    can_put_on_top: bool = False
    report_of: Callable[[Comparison], dict[str, Any] | None] = lambda comparison: None

    def measure(self, commit: str) -> tuple[Level | None, str]:
        return self._level(commit, 5), f"{commit[:8]} repeats itself"

    def ask(self, comparison: Comparison) -> str:
        if comparison.meant and not self.can_put_on_top:
            raise UnbuildableError("the changes touch the same lines")
        if comparison not in self.asked:
            self.asked.append(comparison)
        return f"{self.asked.index(comparison):08x}"

    def answer(self, comparison: Comparison, bisection: str) -> Compared:
        self.answered.append(bisection)
        return self._compared(comparison, bisection)

    def look_again(self, comparison: Comparison, bisection: str) -> Compared | None:
        return self._compared(comparison, bisection)

    def _compared(self, comparison: Comparison, bisection: str) -> Compared:
        good, bad = comparison.good, comparison.bad
        if comparison.meant:
            good = self.world.put_on_top(good, comparison.meant)
            bad = self.world.put_on_top(bad, comparison.meant) if comparison.role is Role.MEASURE else bad
        ends = self.prove(good, bad)
        standing = STANDINGS.get(ends.status, Standing.UNCLEAR)
        level = None if standing is Standing.UNTESTABLE else self._level(comparison.bad, len(ends.bad_values))
        report = self.report_of(comparison)
        made = Compared(bisection, standing, f"{comparison.role.value}: {ends.status.value}", ends.bound, level, report=report)
        if standing is not Standing.WORSE or comparison.is_ends_only:
            return made
        named = self._last_step(comparison) if self.can_prove else None
        if named is None:
            again = self.prove(comparison.good, comparison.bad, first_seed=100_000 + 100 * idx_of(comparison.bad))
            is_again = again.status is EndsStatus.SEPARATED  # what is not proved must show on other seeds, too
            return made if is_again else replace(made, standing=Standing.UNCLEAR)
        commit = name_of(named)
        culprit = FoundChange("commit", commit, f"commit {named}")
        return replace(made, culprits=(culprit,), is_confirmed=True, before=name_of(named - 1))

    def _last_step(self, comparison: Comparison) -> int | None:
        """Return the last commit that takes the level over half of the gap in one step, None without one."""
        good, bad = idx_of(comparison.good), idx_of(comparison.bad)
        level_of = self.world.level_of
        half = 0.5 * (level_of(bad) - level_of(good))
        over = [idx for idx in range(good + 1, bad + 1) if level_of(idx - 1) <= level_of(good) + half < level_of(idx)]
        return over[-1] if half > 0.0 and over and level_of(over[-1]) - level_of(over[-1] - 1) > half else None

    def prove(self, good: str, bad: str, *, first_seed: int = 0) -> Ends:
        """Return the proved ends of two commits, on seeds from one on."""
        rules = EndRules(METRIC, min_effect=self.min_effect, max_seeds=self.max_seeds)
        runs: dict[bool, list[Observation]] = {False: [], True: []}
        while True:
            ends = prove_ends(runs[False], runs[True], rules)
            if ends.status is not EndsStatus.OPEN:
                return ends
            for wanted in ends.wanted:
                outcome = self.world.run(idx_of(bad if wanted.is_bad else good), first_seed + wanted.seed_idx)
                point = Point(1 if wanted.is_bad else 0)
                runs[wanted.is_bad].append(Observation(point, wanted.seed_idx, wanted.repeat, 0, -1, outcome))

    def _level(self, commit: str, num_seeds: int) -> Level:
        outcomes = {idx: self.world.run(idx_of(commit), idx) for idx in range(max(3, num_seeds))}
        values = {idx: outcome.value for idx, outcome in outcomes.items() if outcome.value is not None}
        bits = {idx: outcome.digest for idx, outcome in outcomes.items()}
        return Level(commit, "one", "loss", "", 1, values, bits, self.min_effect or self.world.noise)


@dataclass
class Nights:
    """A watch of a world, night after night."""

    world: World
    log: NightlyLog = field(default_factory=lambda: MemoryNightlyLog(clock=lambda: 0.0))
    place: Place = field(default_factory=Place)
    runs: Runs = field(default_factory=lambda: Runs(World()))
    pinned: int | None = None
    pinned_every: int = 1
    history: History = field(default_factory=Commits)

    def __post_init__(self) -> None:
        self.runs.world = self.world
        self.log.open(WATCH, {})

    @property
    def state(self) -> WatchState:
        return read_state(self.log.events(WATCH))

    def night(self, newest: int, **more: Any) -> NightReport:
        """Run a night with this newest commit."""
        man = Watchman(self.log, self.runs, self.history, [self.place], lambda: 0.0)
        pinned = "" if self.pinned is None else name_of(self.pinned)
        tonight = Tonight(WATCH, "repo", "main", name_of(newest), pinned, self.pinned_every, more.pop("asked", "x"))
        return run_night(man, tonight, **more)

    def expect(self, idx: int, reason: str = "") -> None:
        self.log.append(WATCH, [("expected", {"commit": name_of(idx), "reason": reason})])
