"""A service in this process, on a real store and a small real repository; and one in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from bisect_train.cli.serving import DeskBackend
from bisect_train.service.app import Runner, create_app
from bisect_train.service.live import LiveBoard
from bisect_train.service.settings import Settings
from bisect_train.store.home import open_store
from bisect_train.store.sql import SqlStore
from tests.support.git_repos import UserRepo

RECIPE = "command: [python, train.py]\nshrink: {steps: [5]}\n"
BASE = "http://127.0.0.1:8765"


def small_repo(path: Path, *, num_commits: int = 4) -> UserRepo:
    """Return a repository of a few commits with a config file and a recipe of its own; nothing in it is ever run."""
    repo = UserRepo.create(path)
    for idx in range(num_commits):
        files = {"train.py": f"LR = {idx}\n", "conf/a.yaml": "lr: 1\nseed: 2\n", "conf/b.yaml": "lr: 3\nseed: 2\n"}
        repo.commit({**files, "bisect-train.yaml": RECIPE}, message=f"step {idx}")
    repo.git("tag", "old", f"HEAD~{num_commits - 1}")
    return repo


@dataclass
class ServiceLab:
    """A service, and what its routes answer to."""

    store: SqlStore
    settings: Settings
    backend: DeskBackend
    board: LiveBoard
    app: FastAPI
    headers: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
        """Send one request as a program on this machine would; return the answer."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                return await client.request(method, path, headers={**self.headers, **(headers or {})}, **more)

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> Any:
        """Return the JSON of an answer that must be good."""
        answer = self.call("GET", f"/api/v1{path}", **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """Send JSON."""
        return self.call("POST", f"/api/v1{path}", json=body, **more)

    def refuse(self, status: int, method: str, path: str, **more: Any) -> dict[str, str]:
        """Send what must be refused with this status; return the problem."""
        answer = self.call(method, path, **more)
        assert answer.status_code == status, answer.text
        problem = answer.json()
        assert set(problem) == {"error", "hint"} and problem["error"]
        return dict(problem)

    def submit(self, **more: Any) -> str:
        """Submit a question about the small repository; return the id."""
        answer = self.post("/bisections", {"repository": "demo", "good": ["old"], **more})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


@contextlib.contextmanager
def service_lab(home: Path, repo: Path, *, runner: Runner | None = None, **more: Any) -> Iterator[ServiceLab]:
    """Give a service on a new home folder, with one repository `demo`."""
    store = open_store(home)
    settings = Settings(home=home, repositories=(("demo", repo),), poll_s=0.05, **more)
    backend, board = DeskBackend(home, store, settings), LiveBoard()
    try:
        yield ServiceLab(store, settings, backend, board, create_app(settings, backend, board=board, runner=runner))
    finally:
        store.close()


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve an application on a free port in a thread; give its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive(), "the server does not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        app.state.parts.feed.is_closing = True
        server.should_exit = True
        thread.join(60)


def read_events(answer: httpx.Response) -> Iterator[tuple[str, int, Any]]:
    """Yield the messages of a stream: name ("message" without one), number (0 without one), data."""
    name, number, data = "message", 0, ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            data = line[6:]
        elif not line and data:
            yield name, number, json.loads(data)
            name, number, data = "message", 0, ""
