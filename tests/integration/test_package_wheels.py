"""Commits of a package's own repository as wheels: built offline, by setuptools, and laid over like a release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bisect_train.changes.packages.repo import requirement_of_wheel, wheel_of_commit
from bisect_train.core.errors import InputError, UnbuildableError
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay import PackageRequest, hold_overlay
from tests.support.git_repos import UserRepo

PROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"
[project]
name = "mini-trainer"
version = "0.3"
[tool.setuptools]
py-modules = ["minitrainer"]
"""


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def repo(tmp_path: Path) -> UserRepo:
    """Three commits of one version; the last does not build."""
    made = UserRepo.create(tmp_path / "minitrainer")
    made.write("pyproject.toml", PROJECT)
    for content in ("STEP = 1\n", "STEP = 2\n"):
        made.write("minitrainer.py", content)
        made.git("add", "-A")
        made.git("commit", "-q", "-m", content.strip())
    made.write("pyproject.toml", PROJECT.replace("setuptools.build_meta", "nowhere.build_meta"))
    made.git("commit", "-q", "-a", "-m", "break the build")
    return made


def state_of(repo: UserRepo) -> str:
    return repo.git("status", "--porcelain", "--ignored") + repo.git("for-each-ref") + repo.git("worktree", "list")


def test_commits_of_one_version_become_wheels_of_their_own_and_are_laid_over(repo: UserRepo, tmp_path: Path) -> None:
    before, head = state_of(repo), repo.git("rev-parse", "HEAD")
    wheels = [wheel_of_commit(repo.path, revision, tmp_path / "out") for revision in ("HEAD~2", "HEAD~1")]
    assert [wheel.name for wheel in wheels] == ["mini_trainer-0.3-py3-none-any.whl"] * 2 and wheels[0] != wheels[1]
    assert (state_of(repo), repo.git("rev-parse", "HEAD")) == (before, head)
    said = []
    for wheel in wheels:
        request = PackageRequest(sys.executable, (requirement_of_wheel(wheel),), (), "none")
        with hold_overlay(NodeHome(tmp_path / "home"), request) as overlay:
            program = f"import sys; sys.path.insert(0, {str(overlay.path)!r}); import minitrainer; print(minitrainer.STEP)"
            said.append(
                subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
            )
    assert said == ["1", "2"]


def test_a_wheel_is_built_once_and_from_a_bare_repository_too(repo: UserRepo, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    repo.git("clone", "-q", "--bare", ".", str(bare))
    first = wheel_of_commit(bare, "HEAD~1", tmp_path / "out")
    assert wheel_of_commit(repo.path, "HEAD~1", tmp_path / "out", python="/no/python") == first
    assert [path.name for path in (tmp_path / "out").iterdir()] == [repo.git("rev-parse", "HEAD~1")]


def test_a_commit_that_is_built_again_gives_the_same_wheel(repo: UserRepo, tmp_path: Path) -> None:
    wheels = [wheel_of_commit(repo.path, "HEAD~1", tmp_path / name) for name in ("here", "there")]
    assert wheels[0] != wheels[1] and wheels[0].read_bytes() == wheels[1].read_bytes()


def test_a_commit_that_does_not_build_says_what_the_build_said(repo: UserRepo, tmp_path: Path) -> None:
    with pytest.raises(UnbuildableError) as caught:
        wheel_of_commit(repo.path, "HEAD", tmp_path / "out")
    assert "nowhere" in caught.value.message and caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_no_repository_or_no_commit_is_refused(repo: UserRepo, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for place, revision, said in (
        (tmp_path / "none", "HEAD", "there is no such folder"),
        (tmp_path / "plain", "HEAD", "is no git repository"),
        (repo.path, "v9", "has no commit v9"),
        (repo.path, "--all", "has no commit --all"),
    ):
        with pytest.raises(InputError, match=said):
            wheel_of_commit(place, revision, tmp_path / "out")


def test_a_version_that_the_build_asks_git_for_comes_from_the_tags(tmp_path: Path) -> None:
    made = UserRepo.create(tmp_path / "tagged")
    made.write("pyproject.toml", '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n')
    ask = 'subprocess.run(["git", "describe", "--tags"], check=True, capture_output=True, text=True).stdout.strip()'
    made.write(
        "setup.py", f'import subprocess\nfrom setuptools import setup\nsetup(name="tagged", version={ask}, py_modules=[])\n'
    )
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "one")
    made.git("tag", "-a", "1.5", "-m", "release")
    assert wheel_of_commit(made.path, "HEAD", tmp_path / "out").name == "tagged-1.5-py3-none-any.whl"
