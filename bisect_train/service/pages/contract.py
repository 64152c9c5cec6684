"""What the pages need: stored bisections and their reports, what runs now, and what a person may do. The service gives it.

The pages compute nothing about a bisection themselves; they read through this and show. `app.state.pages` holds a `PageSetup`.
Calls may block; the pages make them outside of the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from starlette.requests import Request

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.observing import StoredState
from bisect_train.core.question import Question
from bisect_train.report.parts import ReportData
from bisect_train.search.terms import Plan
from bisect_train.store.contract import Store, StoredBisection


class Opened(Protocol):
    """A stored bisection rebuilt from its observations."""

    @property
    def stored(self) -> StoredBisection:
        """As stored."""

    @property
    def question(self) -> Question:
        """What was asked, with the limits and the rung that are in force."""

    @property
    def space(self) -> ChangeSpace:
        """Its changes."""

    @property
    def state(self) -> StoredState:
        """What was observed."""

    @property
    def plan(self) -> Plan:
        """What these observations lead to."""


@dataclass(frozen=True, slots=True)
class RunInFlight:
    """A probe that runs now.

    Attributes:
        key: identity of the probe.
        point: the set of changes, as `Point.to_text` writes it.
        seed_idx, repeat: which run of it; None where that is not known.
        phase: checkout, setup, run or judge; "" where it is not known.
        steps, losses: its curve so far, one loss for each step that was seen.
        why: `ends`, `search` or `proof`; "" where it is not known.
    """

    key: str
    point: str
    seed_idx: int | None = None
    repeat: int = 0
    phase: str = ""
    steps: tuple[int, ...] = ()
    losses: tuple[float | None, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A bisection that waits for its turn: its place from 1, and why it waits (a limit that is reached), or ""."""

    bisection_id: str
    title: str
    user: str
    place: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be submitted: names of repositories, and of recipes by repository."""

    repositories: tuple[str, ...] = ()
    recipes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def recipe_names(self) -> tuple[str, ...]:
        """All recipes, each once."""
        return tuple(dict.fromkeys(name for names in self.recipes.values() for name in names))


@dataclass(frozen=True, slots=True)
class Night:
    """One night of a watched branch.

    Attributes:
        commit: 40 hex digits.
        subject: of the commit.
        time_s: when it ran, seconds since the epoch.
        mean, sd, num: of the metric over seeds; None and 0 without values.
        state: clean, regression, drift, untestable, intended, fixed, unclear (it could still be worse) or unfinished.
        said: one sentence.
        bisection_id: of the bisection that it started, or "".
    """

    commit: str
    subject: str
    time_s: float
    mean: float | None
    sd: float | None
    num: int
    state: str
    said: str
    bisection_id: str = ""


@dataclass(frozen=True, slots=True)
class WatchedBranch:
    """The nights of one watch, the oldest first.

    Attributes:
        name: of the watch, unique.
        repo, branch: for a person.
        metric, unit, better: what is compared; better is lower or higher.
        last_good: 40 hex digits, or "".
        nights: as told.
        open_findings: what is open now, one sentence each.
    """

    name: str
    repo: str
    branch: str
    metric: str
    unit: str
    better: str
    last_good: str
    nights: tuple[Night, ...]
    open_findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person filled in to start a bisection; `options` are named like those of `bisect-train run`."""

    repository: str
    recipe: str
    good: str
    bad: str
    options: Mapping[str, str] = field(default_factory=dict)


class PageBackend(Protocol):
    """Reads and acts for the pages. What cannot be done raises a BisectTrainError, whose text is shown."""

    @property
    def store(self) -> Store:
        """All stored bisections."""

    @property
    def home(self) -> Path:
        """The tool's home folder."""

    def open(self, bisection_id: str) -> Opened:
        """Return a bisection, rebuilt from its observations."""

    def report_of(self, opened: Opened) -> ReportData:
        """Return its report, of an unfinished one as far as it goes."""

    def in_flight(self, bisection_id: str) -> Sequence[RunInFlight] | None:
        """Return the probes that run now; None where this process does not run the bisection."""

    def user_of(self, bisection_id: str) -> str:
        """Return who asked, or ""."""

    def queue(self) -> Sequence[Waiting]:
        """Return what waits, the next one first."""

    def offer(self, user: str) -> Offer:
        """Return what this user may submit."""

    def branches(self) -> Sequence[WatchedBranch]:
        """Return the nightly histories."""

    def submit(self, asked: Asked, user: str) -> str:
        """Start or queue a bisection and return its id."""

    def cancel(self, bisection_id: str, user: str) -> None:
        """Stop a bisection, or take it out of the queue."""

    def resume(self, bisection_id: str, user: str) -> None:
        """Let a stopped bisection go on."""

    def mark(self, bisection_id: str, rev: str, verdict: str, user: str) -> None:
        """Say what a version is: good, bad, untestable, or clear."""


class PageGuard(Protocol):
    """Who looks at a page, and whether a form comes from one of ours."""

    def user_of(self, request: Request) -> str | None:
        """Return the user's name ("" where nobody needs one); None where the request must log in first."""

    def csrf_of(self, request: Request) -> str:
        """Return the token that this user's forms carry in the field `csrf`."""

    def is_ours(self, request: Request, token: str) -> bool:
        """Return whether a form's token is this user's."""


@dataclass(frozen=True, slots=True)
class PageSetup:
    """What an application puts into `app.state.pages`; `login` is where a request without a user is sent, "" for status 401."""

    backend: PageBackend
    guard: PageGuard
    login: str = ""
