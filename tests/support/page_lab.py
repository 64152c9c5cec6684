"""The pages over a real store, with bisections that run in threads on the simulated executor at a speed that can be watched."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request as HttpRequest

from bisect_train.cli.desk import Desk
from bisect_train.cli.marking import find_version
from bisect_train.cli.reopening import Reopened, reopen, report_of
from bisect_train.coordinator import (
    Coordinator,
    CoordinatorEvent,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
)
from bisect_train.coordinator.person import mark_event
from bisect_train.core.changes import Point
from bisect_train.core.errors import InputError, InterruptedByUser
from bisect_train.core.executor import Executor, ExecutorEvent, ProbeProgress
from bisect_train.core.probe import MachineFacts, ProbeJob, RunSettings
from bisect_train.core.question import Question
from bisect_train.report import ReportData, report_to_json
from bisect_train.service.pages import PageSetup, router
from bisect_train.service.pages.contract import Asked, Offer, Opened, RunInFlight, Waiting, WatchedBranch
from bisect_train.store.contract import MARKED, Store
from bisect_train.store.home import open_store
from tests.support.simulated_bisection import Lab

CSRF = "the-token-of-this-session"


class PacedExecutor:
    """Another executor, slowed: between two of its events, `pace_s` pass, and running probes report a step."""

    def __init__(self, inner: Executor, *, pace_s: float) -> None:
        self._inner = inner
        self._pace_s = pace_s
        self._steps: dict[str, int] = {}

    def facts(self) -> MachineFacts:
        return self._inner.facts()

    def adopt(self, settings: RunSettings) -> None:
        self._inner.adopt(settings)

    def submit(self, job: ProbeJob) -> None:
        self._steps[job.id] = 0
        self._inner.submit(job)

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        if any(step < 4 for step in self._steps.values()):
            time.sleep(self._pace_s)
            self._steps = {key: step + 1 for key, step in self._steps.items()}
            return [ProbeProgress(key, "run", step, 3.0 / (1 + step)) for key, step in self._steps.items()]
        events = self._inner.wait(timeout_s)
        for event in events:
            if not isinstance(event, ProbeProgress):
                job_id = event.job_id if hasattr(event, "job_id") else event.result.job_id
                self._steps.pop(job_id, None)
        return events

    def cancel(self, job_id: str) -> None:
        self._steps.pop(job_id, None)
        self._inner.cancel(job_id)

    def close(self) -> None:
        self._inner.close()


class InFlight:
    """Listens to a coordinator and knows what runs."""

    def __init__(self) -> None:
        self._runs: dict[str, RunInFlight] = {}

    def __call__(self, event: CoordinatorEvent) -> None:
        if isinstance(event, ProbeStarted):
            request = event.request
            self._runs[event.key] = RunInFlight(event.key, request.point.to_text(), request.seed_idx, request.repeat)
        elif isinstance(event, ProbeMoved) and event.progress.job_id in self._runs:
            run, moved = self._runs[event.progress.job_id], event.progress
            steps, losses = (*run.steps, moved.step), (*run.losses, moved.loss)
            self._runs[run.key] = replace(run, phase=moved.phase, steps=steps, losses=losses)
        elif isinstance(event, (ProbeDone, ProbeGone)):
            self._runs.pop(event.key, None)

    def runs(self) -> Sequence[RunInFlight]:
        return tuple(self._runs.values())


@dataclass
class PageLab:
    """`PageBackend` and `PageGuard` of a test."""

    lab: Lab
    store: Store
    pace_s: float = 0.0
    nights: Sequence[WatchedBranch] = ()
    repositories: tuple[str, ...] = ("nano",)
    waiting: list[Waiting] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)
    flights: dict[str, InFlight] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    @staticmethod
    def create(lab: Lab, *, pace_s: float = 0.0) -> PageLab:
        return PageLab(lab, open_store(lab.home), pace_s=pace_s)

    @property
    def home(self) -> Path:
        return self.lab.home

    @property
    def desk(self) -> Desk:
        return Desk(self.lab.home, self.store)

    def open(self, bisection_id: str) -> Opened:
        return reopen(self.desk, bisection_id)

    def report_of(self, opened: Opened) -> ReportData:
        assert isinstance(opened, Reopened)
        return report_of(self.desk, opened)

    def in_flight(self, bisection_id: str) -> Sequence[RunInFlight] | None:
        flight = self.flights.get(bisection_id)
        return None if flight is None else flight.runs()

    def user_of(self, bisection_id: str) -> str:
        return self.users.get(bisection_id, "")

    def queue(self) -> Sequence[Waiting]:
        return self.waiting

    def offer(self, user: str) -> Offer:
        return Offer(self.repositories, dict.fromkeys(self.repositories, ("usual.yaml",)))

    def branches(self) -> Sequence[WatchedBranch]:
        return self.nights

    def submit(self, asked: Asked, user: str) -> str:
        repository = self.lab.repo.open(self.home)
        good, bad = (repository.resolve(rev) for rev in (asked.good, asked.bad))
        question = self.lab.question()
        question = replace(question, range=replace(question.range, goods=(good,), bad=bad))
        name = self.store.create(question.to_json(), title=f"what made {asked.repository} worse since {asked.good[:8]}?")
        self.users[name] = user
        self.start(name)
        return name

    def start(self, bisection_id: str) -> threading.Thread:
        """Run a bisection in a thread of its own."""
        self.flights[bisection_id] = InFlight()
        thread = threading.Thread(target=self.drive, args=(bisection_id,), daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def drive(self, bisection_id: str) -> None:
        """Run a bisection to its end, or until it is cancelled."""
        question = Question.of_json(self.store.load(bisection_id).question)
        executor = PacedExecutor(self.lab.executor(), pace_s=self.pace_s) if self.pace_s else self.lab.executor()
        listener = self.flights.setdefault(bisection_id, InFlight())
        with self.store.lock(bisection_id):
            coordinator = Coordinator(
                question,
                bisection_id=bisection_id,
                space=self.lab.space(question),
                store=self.store,
                executor=executor,
                listener=listener,
            )
            try:
                ended = coordinator.run()
            except InterruptedByUser:
                return
            cost = {"probes": ended.num_probes, "cached": ended.num_reused, "wall_s": ended.wall_s}
            self.store.append(bisection_id, "finished", {"answer": {"cost": cost}})
            report = report_of(self.desk, reopen(self.desk, bisection_id))
            self.store.append(bisection_id, "finished", {"answer": report_to_json(report), "exit_status": report.exit_status})

    def cancel(self, bisection_id: str, user: str) -> None:
        if not self.store.is_running(bisection_id):
            raise InputError(f"bisection {bisection_id} is not running")
        self.store.request_cancel(bisection_id)

    def resume(self, bisection_id: str, user: str) -> None:
        self.start(bisection_id)

    def mark(self, bisection_id: str, rev: str, verdict: str, user: str) -> None:
        opened = reopen(self.desk, bisection_id)
        version = find_version(rev, opened.space, self.lab.repo.open(self.home))
        change = opened.space.changes[version - 1]
        with self.store.lock(bisection_id):
            self.store.append(bisection_id, MARKED, mark_event(Point(version), change.id, verdict))


@dataclass
class OpenDoor:
    """A guard that lets everybody in as one user; forms carry a token."""

    user: str | None = "ada"

    def user_of(self, request: HttpRequest) -> str | None:
        return self.user

    def csrf_of(self, request: HttpRequest) -> str:
        return CSRF

    def is_ours(self, request: HttpRequest, token: str) -> bool:
        return token == CSRF


def make_app(backend: PageLab, *, user: str | None = "ada") -> FastAPI:
    """Return an application that serves the pages alone."""
    app = FastAPI()
    app.state.pages = PageSetup(backend, OpenDoor(user))
    app.include_router(router)
    return app


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application on loopback; yields its address."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise AssertionError("the server did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
