"""What lies behind what, by real git: an unknown commit is not behind another, unless the history is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes.repository import Repository
from bisect_train.cli.nightly_running import Ancestry
from bisect_train.core.errors import RevisionError
from tests.support.git_repos import UserRepo, git


def build(path: Path) -> tuple[UserRepo, list[str]]:
    repo = UserRepo.create(path)
    return repo, [repo.commit({"a.py": f"{idx}\n"}) for idx in range(3)]


def test_whole_history_says_yes_or_no(tmp_path: Path) -> None:
    repo, commits = build(tmp_path / "repo")
    history = Ancestry(Repository.open(repo.path, home=tmp_path / "home"))
    assert history.is_ancestor(commits[0], commits[2]) and history.is_ancestor(commits[2], commits[2])
    assert not history.is_ancestor(commits[2], commits[0])
    assert not history.is_ancestor("0" * 39 + "1", commits[2]), "it was pushed away, and no clone has it"


def test_shallow_clone_does_not_say_no_of_what_it_does_not_have(tmp_path: Path) -> None:
    repo, commits = build(tmp_path / "repo")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo.path}", str(clone))
    history = Ancestry(Repository.open(clone, home=tmp_path / "home"))
    assert history.is_ancestor(commits[2], commits[2])
    with pytest.raises(RevisionError, match="unknown in this shallow clone") as caught:
        history.is_ancestor(commits[1], commits[2])
    assert "--unshallow" in caught.value.hint
