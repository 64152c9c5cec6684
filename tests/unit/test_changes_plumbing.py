"""What git is started with, and what comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bisect_train.changes.plumbing import Git, GitCommandError, failure_of, isolated_environment, printable, quote_path
from bisect_train.core.errors import MachineError


def test_environment_of_a_hook_does_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_COUNT", "GIT_LITERAL_PATHSPECS"):
        monkeypatch.setenv(name, "/nowhere")
    assert "/nowhere" not in isolated_environment().values()


def test_environment_keeps_git_from_fetching_and_asking() -> None:
    env = isolated_environment()
    assert (env["GIT_ALLOW_PROTOCOL"], env["GIT_TERMINAL_PROMPT"], env["GIT_OPTIONAL_LOCKS"]) == ("none", "0", "0")


@pytest.mark.parametrize(
    ("path", "quoted"),
    [("/plain path", "/plain path"), ('/a"b', '"/a\\"b"'), ("/a\nb", '"/a\\nb"'), ("/a:b", '"/a:b"'), ("/a\\b", "/a\\b")],
)
def test_quote_path_as_git_reads_it(path: str, quoted: str) -> None:
    assert quote_path(Path(path)) == quoted


def test_printable_escapes_what_a_terminal_would_obey() -> None:
    assert printable("ok ü \x1b[31m\n") == "ok ü \\x1b[31m\\n"
    assert printable("\udcff") == "\\udcff"


def test_git_missing_from_path_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="git was not found"):
        Git(tmp_path).run("version")


def test_git_failure_carries_what_git_said(tmp_path: Path) -> None:
    with pytest.raises(GitCommandError, match="not a git repository") as caught:
        Git(tmp_path).run("rev-parse", "HEAD")
    assert caught.value.status == 128


def test_git_failure_by_a_full_disk_says_where_to_make_room(tmp_path: Path) -> None:
    stderr = b"error: unable to write file: No space left on device\nfatal: could not write\n"
    error = failure_of(("commit-tree",), subprocess.CompletedProcess([], 128, b"", stderr), git_dir=tmp_path)
    assert error.is_machine_trouble
    assert error.exit_status == 1
    assert str(tmp_path) in error.hint
    assert "BISECT_TRAIN_HOME" in error.hint
