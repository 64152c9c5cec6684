"""Telling processes apart, and leftovers from living probes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bisect_train_workers.processes import is_orphan, is_same_process, make_marker, start_mark


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
