"""A full disk, a read-only cache, Ctrl-C, a place that cannot be written: the right status, one message, nothing left."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, family_of
from tests.support.git_repos import UserRepo
from tests.support.training_repo import COMMAND, build_training_repo

PYTHON = ["--python", sys.executable]


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a file system in memory; skips where this user may not."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-4:])


@pytest.mark.scenario
@pytest.mark.parametrize("size", ["100k", "400k", "900k"])
def test_full_disk_is_status_1_with_its_message(tmp_path: Path, size: str) -> None:
    """A whole bisection of this repository takes between one and two megabytes."""
    repo = build_training_repo(tmp_path / "repo")
    with mounted(tmp_path / "small", f"size={size}") as home:
        assert_disk_full(CommandLine(repo.repo.path, home), repo.good)


@pytest.mark.scenario
def test_program_that_fills_the_disk_is_status_1_and_not_a_verdict(tmp_path: Path) -> None:
    repo = build_training_repo(tmp_path / "repo", num_commits=3, culprit=1)
    text = (repo.repo.path / "train.py").read_text() + "    if step == 2:\n        open('big.bin', 'wb').write(bytes(2**23))\n"
    bad = repo.repo.commit({"train.py": text})
    with mounted(tmp_path / "small", "size=4m") as home:
        line = CommandLine(repo.repo.path, home)
        assert_disk_full(line, repo.good)
        subprocess.run(["mount", "-o", "remount,size=64m", home], check=True)  # the user makes room
        status, said = line.run("resume")
        assert status == 0 and repo.culprit[:8] in said and bad[:8] not in said.split("The proof")[0].split("FOUND")[1], said


def assert_disk_full(line: CommandLine, good: str) -> None:
    status, said = line.run("run", "--good", good, "--steps", "5", *PYTHON, "--", *COMMAND)
    print(last_lines(said))
    assert status == 1, said
    assert "Traceback" not in said, said
    assert re.search(r"No space left|disk is full|is full", said), said
    line.wait_until_gone([], limit_s=15.0)


@pytest.mark.scenario
def test_read_only_cache_is_status_1_with_its_message(tmp_path: Path) -> None:
    repo = build_training_repo(tmp_path / "repo")
    with mounted(tmp_path / "small", "size=64m") as home:
        line = CommandLine(repo.repo.path, home)
        assert line.run("list")[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", home], check=True)
        status, said = line.run("run", "--good", repo.good, *PYTHON, "--", *COMMAND)
        print(last_lines(said))
        assert status == 1 and "Traceback" not in said, said
        assert str(home) in said and "BISECT_TRAIN_HOME" in said


@pytest.mark.scenario
@pytest.mark.parametrize("when", ["version", "good end", "starting"])
def test_ctrl_c_ends_within_seconds_and_leaves_nothing(tmp_path: Path, when: str) -> None:
    """Ctrl-C in a terminal: the whole foreground process group gets the signal."""
    repo = build_training_repo(tmp_path / "repo")
    line = CommandLine(repo.repo.path, tmp_path / "home", env={"TERM": "xterm"})
    main_end, command_end = pty.openpty()
    arguments = ["run", "--good", repo.good, "--steps", "5", *PYTHON, "--", *COMMAND]
    command = [sys.executable, "-c", _IN_TERMINAL, sys.executable, "-m", "bisect_train.cli.main", *arguments]
    with subprocess.Popen(
        command, cwd=line.folder, env=line.environment, stdin=command_end, stdout=command_end, stderr=command_end
    ) as process:
        os.close(command_end)
        said = read_until(main_end, "bisection" if when == "starting" else when, limit_s=120.0)
        if when != "starting":
            time.sleep(1.0)
        family = family_of(process.pid)
        started = time.monotonic()
        os.write(main_end, b"\x03")
        said += read_until(main_end, None, limit_s=30.0)
        process.wait(30)
        took_s = time.monotonic() - started
    os.close(main_end)
    print(f"ended after {took_s:.1f} s")
    assert process.returncode == 130, said
    assert "interrupted" in said and "resume" in said and "Traceback" not in said, said
    assert took_s < 10.0
    line.wait_until_gone(family, limit_s=5.0)
    assert line.events()[-1].kind == "interrupted"


_IN_TERMINAL = """\
import fcntl, os, signal, sys, termios
os.setsid()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a terminal's shell does not have it ignored, who runs tests may
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def read_until(stream: int, wanted: str | None, *, limit_s: float) -> str:
    """Read what a terminal shows until a text comes, or (None) until the program has closed it."""
    shown, deadline = "", time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            data = os.read(stream, 4096)
        except OSError:
            return shown
        if not data:
            return shown
        shown += data.decode(errors="replace")
        if wanted is not None and wanted in shown:
            return shown
    raise AssertionError(f"no {wanted!r} within {limit_s} s: {shown}")


@pytest.mark.scenario
@pytest.mark.parametrize("how", ["cancel", "SIGTERM"])
def test_running_bisection_is_stopped_from_outside(tmp_path: Path, how: str) -> None:
    repo = build_training_repo(tmp_path / "repo")
    line = CommandLine(repo.repo.path, tmp_path / "home")
    arguments = ["run", "--good", repo.good, "--steps", "5", *PYTHON, "--", *COMMAND]
    with line.start(*arguments, output=subprocess.PIPE) as process:
        while sum(event.kind == "probe_started" for event in line.events()) < 2:
            assert process.poll() is None
            time.sleep(0.2)
        family = family_of(process.pid)
        status, said = line.run("status")
        assert status == 0 and "running" in said, said
        status, said = line.run("resume")
        assert status == 2 and f"is being run by process {process.pid}" in said, said
        started = time.monotonic()
        if how == "cancel":
            assert line.run("cancel")[0] == 0
        else:
            process.terminate()
        said, _ = process.communicate(timeout=30)
    print(f"stopped after {time.monotonic() - started:.1f} s: {last_lines(said)}")
    assert process.returncode == 130 and "Traceback" not in said, said
    line.wait_until_gone(family, limit_s=5.0)
    assert line.events()[-1].kind == ("cancelled" if how == "cancel" else "interrupted")
    assert "resume" in line.run("status")[1]


@pytest.mark.scenario
def test_report_that_cannot_be_written_does_not_lose_the_verdict(tmp_path: Path) -> None:
    repo = build_training_repo(tmp_path / "repo", num_commits=3, culprit=1)
    line = CommandLine(repo.repo.path, tmp_path / "home")
    arguments = ["--good", repo.good, "--steps", "5", "--quiet", "--json", "/proc/report.json"]
    with line.start("run", *arguments, *PYTHON, "--", *COMMAND, output=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=300)
    print(said[:400], last_lines(said))
    assert process.returncode == 1 and repo.culprit[:8] in said
    assert "cannot write /proc/report.json" in said
    status, said = line.run("report", "--json", str(tmp_path / "r.json"))
    assert status == 0 and repo.culprit[:8] in said and (tmp_path / "r.json").exists()


@pytest.mark.scenario
def test_program_without_training_is_bad_input(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    for idx in range(3):
        repo.commit({"train.py": f"import torch\nprint({idx})\n"})
    line = CommandLine(repo.path, tmp_path / "home")
    status, said = line.run("run", "--good", "HEAD~2", *PYTHON, "--", "python", "train.py")
    print(said)
    assert status == 2, said
    assert "loss" in said
