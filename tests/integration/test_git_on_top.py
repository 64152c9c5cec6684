"""Changes of later commits on top of an earlier one, in our mirror; the user's repository is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes.on_top import put_on_top, step_to
from bisect_train.changes.repository import Repository
from bisect_train.core.errors import UnbuildableError
from tests.support.git_repos import UserRepo


def test_changes_are_put_on_top_in_order_and_the_same_way_each_time(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    start = user.commit({"a.txt": "1\n", "b.txt": "1\n"})
    user.commit({"b.txt": "broken\n"})
    first = user.commit({"a.txt": "2\n"})
    second = user.commit({"a.txt": "3\n", "new.txt": "x\n"})
    repository = Repository.open(user.path, home=tmp_path / "home")
    made = put_on_top(repository, start, (first, second))
    assert made == put_on_top(Repository.open(user.path, home=tmp_path / "home"), start, (first, second))
    assert repository.git.text("show", f"{made}:a.txt") == "3" and repository.git.text("show", f"{made}:b.txt") == "1"
    assert repository.git.text("rev-parse", f"{made}^") == start and not repository.has_own(made)
    step = step_to(repository, made, second)
    assert repository.git.text("rev-list", f"{made}..{step}").split() == [step]
    assert repository.git.text("rev-parse", f"{step}^{{tree}}") == repository.git.text("rev-parse", f"{second}^{{tree}}")


def test_merge_brings_what_it_brought_into_its_main_line(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    start = user.commit({"a.txt": "1\n", "b.txt": "1\n"})
    user.git("checkout", "-q", "-b", "side")
    user.commit({"side.txt": "x\n"})
    user.git("checkout", "-q", "main")
    user.commit({"b.txt": "2\n"})
    user.git("merge", "-q", "--no-ff", "-m", "merged", "side")
    repository = Repository.open(user.path, home=tmp_path / "home")
    made = put_on_top(repository, start, (user.git("rev-parse", "HEAD").strip(),))
    assert repository.git.text("ls-tree", "--name-only", made).split() == ["a.txt", "b.txt", "side.txt"]
    assert repository.git.text("show", f"{made}:b.txt") == "1"


def test_changes_of_the_same_lines_cannot_be_put_on_top(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    start = user.commit({"a.txt": "1\n"})
    user.commit({"a.txt": "2\n"})
    change = user.commit({"a.txt": "3\n"})
    repository = Repository.open(user.path, home=tmp_path / "home")
    with pytest.raises(UnbuildableError, match=f"{change[:12]} cannot be put on top of {start[:12]}: conflict in a.txt"):
        put_on_top(repository, start, (change,))
