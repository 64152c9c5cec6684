"""A real service in a process of its own, asked over HTTP, and a program of a second that it can bisect."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo
from tests.support.service import read_events

WAIT_S = 600.0
PROGRAM = """\
import random
import time

import level

random.seed(7)
for step in range(8):
    time.sleep(0.03)
    print("loss", level.LEVEL + random.random() / 20, flush=True)
"""
RECIPE = """\
command: [python, train.py]
metrics: {loss: {from: log, pattern: 'loss ([0-9.]+)', better: lower}}
"""


def small_program(path: Path, *, num_commits: int, culprit: int) -> tuple[UserRepo, list[str]]:
    """Return a repository whose program is worse from one commit on, with a recipe of its own and the tag `old`."""
    repo = UserRepo.create(path)
    commits = [
        repo.commit({"train.py": PROGRAM, "level.py": f"LEVEL = {1 + (idx >= culprit)}\nIDX = {idx}\n"})
        for idx in range(num_commits)
    ]
    repo.git("tag", "old", commits[0])
    (repo.path / "bisect-train.yaml").write_text(RECIPE)
    return repo, commits


@contextmanager
def running_service(command: CommandLine, repo: UserRepo, *more: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Start a service; give its process and a client."""
    args = ("serve", "--port", "0", "--repo", f"demo={repo.path}", "--lease-s", "2", "--cpus", "2", *more)
    process = command.start(*args, output=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        with httpx.Client(base_url=f"{line.split()[2]}/api/v1", timeout=WAIT_S) as client:
            yield process, client
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def watch(client: httpx.Client, name: str, *, after: int = 0, num_finished: int = 10**9) -> tuple[list[dict[str, Any]], Any]:
    """Return the events behind `after` until so many probes have finished, and what the end of the stream said."""
    events: list[dict[str, Any]] = []
    headers = {"Last-Event-ID": str(after)} if after else {}
    with client.stream("GET", f"/bisections/{name}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for kind, number, data in read_events(answer):
            if kind == "end":
                return events, data
            if kind == "message":
                assert number == data["seq"]
                events.append(data)
                if sum(event["kind"] == "probe_finished" for event in events) >= num_finished:
                    break
    return events, None


def submit(client: httpx.Client, **options: Any) -> str:
    """Ask what made the program worse; return the bisection's id."""
    options = {"steps": "end", **options}
    answer = client.post("/bisections", json={"repository": "demo", "good": ["old"], "bad": "main", "options": options})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])
