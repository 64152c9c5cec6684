"""Folders are removed whatever the modes in them are, and nothing around them is touched."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bisect_train_workers import folder_guard
from bisect_train_workers.locks import try_lock
from bisect_train_workers.node import remove_folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like `/tmp`."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_folder_with_forbidding_modes_is_removed_and_its_parent_stays_as_it_is(shared: Path) -> None:
    inner = shared / "probe" / "closed" / "deeper"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for path in (inner, inner.parent, shared / "probe"):
        path.chmod(0o500)
    remove_folder(shared / "probe")
    assert not (shared / "probe").exists() and mode_of(shared) == 0o1777


def test_folder_that_is_not_there_is_no_error_and_its_parent_stays_as_it_is(shared: Path) -> None:
    remove_folder(shared / "gone")
    assert mode_of(shared) == 0o1777


def test_link_is_removed_and_not_what_it_points_to(shared: Path) -> None:
    (shared / "kept").mkdir()
    (shared / "link").symlink_to(shared / "kept")
    remove_folder(shared / "link")
    assert [path.name for path in shared.iterdir()] == ["kept"]


def test_guard_whose_folders_are_half_gone_touches_nothing_else(shared: Path, tmp_path: Path) -> None:
    base = tmp_path / "probes" / "a-1"
    base.mkdir(parents=True)
    (base / "file").write_text("x")
    base.parent.chmod(0o755)
    folder_guard.remove_unlocked(base, [shared / "bt-a-1"])  # the worker had removed that one, and the lock of the other
    assert not base.exists() and mode_of(shared) == 0o1777 and mode_of(base.parent) == 0o755
    with pytest.raises(FileNotFoundError):
        folder_guard.remove_unlocked(base, [shared / "bt-a-1"])
    assert not base.exists(), "nothing is made anew"


def test_guard_waits_for_whoever_holds_the_lock(tmp_path: Path) -> None:
    base, done = tmp_path / "a-1", tmp_path / "b-1"
    for folder in (base, done):
        folder.mkdir()
    lock = try_lock(base / "lock")
    assert lock is not None
    packages = str(Path(psutil.__file__).parents[1])
    command = [sys.executable, "-I", "-S", str(folder_guard.__file__), packages]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        told = [[True, [str(base)]], [True, [str(done)]], [False, [str(done)]]]
        assert guard.stdin is not None
        guard.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in told))
        guard.stdin.close()  # the worker is gone, and its supervisor still ends the program
        with pytest.raises(subprocess.TimeoutExpired):
            guard.wait(0.5)
        assert base.exists()
        lock.release()
        assert guard.wait(10.0) == 0
    assert not base.exists() and done.exists(), "what the worker has removed itself is none of the guard's"
