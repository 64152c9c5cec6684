"""What the benchmarks rest on: the history is the same everywhere, and processor time of daemons is counted."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.benchmarks.accounting import run_accounted
from tests.benchmarks.contenders import environment
from tests.benchmarks.long_history import CULPRIT, NUM_COMMITS, build_long_history
from tests.support.git_repos import git

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1); os.close(2)
        while time.process_time() < 0.4:
            pass
    os._exit(0)
os.wait()
sys.exit(7)
"""


def test_long_history_is_the_same_each_time_and_only_the_culprit_changes_the_rate(tmp_path: Path) -> None:
    first, second = build_long_history(tmp_path / "a"), build_long_history(tmp_path / "b")
    loud = build_long_history(tmp_path / "c", has_loud_decoys=True)
    assert first.commits == second.commits and len(first.commits) == NUM_COMMITS + 1
    assert first.commits[-1] != loud.commits[-1]
    changed = git(first.path, "log", "--format=%H", "-S", "percent / 100", "--", "optim.py").split()
    assert changed == [first.culprit] == [first.commits[CULPRIT]]


def test_accounting_counts_what_a_daemon_takes_after_the_command_has_ended(tmp_path: Path) -> None:
    spent = run_accounted([sys.executable, "-c", DAEMON], folder=tmp_path, env=environment())
    assert spent.status == 7
    assert spent.cpu_s >= 0.4
