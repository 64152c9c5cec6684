"""A real service with real programs: asked over HTTP, watched to the verdict, killed in the middle, started again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

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


@contextmanager
def serving(command: CommandLine, repo: UserRepo) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Start a service; give its process and a client."""
    args = ("serve", "--port", "0", "--repo", f"demo={repo.path}", "--lease-s", "2", "--cpus", "2")
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
    options = {"steps": "end", **options}
    answer = client.post("/bisections", json={"repository": "demo", "good": ["old"], "bad": "main", "options": options})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_service_killed_in_the_middle_goes_on_to_the_verdict(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commits = [repo.commit({"train.py": PROGRAM, "level.py": f"LEVEL = {1 + (idx >= 3)}\nIDX = {idx}\n"}) for idx in range(6)]
    repo.git("tag", "old", commits[0])
    (repo.path / "bisect-train.yaml").write_text(RECIPE)
    command = CommandLine(tmp_path, tmp_path / "home")
    with serving(command, repo) as (process, client):
        name, other = submit(client), submit(client, deterministic=True)  # whose runs are others
        first, end = watch(client, name, num_finished=3)
        assert end is None
        os.kill(process.pid, signal.SIGKILL)
    command.wait_until_gone([], limit_s=WAIT_S)  # coordinators, Ray and programs, too
    with serving(command, repo) as (process, client):
        assert client.post(f"/bisections/{other}/cancel").status_code == 200
        rest, end = watch(client, name, after=first[-1]["seq"])
        assert end == {"status": "finished", "reason": ""}
        seqs = [event["seq"] for event in (*first, *rest)]
        assert seqs == list(range(1, len(seqs) + 1)), "no event is lost and none comes twice"
        finished = Counter(event["data"]["key"] for event in (*first, *rest) if event["kind"] == "probe_finished")
        assert set(finished.values()) == {1}
        report = client.get(f"/bisections/{name}").json()["report"]
        assert report["status"] == "isolated" and report["culprits"][0]["changes"][0]["id"] == commits[3]
        assert watch(client, other)[1]["status"] == "cancelled"
        assert client.get(f"/bisections/{other}").json()["status"] == "cancelled"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    command.wait_until_gone([], limit_s=WAIT_S)
