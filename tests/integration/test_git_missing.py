"""Submodules, and objects that are not there: said so, never fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.core.changes import make_point
from bisect_train.core.errors import RevisionError, UnbuildableError
from tests.support.git_repos import UserRepo, files_on_worker, git, question_of, state_of


@pytest.fixture
def server(tmp_path: Path) -> UserRepo:
    repo = UserRepo.create(tmp_path / "server")
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    return repo


def _space(path: Path, good: str, bad: str, home: Path) -> ChangeSpace:
    return build_space(Repository.open(path, home=home), question_of(good, bad))


def test_partial_clone_with_a_missing_blob_is_unbuildable_and_fetches_nothing(server: UserRepo, tmp_path: Path) -> None:
    good = server.commit({"train.py": "1", "data/weights.bin": "old" * 100})
    middle = server.commit({"train.py": "2"})
    bad = server.commit({"data/weights.bin": "new" * 100})
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{server.path}", "partial")
    partial = tmp_path / "partial"
    before = state_of(partial)
    space = _space(partial, good, bad, tmp_path / "home")
    with pytest.raises(UnbuildableError, match=r"data/weights\.bin"):
        space.variant(make_point(1))
    variant = space.variant(make_point(2))
    found = files_on_worker(space.packs(variant), variant.tree, tmp_path / "worker")
    assert found["data/weights.bin"] == b"new" * 100
    with pytest.raises(RevisionError):
        space._repository.resolve("0" * 39 + "1")
    assert state_of(partial) == before
    git(partial, "checkout", "-q", middle)  # brings what was missing
    again = _space(partial, good, bad, tmp_path / "home")
    variant = again.variant(make_point(1))
    assert files_on_worker(again.packs(variant), variant.tree, tmp_path / "worker2")["data/weights.bin"] == b"old" * 100


def test_partial_clone_without_trees_is_unbuildable(server: UserRepo, tmp_path: Path) -> None:
    good, _, bad = server.commit({"d/a": "1"}), server.commit({"d/a": "2"}), server.commit({"d/a": "3"})
    git(tmp_path, "clone", "-q", "--filter=tree:0", f"file://{server.path}", "partial")
    space = _space(tmp_path / "partial", good, bad, tmp_path / "home")
    with pytest.raises(UnbuildableError, match="missing"):
        space.variant(make_point(1))
    variant = space.variant(make_point(2))
    assert files_on_worker(space.packs(variant), variant.tree, tmp_path / "worker") == {"d/a": b"3"}


def test_damaged_repository_is_unbuildable(server: UserRepo, tmp_path: Path) -> None:
    good, bad = server.commit({"a": "1"}), server.commit({"a": "2"})
    blob = server.git("rev-parse", f"{good}:a")
    (server.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    space = _space(server.path, good, bad, tmp_path / "home")
    with pytest.raises(UnbuildableError, match="missing"):
        space.packs(space.variant(make_point(0)))
    assert space.packs(space.variant(make_point(1)))


def _with_submodule(server: UserRepo, tmp_path: Path) -> tuple[UserRepo, str, str]:
    """Return a user's repository whose bad end has the submodule `libs/dep` one commit further."""
    good_dep = server.commit({"dep.py": "dep 1"})
    user = UserRepo.create(tmp_path / "user")
    user.git("submodule", "-q", "add", "--name", "the dep", f"file://{server.path}", "libs/dep")
    good = user.commit({"train.py": "1"})
    bad_dep = server.commit({"dep.py": "dep 2"})
    git(user.path / "libs" / "dep", "pull", "-q")
    bad = user.commit()
    assert good_dep != bad_dep
    return user, good, bad


def test_submodule_is_a_subtree_at_its_recorded_commit(server: UserRepo, tmp_path: Path) -> None:
    user, good, bad = _with_submodule(server, tmp_path)
    before = state_of(user.path)
    space = _space(user.path, good, bad, tmp_path / "home")
    for prefix, text in ((0, b"dep 1"), (1, b"dep 2")):
        variant = space.variant(make_point(prefix))
        (subtree,) = variant.subtrees
        assert subtree.path == "libs/dep"
        worker = tmp_path / f"worker{prefix}"
        assert files_on_worker(space.packs(variant), subtree.tree, worker) == {"dep.py": text}
    assert space.variant(make_point(0)).tree != space.variant(make_point(1)).tree
    assert state_of(user.path) == before


def test_submodule_of_a_worktree_is_found(server: UserRepo, tmp_path: Path) -> None:
    user, good, bad = _with_submodule(server, tmp_path)
    user.git("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    assert _space(tmp_path / "tree", good, bad, tmp_path / "home").variant(make_point(0)).subtrees


def test_submodule_that_is_not_cloned_names_the_command(server: UserRepo, tmp_path: Path) -> None:
    user, good, bad = _with_submodule(server, tmp_path)
    git(tmp_path, "clone", "-q", str(user.path), "fresh")
    space = _space(tmp_path / "fresh", good, bad, tmp_path / "home")
    with pytest.raises(UnbuildableError, match="submodule libs/dep lacks") as caught:
        space.variant(make_point(0))
    assert "git submodule update --init" in caught.value.hint
    assert "libs/dep" in caught.value.hint


def test_submodule_with_a_missing_blob_names_its_path(server: UserRepo, tmp_path: Path) -> None:
    user, good, bad = _with_submodule(server, tmp_path)
    objects = user.path / ".git" / "modules" / "the dep" / "objects"
    blob = git(user.path / "libs" / "dep", "rev-parse", "HEAD~1:dep.py")
    git(user.path / "libs" / "dep", "repack", "-q", "-a", "-d")
    (pack,) = (objects / "pack").glob("*.pack")
    content = pack.read_bytes()
    for item in (objects / "pack").iterdir():
        item.unlink()
    git(user.path / "libs" / "dep", "unpack-objects", "-q", stdin=content)
    (objects / blob[:2] / blob[2:]).unlink()
    space = _space(user.path, good, bad, tmp_path / "home")
    with pytest.raises(UnbuildableError, match=r"libs/dep/dep\.py"):
        space.packs(space.variant(make_point(0)))
    assert space.packs(space.variant(make_point(1)))


def test_submodule_within_a_submodule_is_found(server: UserRepo, tmp_path: Path) -> None:
    server.commit({"inner.py": "1"})
    outer = UserRepo.create(tmp_path / "outer")
    outer.git("submodule", "-q", "add", f"file://{server.path}", "in")
    outer.commit({"outer.py": "1"})
    user = UserRepo.create(tmp_path / "user")
    good = user.commit({"a": "1"})
    user.git("submodule", "-q", "add", f"file://{outer.path}", "out")
    git(user.path, "submodule", "update", "-q", "--init", "--recursive")
    bad = user.commit()
    space = _space(user.path, good, bad, tmp_path / "home")
    assert space.variant(make_point(0)).subtrees == ()
    variant = space.variant(make_point(1))
    assert [subtree.path for subtree in variant.subtrees] == ["out", "out/in"]
    inner = variant.subtrees[1].tree
    assert files_on_worker(space.packs(variant), inner, tmp_path / "worker") == {"inner.py": b"1"}


def test_gitlink_without_gitmodules_stays_empty(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "user")
    good = user.commit({"a": "1"})
    nested = UserRepo.create(user.path / "nested")
    nested.commit({"b": "1"})
    bad = user.commit()
    space = _space(user.path, good, bad, tmp_path / "home")
    assert space.variant(make_point(1)).subtrees == ()
    assert space.packs(space.variant(make_point(1)))


def test_submodule_name_that_climbs_out_is_not_followed(server: UserRepo, tmp_path: Path) -> None:
    user, good, bad = _with_submodule(server, tmp_path)
    evil = '[submodule "../../x"]\n\tpath = libs/dep\n\turl = x\n'
    bad = user.commit({".gitmodules": evil})
    git(tmp_path, "clone", "-q", str(user.path), "fresh")
    git(tmp_path / "fresh", "clone", "-q", "--bare", str(server.path), "x")  # where the name leads to
    (tmp_path / "fresh" / ".git" / "modules").mkdir()
    with pytest.raises(UnbuildableError, match="lacks its commit"):
        _space(tmp_path / "fresh", good, bad, tmp_path / "home").variant(make_point(2))
