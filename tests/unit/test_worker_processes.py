"""Telling processes apart, and leftovers from living probes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bisect_train_workers.processes import find_users_of, is_orphan, is_same_process, make_marker, start_mark


def test_start_mark_tells_a_process_from_its_absence() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark = start_mark(child.pid)
        assert mark > 0 and start_mark(child.pid) == mark and is_same_process(child.pid, mark)
        assert not is_same_process(child.pid, mark - 1)
        marker = make_marker("p:1", child.pid)
        assert not is_orphan(marker)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # now a zombie
        assert start_mark(child.pid) == 0 and is_orphan(marker)
    assert start_mark(child.pid) == 0 and not is_same_process(child.pid, 0)


def test_marker_of_another_pid_namespace_is_no_orphan() -> None:
    probe, _, pid, started = make_marker("p", os.getpid()).rsplit(":", 3)
    assert not is_orphan(f"{probe}:4026531836x:999999:{started}") and not is_orphan("not a marker")
    assert Path(f"/proc/{pid}").exists() or not Path("/proc").exists()


def test_users_of_a_folder_are_those_that_hold_a_file_open_below_it(tmp_path: Path) -> None:
    program = "import sys, time; file = open(sys.argv[1], 'w'); print('open', flush=True); time.sleep(60)"
    inside, beside = tmp_path / "session" / "agent.log", tmp_path / "session-2.log"
    inside.parent.mkdir()
    children = []
    for path in (inside, beside):
        child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"open\n"
        children.append(child)
    try:
        assert [process.pid for process in find_users_of(inside.parent)] == [children[0].pid]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert find_users_of(inside.parent) == []
