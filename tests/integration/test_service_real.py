"""A real service with real programs: asked over HTTP, watched to the verdict, killed in the middle, started again."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.real_service import WAIT_S, running_service, small_program, submit, watch


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_service_killed_in_the_middle_goes_on_to_the_verdict(tmp_path: Path) -> None:
    repo, commits = small_program(tmp_path / "repo", num_commits=6, culprit=3)
    command = CommandLine(tmp_path, tmp_path / "home")
    with running_service(command, repo) as (process, client):
        name, other = submit(client), submit(client, deterministic=True)  # whose runs are others
        first, end = watch(client, name, num_finished=3)
        assert end is None
        os.kill(process.pid, signal.SIGKILL)
    command.wait_until_gone([], limit_s=WAIT_S)  # coordinators, Ray and programs, too
    with running_service(command, repo) as (process, client):
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
