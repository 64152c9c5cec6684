"""Two services with real programs on one PostgreSQL: one is killed and started again, the other takes over from it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from bisect_train.store.address import STORE_VARIABLE
from tests.postgres import PostgresServer
from tests.support.command_line import CommandLine
from tests.support.real_service import WAIT_S, running_service, small_program, submit, watch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def coordinators_of(name: str) -> list[int]:
    """Return the processes that run a bisection."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-4:][:2] == ["coordinate", name]:
                found.append(process.pid)
    return found


def check_answer(events: Sequence[dict[str, Any]], report: dict[str, Any], culprit: str) -> None:
    """Check that no event was lost, no probe ran to its end twice, and the answer is the right one."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    finished = Counter(event["data"]["key"] for event in events if event["kind"] == "probe_finished")
    assert finished and set(finished.values()) == {1}
    assert report["status"] == "isolated" and report["culprits"][0]["changes"][0]["id"] == culprit


@pytest.mark.scenario
def test_second_service_takes_over_from_one_that_is_killed_and_neither_runs_what_the_other_runs(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    repo, commits = small_program(tmp_path / "repo", num_commits=4, culprit=2)
    url = postgres.new_database()
    lines = [CommandLine(tmp_path, tmp_path / home, {STORE_VARIABLE: url}) for home in ("home1", "home2")]
    with running_service(lines[0], repo) as first, running_service(lines[1], repo) as second:
        name, other = submit(first[1]), submit(first[1], deterministic=True)  # whose runs are others
        watch(second[1], name, num_finished=2)  # each shows what the other one runs
        (coordinator,) = coordinators_of(name)
        killed = [service[0].pid for service in (first, second)].index(psutil.Process(coordinator).ppid())
        dying, (left, client) = (first, second)[killed], (second, first)[killed]
        assert client.post(f"/bisections/{other}/cancel").status_code == 200
        os.kill(dying[0].pid, signal.SIGKILL)
        with running_service(lines[killed], repo) as (again, of_again):  # as soon as it is dead
            events, end = watch(of_again, name)
            assert end == {"status": "finished", "reason": ""}
            check_answer(events, of_again.get(f"/bisections/{name}").json()["report"], commits[2])
            assert [event["kind"] for event in events].count("started") == 2, "before the kill and after it, and by one"
            assert watch(of_again, other)[1] == {"status": "cancelled", "reason": "cancelled by local"}
            for process in (again, left):
                process.send_signal(signal.SIGTERM)
                assert process.wait(WAIT_S) == 0
    for line in lines:
        line.wait_until_gone([], limit_s=WAIT_S)
        assert not (line.home / "bisect-train.db").exists()
