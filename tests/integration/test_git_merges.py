"""Trees that nobody committed: changes left out and added, half-merged branches, ends beside the chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes import merge as merge_module
from bisect_train.changes.merge import ConflictError
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.core.changes import GOOD_END, Point, make_point
from bisect_train.core.errors import UnbuildableError
from tests.support.git_repos import BAD_CONFIG, GOOD_CONFIG, UserRepo, files_of, files_on_worker, git, question_of


def _user(tmp_path: Path) -> UserRepo:
    return UserRepo.create(tmp_path / "repo")


def _space(user: UserRepo, good: str, bad: str, **options: object) -> ChangeSpace:
    return build_space(user.open(user.path.parent / "home"), question_of(good, bad, **options))  # type: ignore[arg-type]


def _tree_files(space: ChangeSpace, point: Point) -> dict[str, bytes]:
    return files_of(space._repository.mirror, space.variant(point).tree)


def test_conflict_names_the_commit_and_the_files(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"a b.py": "1\n", "c": "1\n"})
    user.commit({"a b.py": "2\n"}, message="second")
    bad = user.commit({"a b.py": "3\n", "c": "2\n"})
    space = _space(user, good, bad)
    with pytest.raises(ConflictError, match=r"\(second\) cannot be left out: conflict in a b\.py") as caught:
        space.variant(make_point(2, minus=(0,)))
    assert caught.value.files == ("a b.py",)
    with pytest.raises(UnbuildableError, match="cannot be added"):
        space.variant(make_point(0, plus=(1,)))


def test_two_changes_of_the_same_lines_are_left_out_together(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"a": "1\n"})
    user.commit({"a": "2\n"})
    user.commit({"a": "3\n"})
    bad = user.commit({"b": "1"})
    space = _space(user, good, bad)
    assert _tree_files(space, make_point(3, minus=(0, 1))) == {"a": b"1\n", "b": b"1"}
    with pytest.raises(ConflictError):
        space.variant(make_point(3, minus=(0,)))


def test_old_git_cannot_build_but_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "git_version", lambda: (2, 37, 1))
    user = _user(tmp_path)
    good = user.commit({"a": "1"})
    user.commit({"b": "1"})
    space = _space(user, good, user.commit({"c": "1"}))
    assert space.variant(make_point(1))
    with pytest.raises(UnbuildableError, match=r"git 2\.37\.1 cannot merge in memory"):
        space.variant(make_point(0, plus=(1,)))


def test_change_to_a_file_renamed_later_is_left_out_under_its_new_name(tmp_path: Path) -> None:
    user = _user(tmp_path)
    lines = [f"line {idx}\n" for idx in range(20)]
    good = user.commit({"old.py": "".join(lines)})
    user.commit({"old.py": "".join(["changed\n", *lines[1:]])})
    user.git("mv", "old.py", "new.py")
    bad = user.commit()
    assert _tree_files(_space(user, good, bad), make_point(2, minus=(0,))) == {"new.py": "".join(lines).encode()}


def test_strange_file_names_modes_and_links_survive(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"a": "1"})
    names = {"new\nline": "n", 'quo"te\\': "q", "ünï": "u", "-dash": "d", "tab\t": "t"}
    user.commit(dict(names))
    (user.path / "link").symlink_to("a")
    user.write("run.sh", "#!/bin/sh\n")
    (user.path / "run.sh").chmod(0o755)
    bad = user.commit()
    space = _space(user, good, bad)
    point = make_point(0, plus=(1,))
    assert set(_tree_files(space, point)) == {"a", "link", "run.sh"}
    listing = git(space._repository.mirror, "ls-tree", space.variant(point).tree)
    assert "120000 blob" in listing
    assert "100755 blob" in listing
    variant = space.variant(make_point(2))
    assert set(names) < set(files_on_worker(space.packs(variant), variant.tree, tmp_path / "worker"))


def test_empty_commit_gives_the_same_variant(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good, _, bad = user.commit({"a": "1"}), user.commit(), user.commit({"a": "2"})
    space = _space(user, good, bad)
    assert space.variant(make_point(0)).id == space.variant(make_point(1)).id
    assert space.variant(make_point(2, minus=(0,))).id == space.variant(make_point(2)).id


def test_merge_commit_is_left_out_and_added_as_a_whole(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"f": "0"})
    user.git("switch", "-q", "-c", "side")
    user.commit({"x": "1"})
    user.commit({"y": "1"})
    user.git("switch", "-q", "main")
    user.commit({"a": "1"})
    user.merge("side")
    bad = user.commit({"b": "1"})
    space = _space(user, good, bad)
    assert set(_tree_files(space, make_point(3, minus=(1,)))) == {"f", "a", "b"}
    assert set(_tree_files(space, make_point(0, plus=(1,)))) == {"f", "x", "y"}
    assert "git revert --no-commit -m 1" in space.reproduce(make_point(3, minus=(1,)))[1]
    inside = _space(user, good, bad, first_parent=False)
    assert set(_tree_files(inside, make_point(2))) == {"f", "a", "x"}
    assert set(_tree_files(inside, make_point(5, minus=(1,)))) == {"f", "a", "y", "b"}
    assert inside.variant(make_point(4)).commit == user.git("rev-parse", "HEAD~1")
    assert inside.reproduce(make_point(2))[1].startswith("git merge --no-edit")


def test_octopus_and_nested_branches_build_all_prefixes(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"f": "0"})
    for name in ("p", "q"):
        user.git("switch", "-q", "-c", name, good)
        user.commit({name: "1"})
    user.git("switch", "-q", "-c", "inner", "q")
    user.commit({"inner": "1"})
    user.git("switch", "-q", "q")
    user.commit({"q2": "1"})
    user.merge("inner")
    user.git("switch", "-q", "main")
    user.commit({"m": "1"})
    bad = user.merge("p", "q")
    space = _space(user, good, bad, first_parent=False)
    sizes = [len(_tree_files(space, make_point(k))) for k in range(len(space.changes) + 1)]
    assert sizes == [1, 2, 3, 4, 5, 6, 6, 6]


def test_branch_that_conflicts_halfway_is_unbuildable_there_only(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"a": "0\n"})
    user.git("switch", "-q", "-c", "side")
    user.commit({"a": "side\n"})
    user.git("switch", "-q", "main")
    user.commit({"a": "main\n"})
    user.git("merge", "-q", "side", check=False)
    bad = user.commit({"a": "both\n"})
    space = _space(user, good, bad, first_parent=False)
    with pytest.raises(ConflictError, match="conflict in a"):
        space.variant(make_point(2))
    assert _tree_files(space, make_point(3)) == {"a": b"both\n"}
    with pytest.raises(ConflictError):
        space.variant(make_point(3, minus=(2,)))


def test_good_end_of_a_fork_is_its_own_variant(tmp_path: Path) -> None:
    user = _user(tmp_path)
    user.commit({"f": "0"})
    user.git("switch", "-q", "-c", "fixed")
    good = user.commit({"fix": "1"})
    user.git("switch", "-q", "main")
    space = _space(user, good, user.commit({"b": "1"}), good_config=GOOD_CONFIG, bad_config=BAD_CONFIG)
    assert not space.good_is_base
    variant = space.variant(GOOD_END)
    assert (variant.commit, variant.config) == (good, GOOD_CONFIG.patch)
    assert set(_tree_files(space, make_point(0))) == {"f"}
    assert "fix" in files_on_worker(space.packs(variant), variant.tree, tmp_path / "worker")
    assert space.reproduce(GOOD_END) == (f"git checkout --detach {good}",)


def test_root_commit_of_a_merged_history_is_left_out(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"a": "1"})
    user.git("switch", "-q", "--orphan", "import")
    user.commit({"vendor": "1"})
    user.commit({"vendor2": "1"})
    user.git("switch", "-q", "main")
    user.git("merge", "-q", "--allow-unrelated-histories", "-m", "import", "import")
    space = _space(user, good, user.head, first_parent=False)
    assert set(_tree_files(space, make_point(1))) == {"a", "vendor"}
    assert set(_tree_files(space, make_point(3, minus=(0,)))) == {"a", "vendor2"}


def test_paths_end_at_the_bad_tree(tmp_path: Path) -> None:
    user = _user(tmp_path)
    good = user.commit({"a": "0", "doc": "0"})
    user.commit({"a": "1"})
    bad = user.commit({"doc": "1"})
    space = _space(user, good, bad, paths=("a",))
    assert len(space.changes) == 2 and space.unlikely == {1}
    assert space.variant(make_point(2)).commit == bad


def test_snapshot_as_an_end_can_be_shipped_and_reproduced(tmp_path: Path) -> None:
    user = _user(tmp_path)
    user.commit({"a": "0"})
    user.write("a", "dirty")
    repository = user.open(tmp_path / "home")
    commit = repository.snapshot_worktree()
    space = build_space(repository, question_of(commit, commit))
    variant = space.variant(make_point(0))
    assert files_on_worker(space.packs(variant), variant.tree, tmp_path / "worker") == {"a": b"dirty"}
    git(tmp_path, "clone", "-q", str(user.path), "clone")
    for command in space.reproduce(make_point(0)):
        git(tmp_path / "clone", *command.split()[1:])
    assert (tmp_path / "clone" / "a").read_text() == "dirty"
