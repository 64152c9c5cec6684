"""What the pages read and do, by the same functions as the REST interface: `pages.contract.PageBackend`, `PageGuard`."""

from __future__ import annotations

import hmac
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from bisect_train.coordinator.event_log import readable_events
from bisect_train.core.errors import InputError
from bisect_train.report.parts import ReportData
from bisect_train.service.auth import Caller
from bisect_train.service.overview import Item
from bisect_train.service.pages.contract import Asked, Offer, Opened, RunInFlight, Waiting, WatchedBranch
from bisect_train.service.parts import Parts, whole_of
from bisect_train.service.problems import Refused
from bisect_train.service.routes.act import cancel_for, mark_for, resume_for
from bisect_train.service.routes.submit import submit_for
from bisect_train.service.wire import Mark, Resume, Submission
from bisect_train.store.contract import Store
from bisect_train.store.queue_contract import QueueEntry, QueueState

OWN_RECIPE = "bisect-train.yaml"
MAX_WAITING = 200
STARTING = "it is being started"
_WHOLE = ("ranks", "seeds", "parallel", "max_probes")
_REAL = ("gpus", "min_effect", "confidence", "budget_gpu_hours", "timeout_s")
_SWITCHES = ("any_change", "deterministic", "first_parent")
_LISTS = ("paths", "skip")
_REVISION = "a revision is a commit, tag or branch"
_CONFIG = "a config file is a path in the repository, such as configs/train.yaml"
_HINTS: dict[int | str, str] = {
    **dict.fromkeys(("good", "bad", "skip"), _REVISION),
    **dict.fromkeys(("config", "other_config"), _CONFIG),
    "settings": "keys to change are written as in lr=3e-4 batch_size=64",
}
M = TypeVar("M", bound=BaseModel)


class ServicePages:
    """`PageBackend` of a service.

    Args:
        parts: of the application.
        branches: nightly histories, for the list.
    """

    def __init__(self, parts: Parts, branches: Callable[[], Sequence[WatchedBranch]] = tuple) -> None:
        self._parts = parts
        self._branches = branches

    @property
    def store(self) -> Store:
        """All stored bisections."""
        return self._parts.backend.store

    @property
    def home(self) -> Path:
        """The tool's home folder."""
        return self._parts.backend.home

    def open(self, bisection_id: str) -> Opened:
        """Return a bisection, rebuilt from its observations."""
        return self._parts.openings.open(bisection_id)

    def report_of(self, opened: Opened) -> ReportData:
        """Return its report, of an unfinished one as far as it goes."""
        return self._parts.openings.report_of(opened)

    def in_flight(self, bisection_id: str) -> Sequence[RunInFlight] | None:
        """Return the probes that run now; None where this process does not run the bisection."""
        runs = self._parts.board.runs(whole_of(self.store, bisection_id))  # parts run in the process of the whole
        if runs is None:
            return None
        points = {
            event.data["key"]: str(event.data.get("point", ""))
            for event in readable_events(self.store, bisection_id)
            if event.kind == "probe_started"
        }
        return [
            RunInFlight(
                key=run.key,
                point=points.get(run.key, ""),
                seed_idx=run.seed_idx,
                repeat=run.repeat,
                phase=run.phase,
                steps=tuple(step for step, _ in run.curve),
                losses=tuple(loss for _, loss in run.curve),
            )
            for run in runs
            if run.key in points
        ]

    def user_of(self, bisection_id: str) -> str:
        """Return who asked, or ""."""
        entry = self._parts.backend.queue.entry(bisection_id)
        return entry.user if entry is not None else ""

    def queue(self) -> Sequence[Waiting]:
        """Return what waits, what was submitted first at the top: users take turns, so others may overtake.

        What has its turn and is being started waits, too: for Ray, say.
        """
        open_ones = self._parts.backend.queue.entries(states=(QueueState.QUEUED, QueueState.RUNNING), limit=MAX_WAITING)
        items = {item.id: item for item in self._parts.overview.items()}
        waiting = [entry for entry in reversed(open_ones) if _waits(entry, items.get(entry.bisection_id))]
        return [
            Waiting(
                entry.bisection_id,
                items[entry.bisection_id].title if entry.bisection_id in items else "",
                entry.user,
                place,
                entry.reason or (STARTING if entry.state is QueueState.RUNNING else ""),
            )
            for place, entry in enumerate(waiting, start=1)
        ]

    def offer(self, user: str) -> Offer:
        """Return what this user may submit."""
        settings = self._parts.settings
        others = tuple(name for name, _ in settings.recipes)
        recipes = {
            name: (*((OWN_RECIPE,) if (folder / OWN_RECIPE).is_file() else ()), *others)
            for name, folder in settings.repositories
        }
        return Offer(tuple(name for name, _ in settings.repositories), recipes)

    def branches(self) -> Sequence[WatchedBranch]:
        """Return the nightly histories."""
        return self._branches()

    def submit(self, asked: Asked, user: str) -> str:
        """Queue a bisection and return its id."""
        with _said():
            return submit_for(submission_of(asked), self._parts, self._caller(user))

    def cancel(self, bisection_id: str, user: str) -> None:
        """Stop a bisection, or take it out of the queue."""
        with _said():
            cancel_for(bisection_id, self._parts, self._caller(user))

    def resume(self, bisection_id: str, user: str) -> None:
        """Let a stopped bisection go on."""
        with _said():
            resume_for(bisection_id, self._parts, self._caller(user), Resume())

    def mark(self, bisection_id: str, rev: str, verdict: str, user: str) -> None:
        """Say what a version is: good, bad, untestable, or clear."""
        with _said():
            mark_for(bisection_id, _checked(Mark, {"revision": rev, "verdict": verdict}), self._parts, self._caller(user))

    def _caller(self, user: str) -> Caller:
        return self._parts.doorman.caller_of(user)


def _waits(entry: QueueEntry, item: Item | None) -> bool:
    return entry.state is QueueState.QUEUED or (item is not None and item.status == "starting")


@contextmanager
def _said() -> Iterator[None]:
    """Turn a refusal into an error that a page can show."""
    try:
        yield
    except Refused as error:
        raise InputError(error.error, hint=error.hint) from None


def submission_of(asked: Asked) -> Submission:
    """Return what was filled in as a submission. Raises InputError for what is no number, or none that may be."""
    given = dict(asked.options)
    data: dict[str, Any] = {
        "kind": given.pop("kind", "") or "run",
        "repository": asked.repository,
        "good": asked.good.split(),
        "bad": asked.bad or "HEAD",
        "recipe": None if asked.recipe in ("", OWN_RECIPE) else asked.recipe,
    }
    data |= {name: given.pop(name) for name in ("config", "other_config") if name in given}
    if settings := given.pop("settings", ""):
        data["settings"] = _words(settings)
    if command := given.pop("command", ""):
        data["command"] = _words(command)
    data["options"] = {name: _value(name, text) for name, text in given.items() if text}
    return _checked(Submission, data)


def _checked(model: type[M], data: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = error.errors()[0]
        name = next((part for part in found["loc"] if part in _HINTS), "")
        if found["type"] == "string_pattern_mismatch" and name:
            raise InputError(f"{str(found['input'])[:80]!r} cannot be used here", hint=_HINTS[name]) from None
        where = ".".join(str(part) for part in found["loc"] if part != "options")
        said = str(found["msg"]).removeprefix("Value error, ")
        raise InputError(f"{where}: {said}" if where else said) from None


def _value(name: str, text: str) -> Any:
    try:
        if name in _WHOLE or (name == "steps" and text != "end"):
            return int(text)
        if name in _REAL:
            return float(text)
    except ValueError:
        raise InputError(f"{name}: {text[:40]!r} is not a number") from None
    if name in _SWITCHES:
        return text.lower() in ("1", "on", "true", "yes")
    return text.split() if name in _LISTS else text


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{text[:60]!r} cannot be read: {error}", hint="quote it as for a shell") from None


@dataclass(frozen=True, slots=True)
class ServiceGuard:
    """`PageGuard` of a service."""

    parts: Parts

    def user_of(self, request: Request) -> str | None:
        """Return the user's name; None where the request must log in first."""
        found = self.parts.doorman.caller(request)
        return found.name if found is not None else None

    def csrf_of(self, request: Request) -> str:
        """Return the token that this user's forms carry."""
        found = self.parts.doorman.caller(request)
        return found.csrf if found is not None else ""

    def is_ours(self, request: Request, token: str) -> bool:
        """Return whether a form's token is this user's."""
        known = self.csrf_of(request)
        return bool(known) and hmac.compare_digest(known.encode(), token.encode("utf-8", "surrogatepass"))
