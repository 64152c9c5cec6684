"""What `bisect-train serve` is made of: the tool's desk behind the service's contract, the dispatcher, and the HTTP server."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from bisect_train.changes.config import apply_settings
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.changes.tree_files import read_file
from bisect_train.cli.asked import Asked
from bisect_train.cli.asking import ask_question, range_of
from bisect_train.cli.desk import Desk, find_bisection
from bisect_train.cli.driving import store_without_runs
from bisect_train.cli.expecting import expected_culprit, question_behind
from bisect_train.cli.marking import find_version
from bisect_train.cli.planning import refuse_nothing_to_search, title_of
from bisect_train.cli.reopening import Reopened, reopen, report_of, respaced
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.limits import change_limits, question_in_force
from bisect_train.coordinator.person import mark_event, steps_to_undo, undo_event
from bisect_train.core.changes import FilePatch, Point
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.interpreters import module_command
from bisect_train.core.question import ConfigEnd, Question, Range
from bisect_train.report.parts import ReportData
from bisect_train.service.app import create_app
from bisect_train.service.auth import has_users
from bisect_train.service.cluster import Cluster
from bisect_train.service.connection import BoundedConnection
from bisect_train.service.dispatcher import Dispatcher
from bisect_train.service.feed import Feed
from bisect_train.service.live import LiveBoard
from bisect_train.service.pages.contract import Opened
from bisect_train.service.pages.watched import Branches
from bisect_train.service.settings import Settings, refuse_open_door
from bisect_train.service.wire import Submission
from bisect_train.store.contract import MARKED, UNDONE
from bisect_train.store.home import HOME_VARIABLE
from bisect_train.store.queue import SqlQueue
from bisect_train.store.queue_contract import LimitError
from bisect_train.store.sql import SqlStore

MAX_CONNECTIONS = 1000
MAX_CONFIG_CHARS = 1_000_000
RECENT = 200  # bisections that are looked through for one that was asked already
GOODBYE_S = 5


class DeskBackend:
    """`service.backend.Backend` of a home folder.

    Args:
        home: folder for state.
        store: bisections, users and the queue.
        settings: of the service.
    """

    def __init__(self, home: Path, store: SqlStore, settings: Settings) -> None:
        self._desk = Desk(home, store)
        self._store = store
        self._queue = store.queue()
        self._settings = settings

    @property
    def home(self) -> Path:
        """The tool's home folder."""
        return self._desk.home

    @property
    def store(self) -> SqlStore:
        """All stored bisections."""
        return self._store

    @property
    def queue(self) -> SqlQueue:
        """Users, what waits and what runs."""
        return self._queue

    def ask(self, wanted: Submission, *, repository: Path, recipe: Path | None, may_answer: bool = True) -> str:
        """See `service.backend.Backend`."""
        asked = asked_of(wanted, self._settings, repository=repository, recipe=recipe)
        opened = Repository.open(repository, home=self.home)
        question = _question_of(wanted, asked, opened)
        space = build_space(opened, question)
        if not space.changes and wanted.kind == "check":
            if not may_answer:
                raise LimitError("nothing is left to you today", hint="ask again tomorrow")
            return store_without_runs(self._desk, question, space, reason="the ends are the same").id
        refuse_nothing_to_search(space)
        return self._store.create(question.to_json(), title=title_of(question, space))

    def follow(self, bisection_id: str) -> None:
        """Where a bisection has named an intended change, ask about what comes after it: its user's, in the queue.

        May be called again: what was asked already is found, and nothing is asked twice.
        """
        stored, entry = self._store.load(bisection_id), self._queue.entry(bisection_id)
        question = question_in_force(self._store, stored)
        found = expected_culprit(question, stored.answer or {})
        behind = question_behind(question, found[0]) if found is not None else None
        if found is None or behind is None or entry is None:
            return
        data = json.loads(json.dumps(behind.to_json()))  # as the store gives it back
        newer = (item for item in self._store.page(limit=RECENT, parts=False) if item.created_s >= stored.created_s)
        known = next((item.id for item in newer if item.question == data and item.id != bisection_id), "")
        title = f"{found[0][:8]}..{behind.range.bad[:8]}, behind an intended change"
        name = known or self._store.create(data, title=title)
        if self._queue.entry(name) is None:
            self._queue.submit(name, entry.user, priority=entry.priority, is_limited=False)

    def open(self, bisection_id: str) -> Opened:
        """Return a bisection, rebuilt from its observations."""
        return reopen(self._desk, bisection_id)

    def report_of(self, opened: Opened) -> ReportData:
        """Return its report, of an unfinished one as far as it goes."""
        assert isinstance(opened, Reopened), opened
        return report_of(self._desk, opened)

    def mark(self, bisection_id: str, revision: str, verdict: str) -> None:
        """Say what a version is."""
        stored = find_bisection(self._store, bisection_id)
        question = Question.of_json(stored.question)
        repository = Repository.open(Path(question.repo), home=self.home)
        space = respaced(question, home=self.home)
        version = find_version(revision, space, repository)
        with self._store.lock(stored.id):
            self._store.append(stored.id, MARKED, mark_event(Point(version), space.changes[version - 1].id, verdict))

    def undo(self, bisection_id: str, last: int) -> int:
        """Take back the newest observations or marks; return how many."""
        with self._store.lock(bisection_id):
            steps = steps_to_undo(read_events(self._store, bisection_id))
            if last > len(steps):
                raise InputError(f"bisection {bisection_id} has {len(steps)} observations and marks, not {last}")
            self._store.append(bisection_id, UNDONE, undo_event(steps[:last]))
        return last

    def change_limits(self, bisection_id: str, *, max_probes: int | None, gpu_hours: float | None) -> None:
        """Store other limits; None leaves one as it is."""
        question = question_in_force(self._store, self._store.load(bisection_id))
        with self._store.lock(bisection_id):
            change_limits(self._store, bisection_id, question, max_probes=max_probes, gpu_hours=gpu_hours)


def asked_of(wanted: Submission, settings: Settings, *, repository: Path, recipe: Path | None) -> Asked:
    """Return a submission as the options of a command; what the service does not offer is as on the command line."""
    options = wanted.options
    return Asked(
        command=tuple(wanted.command),
        repo=repository,
        recipe=recipe,
        config=_inside(wanted.config) if wanted.kind == "run" else None,
        steps=options.steps,
        ranks=options.ranks,
        gpus=options.gpus,
        seeds=options.seeds,
        metric=options.metric,
        min_effect=options.min_effect,
        criterion=options.criterion,
        any_change=options.any_change,
        parallel=options.parallel,
        address=settings.address,
        confidence=options.confidence,
        warm=True,
        early=True,
        max_probes=options.max_probes,
        budget_gpu_hours=options.budget_gpu_hours,
        timeout=options.timeout_s,
        python=settings.python,
        deterministic=options.deterministic,
        first_parent=options.first_parent,
        path=tuple(options.paths),
        skip=tuple(options.skip),
    )


def _question_of(wanted: Submission, asked: Asked, repository: Repository) -> Question:
    if wanted.kind == "run" or not wanted.config:
        commits = range_of(repository, tuple(wanted.good), wanted.bad, asked)
        return ask_question(asked, repository, kind=wanted.kind, commits=commits)
    commit = repository.resolve(wanted.bad)
    good = _config_at(repository, commit, wanted.config)
    bad = _config_at(repository, commit, wanted.other_config) if wanted.other_config else good
    if wanted.settings:
        bad = apply_settings(bad, tuple(wanted.settings))
    commits = Range((commit,), commit)
    return ask_question(asked, repository, kind="check", commits=commits, good_config=good, bad_config=bad)


def _config_at(repository: Repository, commit: str, path: str) -> ConfigEnd:
    """Return a config file as a commit has it; no file of the machine is opened."""
    _inside(path)
    text = read_file(repository.git, commit, path) if repository.tracked_at(commit, path) == path else None
    if text is None or len(text) > MAX_CONFIG_CHARS:
        raise InputError(f"commit {commit[:12]} has no config file {path!r}", hint="name a text file that git tracks")
    return ConfigEnd(path, FilePatch(path.rsplit("/", 1)[-1], text))


def _inside(path: str | None) -> str | None:
    """Return a path in the repository. Raises InputError for one that leads out of it, or into git's own folder."""
    parts = path.split("/") if path is not None else []
    if any(part in ("", ".", "..", ".git") for part in parts):
        raise InputError(f"{path!r} is no path inside the repository", hint="such as configs/train.yaml")
    return path


def coordinator_command(bisection_id: str, address: str) -> Sequence[str]:
    """Return the command that runs a stored bisection as a part of this service."""
    return module_command(sys.executable, "bisect_train.cli.main", "serve", "coordinate", bisection_id, "--address", address)


def serve(settings: Settings, desk: Desk) -> None:
    """Serve until a signal comes.

    Raises:
        InputError: others could reach it and nobody has a token, or the port is taken.
    """
    store = desk.store
    if not isinstance(store, SqlStore):
        raise InputError("this store keeps no queue", hint="a database does: SQLite or PostgreSQL")
    backend = DeskBackend(settings.home, store, settings)
    refuse_open_door(settings, has_users=has_users(backend.queue))
    board = LiveBoard()
    runner = Dispatcher(
        settings,
        store=store,
        queue=backend.queue,
        board=board,
        cluster=Cluster(settings),
        command_of=coordinator_command,
        env={**os.environ, HOME_VARIABLE: str(settings.home)},
        follow=backend.follow,
    )
    branches = Branches(store.nightly(), home=settings.home)
    app = create_app(settings, backend, board=board, runner=runner, branches=branches)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every browser that goes while it is written to
    with contextlib.closing(_listen(settings)) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"listening on http://{shown}:{port}", flush=True)
        config = uvicorn.Config(
            app,
            http=BoundedConnection,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=GOODBYE_S,
            h11_max_incomplete_event_size=32 * 1024,
            ws="none",
        )
        with contextlib.suppress(KeyboardInterrupt):  # what uvicorn raises again after an orderly end
            _Server(config, app.state.parts.feed).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends the streams as soon as it is told to stop; otherwise it would wait for them."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    async def main_loop(self) -> None:
        """Serve until a signal comes."""
        await super().main_loop()
        self._feed.stop()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MachineError(
            f"cannot listen on {settings.host}:{settings.port}: {reason}", hint="take another --port; 0 takes any that is free"
        ) from None
