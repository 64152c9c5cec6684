"""Opening a user's repository, resolving revisions, and leaving it exactly as it was."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.core.changes import make_point
from bisect_train.core.errors import InputError, MachineError, RevisionError
from tests.support.git_repos import UserRepo, files_of, git, question_of, state_of


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    repo = UserRepo.create(tmp_path / "my repo")
    repo.commit({"train.py": "1\n"})
    repo.commit({"train.py": "2\n"})
    return repo


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_open_subfolder_worktree_and_bare_find_the_same_commits(user: UserRepo, home: Path, tmp_path: Path) -> None:
    (user.path / "sub").mkdir()
    user.git("worktree", "add", "-q", str(tmp_path / "tree"), "HEAD~1")
    git(tmp_path, "clone", "-q", "--bare", str(user.path), "bare.git")
    top = user.open(home)
    inside = Repository.open(user.path / "sub", home=home)
    tree = Repository.open(tmp_path / "tree", home=home)
    bare = Repository.open(tmp_path / "bare.git", home=home)
    assert (inside.root, inside.key) == (top.root, top.key) == (user.path, top.key)
    assert (tree.root, tree.key) == (tmp_path / "tree", top.key)
    assert tree.resolve("HEAD") == top.resolve("HEAD~1")
    assert bare.is_bare
    assert bare.key != top.key
    assert bare.resolve("main") == top.resolve("main")


@pytest.mark.parametrize("name", ['quo"te', "new\nline", "co:lon", "#hash", "ünï", "-dash"])
def test_open_strange_folder_names_work(name: str, tmp_path: Path, home: Path) -> None:
    user = UserRepo.create(tmp_path / name)
    first, second = user.commit({"a": "1"}), user.commit({"a": "2"})
    space = build_space(user.open(home), question_of(first, second))
    assert [change.id for change in space.changes] == [second]
    assert space.packs(space.variant(make_point(1)))


def test_open_outside_a_repository_names_path_and_command(tmp_path: Path, home: Path) -> None:
    with pytest.raises(InputError, match="not a git repository") as caught:
        Repository.open(tmp_path, home=home)
    assert str(tmp_path) in caught.value.message
    assert "git init" in caught.value.hint
    with pytest.raises(InputError, match="does not exist"):
        Repository.open(tmp_path / "gone", home=home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_open_folder_of_another_user_explains_safe_directory(user: UserRepo, home: Path) -> None:
    for item in (user.path, user.path / ".git"):
        os.chown(item, 65534, 65534)
    with pytest.raises(InputError, match="belongs to another user") as caught:
        user.open(home)
    assert f"safe.directory {user.path}" in caught.value.hint


def test_open_home_that_is_a_file_is_a_machine_error(user: UserRepo, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write to") as caught:
        user.open(tmp_path / "file" / "home")
    assert "BISECT_TRAIN_HOME" in caught.value.hint


def test_open_mirror_that_cannot_be_written_is_a_machine_error(user: UserRepo, home: Path) -> None:
    repository = user.open(home)
    shutil.rmtree(repository.mirror / "objects")
    (repository.mirror / "objects").write_text("")
    with pytest.raises(MachineError, match="cannot write to"):
        user.open(home)


def test_open_sha256_repository_is_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q", "--object-format=sha256")
    with pytest.raises(InputError, match="sha256"):
        Repository.open(tmp_path / "new", home=home)


def test_open_clone_that_borrows_objects_reads_them_all(user: UserRepo, home: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(user.path), "b")
    git(tmp_path, "clone", "-q", "--shared", "b", "c")
    repository = Repository.open(tmp_path / "c", home=home)
    assert repository.git.text("cat-file", "-t", user.head) == "commit"


def test_resolve_peels_tags_and_reads_expressions(user: UserRepo, home: Path) -> None:
    user.git("tag", "-a", "v1", "-m", "one", "HEAD~1")
    repository = user.open(home)
    assert repository.resolve("v1") == user.git("rev-parse", "HEAD~1")
    assert repository.resolve(user.head[:8]) == user.head
    assert repository.resolve(":/commit 2") == user.head


@pytest.mark.parametrize(
    ("rev", "message"),
    [("mian", "did you mean 'main'"), ("--all", "does not begin with a dash"), ("", "not a revision"), ("a..b", "unknown")],
)
def test_resolve_unknown_revision_says_what_to_do(user: UserRepo, home: Path, rev: str, message: str) -> None:
    with pytest.raises(RevisionError) as caught:
        user.open(home).resolve(rev)
    assert message in str(caught.value)


def test_resolve_branch_and_tag_of_one_name_is_ambiguous(user: UserRepo, home: Path) -> None:
    user.git("branch", "v1", "HEAD")
    user.git("tag", "v1", "HEAD~1")
    with pytest.raises(RevisionError, match="ambiguous") as caught:
        user.open(home).resolve("v1")
    assert "refs/heads/v1" in caught.value.hint


def test_resolve_short_digits_of_two_commits_are_ambiguous(user: UserRepo, home: Path) -> None:
    stream = "".join(
        f"commit refs/heads/b{idx}\ncommitter x <x@y> {1600000000 + idx} +0000\ndata 1\nx\n\n" for idx in range(400)
    )
    git(user.path, "fast-import", "--quiet", stdin=stream.encode())
    commits = user.git("for-each-ref", "--format=%(objectname)").split()
    heads = [commit[:4] for commit in commits]
    twice = next((head for head in heads if heads.count(head) > 1), None)
    if twice is None:
        pytest.skip("no two of these commits begin alike")
    with pytest.raises(RevisionError, match="ambiguous"):
        user.open(home).resolve(twice)


def test_resolve_file_is_not_a_commit(user: UserRepo, home: Path) -> None:
    with pytest.raises(RevisionError, match="is a blob, not a commit"):
        user.open(home).resolve("HEAD:train.py")


def test_resolve_in_an_empty_repository_says_so(tmp_path: Path, home: Path) -> None:
    with pytest.raises(RevisionError, match="no commits yet"):
        UserRepo.create(tmp_path / "empty").open(home).resolve("HEAD")


def test_callers_git_variables_change_nothing(user: UserRepo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = user.head
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    repository = user.open(home)
    assert repository.resolve("HEAD") == expected
    assert repository.snapshot_worktree() == expected


def test_snapshot_holds_changed_and_untracked_but_not_ignored_files(user: UserRepo, home: Path) -> None:
    user.commit({".gitignore": "*.log\n", "gone": "x", "-dash": "d", "kept": "k"})
    (user.path / ".git" / "info" / "exclude").write_text("private\n")
    names = {"new\nline": "n", 'quo"te': "q", "ünï": "u", "sub/a.log": "l", "private": "p", "data/big": "b"}
    for name, text in names.items():
        user.write(name, text)
    user.write("train.py", "3\n")
    (user.path / "gone").unlink()
    user.git("add", "--", "-dash")
    repository = user.open(home)
    commit = repository.snapshot_worktree(exclude=("data/",))
    assert files_of(repository.mirror, commit) == {
        ".gitignore": b"*.log\n",
        "-dash": b"d",
        "kept": b"k",
        "new\nline": b"n",
        'quo"te': b"q",
        "ünï": b"u",
        "train.py": b"3\n",
    }
    assert repository.snapshot_worktree(exclude=("data/",)) == commit
    assert repository.git.text("rev-parse", f"{commit}^") == user.head
    assert not repository.has_own(commit)


def test_snapshot_leaves_out_ignored_files_that_are_named_too(user: UserRepo) -> None:
    user.commit({".gitignore": "*.bin\nhome/\n"})
    for name in ("data/ids.bin", "data/meta.pkl", "home/packs/x"):
        user.write(name, "data")
    repository = user.open(user.path / "home")
    assert repository.snapshot_worktree(exclude=("data/ids.bin", "data/meta.pkl", "data/absent")) == user.head


def test_snapshot_of_a_split_index_works(user: UserRepo, home: Path) -> None:
    user.git("update-index", "--split-index")
    user.write("new", "n")
    repository = user.open(home)
    assert set(files_of(repository.mirror, repository.snapshot_worktree())) == {"train.py", "new"}


def test_snapshot_before_the_first_commit_works(tmp_path: Path, home: Path) -> None:
    user = UserRepo.create(tmp_path / "empty")
    user.write("a", "1")
    repository = user.open(home)
    assert files_of(repository.mirror, repository.snapshot_worktree()) == {"a": b"1"}


def test_snapshot_of_too_much_untracked_data_is_refused(user: UserRepo, home: Path) -> None:
    with (user.path / "corpus.bin").open("wb") as stream:
        stream.truncate(600 * 2**20)
    with pytest.raises(InputError, match=r"corpus\.bin"):
        user.open(home).snapshot_worktree()


def test_snapshot_leaves_out_our_own_home(user: UserRepo) -> None:
    repository = user.open(user.path / ".bisect-train")
    assert repository.snapshot_worktree() == user.head


def test_snapshot_keeps_files_outside_a_sparse_checkout(user: UserRepo, home: Path) -> None:
    user.commit({"docs/a": "1", "src/b": "1"})
    user.git("sparse-checkout", "set", "src")
    user.write("src/b", "2")
    repository = user.open(home)
    found = files_of(repository.mirror, repository.snapshot_worktree())
    assert (found["docs/a"], found["src/b"]) == (b"1", b"2")


def test_snapshot_with_a_folder_that_git_cannot_add_names_it(user: UserRepo, home: Path) -> None:
    UserRepo.create(user.path / "nested")
    with pytest.raises(InputError, match="nested/"):
        user.open(home).snapshot_worktree()


def test_snapshot_reads_the_users_own_ignore_file(
    user: UserRepo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    (tmp_path / "ignored").write_text("*.swp\n")
    user.write("x.swp", "s")
    assert user.open(home).snapshot_worktree() == user.head


def test_open_by_many_at_once_makes_one_mirror(user: UserRepo, home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: user.open(home), range(8)))
    assert len({repository.mirror for repository in found}) == 1
    assert [item.name for item in (home / "mirrors").iterdir()] == [found[0].mirror.name]
    assert all(repository.git.text("cat-file", "-t", user.head) == "commit" for repository in found)


def test_snapshot_of_a_bare_repository_is_refused(user: UserRepo, home: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(user.path), "bare.git")
    with pytest.raises(InputError, match="no working tree"):
        Repository.open(tmp_path / "bare.git", home=home).snapshot_worktree()


def test_users_repository_is_byte_identical_afterwards(user: UserRepo, home: Path) -> None:
    third = user.commit({"train.py": "2\n3\n", "b.py": "b"})
    bad = user.commit({"train.py": "2\n3\n", "b.py": "c"})
    user.write("train.py", "stashed")
    user.git("stash")
    user.git("bisect", "start", "HEAD", "HEAD~2")
    user.git("switch", "-q", "--detach", "HEAD", check=False)
    user.write("train.py", "dirty")
    user.write("staged", "s")
    user.git("add", "staged")
    user.write("untracked", "u")
    (user.path / ".git" / "hooks" / "post-commit").write_text("#!/bin/sh\ntouch ../hook-ran\n")
    (user.path / ".git" / "hooks" / "post-commit").chmod(0o755)
    os.utime(user.path / "b.py")  # an index that a status would refresh
    before = state_of(user.path)
    repository = user.open(home)
    space = build_space(repository, question_of(user.git("rev-parse", f"{third}~2"), bad))
    for point in (make_point(0), make_point(2), make_point(3), make_point(3, minus=(1,)), make_point(0, plus=(2,))):
        try:
            space.packs(space.variant(point))
        except Exception as error:
            assert "conflict" in str(error)
        space.reproduce(point)
    repository.snapshot_worktree()
    with pytest.raises(RevisionError):
        repository.resolve("nothing")
    assert state_of(user.path) == before
